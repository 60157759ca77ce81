"""Scoring answers as they come, and appending them to a rollouts file."""

from __future__ import annotations

import sys
from pathlib import Path

from rewards.families import score_answer
from rewards.marks import marks_of
from rewards.progress import Progress
from rewards.task import Task, json_line, with_absolute_files
from rollouts.record import to_json
from rollouts.trajectory import Trajectory


class Stopped(RuntimeError):
    """The run cannot go on; what is written stays, and the same command goes on from there."""


class Writer:
    """Scores and appends every task's samples as they come; counts what has no outcome."""

    def __init__(
        self, out: Path, seed: int, total: int, give_up: int = 0, root: Path = Path()
    ) -> None:
        """`root`: what the tasks' files are relative to."""
        self._root = root
        self._out, self._seed, self._give_up = out, seed, give_up
        self._file = open(out, "ab")  # noqa: SIM115 - closed by __exit__
        self._bar = Progress("rollouts", "tasks", total)
        self._outcomes: list[float] = []
        self._missing = self._broken = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        self._file.close()

    def add(self, task: Task, group: list[Trajectory]) -> None:
        """Raises `Stopped` after too many tasks in a row whose answers could not be had."""
        scores = [score_answer(task, t.answer()) for t in group]
        self._outcomes += [s.outcome for s in scores if s.outcome is not None]
        self._missing += sum(s.outcome is None for s in scores)
        marks = marks_of(with_absolute_files(task, self._root)).flat()
        rows = [
            to_json(t, s, task) | {"run_seed": self._seed, "marks": marks}
            for t, s in zip(group, scores, strict=True)
        ]
        self._file.write(b"".join(map(json_line, rows)))
        self._file.flush()
        self._bar.add()
        failed = all(t.failure is not None for t in group)
        self._broken = self._broken + 1 if failed else 0
        if self._give_up and self._broken >= self._give_up:
            raise Stopped(
                f"{self._broken} tasks in a row had no answer ({group[0].failure}); mend the "
                "endpoint and run the same command again"
            )

    def report(self) -> int:
        """Say what was written; returns the exit status."""
        count = len(self._outcomes)
        mean = sum(self._outcomes) / count if count else float("nan")
        print(f"{self._out}: {count} new scored rollouts, mean outcome {mean:.3f}")
        if not self._missing:
            return 0
        print(
            f"{self._missing} rollouts have no outcome (field `why`); run the same command again "
            "to sample their tasks once more",
            file=sys.stderr,
        )
        return 3
