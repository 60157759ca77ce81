"""Rows executed in worker processes: each is checked, run under a deadline and answered.

The operating system kills a process when a row's processor time runs out, in the middle of a
regular expression if need be. The rows of a batch that killed one are executed again alone, which
tells the row that kills.
"""

from __future__ import annotations

import json
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from assay.task import TaskError, json_line
from assay.workers import WorkerPool
from rewards.gold.core import GoldError, nearest
from rewards.gold.recipe import (
    BoundStep,
    Execution,
    bind_recipe,
    kind_of,
    read_profile,
    read_steps,
    run_bound,
)

Key = TypeVar("Key")
Batch = tuple[str, int, list[bytes]]  # what lines are called, number of the first, lines
_CACHE_LIMIT = 1000


@dataclass
class Summary:
    """How many rows were kept, dropped and failed, and what each operator did with those that came
    to it: [rows, rows changed, rows dropped, characters added, seconds of wall time]."""

    kept: int = 0
    dropped: int = 0
    failed: int = 0
    operators: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    @property
    def rows(self) -> int:
        """How many rows were executed or failed."""
        return self.kept + self.dropped + self.failed

    def count(self, done: Execution) -> None:
        """Add one executed row."""
        self.kept += done.status == "KEEP"
        self.dropped += done.status == "DROP"
        for entry in done.trace:
            found = self.operators.setdefault(entry["operator"], [0, 0, 0, 0, 0.0])
            found[0] += 1
            if entry["kind"] == "mapper":
                found[1] += entry["active"]
                found[3] += entry["delta_chars"]
            else:
                found[2] += not entry["keep"]
            found[4] += done.seconds[entry["step_index"]]

    def add(self, other: Summary) -> None:
        """Add the counts of another summary."""
        self.kept += other.kept
        self.dropped += other.dropped
        self.failed += other.failed
        for name, more in other.operators.items():
            mine = self.operators.get(name, [0, 0, 0, 0, 0.0])
            self.operators[name] = [a + b for a, b in zip(mine, more, strict=True)]

    def table(self) -> str:
        """Write the counts in a line, and under it a line an operator."""
        lines = [
            f"assay execute: {self.rows} rows: kept {self.kept}, dropped {self.dropped}, failed "
            f"{self.failed}"
        ]
        wide = max(map(len, self.operators), default=0)
        if self.operators:
            heads = ("rows", "changed", "dropped", "characters", "seconds")
            lines.append(f"{'operator':<{wide}}" + "".join(f"{head:>13}" for head in heads))
        for name, (*counts, seconds) in self.operators.items():
            cells = "".join(f"{count:>13,.0f}" for count in counts)
            lines.append(f"{name:<{wide}}{cells}{seconds:>13.2f}")
        return "\n".join(lines)


@dataclass
class RowExecutor:
    """Executes rows, remembering checked recipes.

    `recipe` and `profile` apply to rows that carry none of their own; `states` adds the texts
    after each mapper to the answers; `id_field` and `text_field` are the fields of a row with its
    name and its text. `summary` counts what was executed.
    """

    recipe: list[Any] | None = None
    profile: str = "bench"
    states: bool = False
    id_field: str = "id"
    text_field: str = "input_text"
    summary: Summary = field(default_factory=Summary)
    _checked: dict[str, tuple[BoundStep, ...]] = field(
        default_factory=dict[str, tuple[BoundStep, ...]]
    )

    def line(self, line: bytes, place: str) -> bytes:
        """Answer the line at `place`; a row that cannot be executed has an `error`."""
        row: Any = None
        try:
            row = json.loads(line)
            return json_line(self.row(row))
        except TaskError as error:
            why = str(error)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            why = f"not valid JSON ({error})"
        except RecursionError:
            why = "nested too deeply to read or execute"
        except MemoryError:
            why = "infrastructure: out of memory while executing"
        except Exception as error:  # a library failing on one document must not cost the others
            why = f"executing failed: {type(error).__name__}: {error}"
        return self.failed(row, f"{place}: {why}")

    def failed(self, row: object, error: str) -> bytes:
        """Answer a row, however bad it is, that was not executed."""
        self.summary.failed += 1
        name = cast("dict[str, Any]", row).get(self.id_field) if isinstance(row, dict) else None
        return json_line({self.id_field: name, "error": error})

    def row(self, row: object) -> dict[str, Any]:
        """Execute one row. Raises `GoldError` naming the field that is wrong."""
        if not isinstance(row, dict):
            raise GoldError(f"wanted a JSON object, got {type(row).__name__}")
        fields = cast("dict[str, Any]", row)
        text = fields.get(self.text_field)
        if fields.get(self.id_field) is None:
            raise GoldError(f"field {self.id_field!r} is missing; every row needs one")
        used = (self.id_field, self.text_field, "recipe", "profile", "word_list")
        if not isinstance(text, str):
            hint = nearest(self.text_field, [f for f in fields if f not in used])
            raise GoldError(f"field {self.text_field!r} is {kind_of(text)}, wanted a string{hint}")
        done = run_bound(text, self._bound(fields))
        answer: dict[str, Any] = {
            self.id_field: fields[self.id_field],
            "status": done.status,
            "reference_text": done.text,
            "reference_text_full_run": done.full_run_text,
            "trace": done.trace,
        }
        if self.states:
            answer["states"] = done.states
        for name, value in fields.items():
            if name not in used and name not in answer:
                answer[name] = value
        self.summary.count(done)
        return answer

    def _bound(self, row: dict[str, Any]) -> tuple[BoundStep, ...]:
        recipe = row.get("recipe", self.recipe)
        profile = row.get("profile") or self.profile
        words = row.get("word_list")
        key = repr((recipe, profile, words))
        if key not in self._checked:
            if len(self._checked) >= _CACHE_LIMIT:
                self._checked.clear()
            self._checked[key] = bind_recipe(read_steps(recipe, words), read_profile(profile))
        return self._checked[key]


class Pool(WorkerPool):
    """`workers` child processes; use as a context manager. `options` are `RowExecutor`'s.

    `deadline` is processor seconds a row may take: a busy machine never turns a good row into a
    failed one. A row that kills its worker is answered with an `infrastructure:` error and its id.
    `summary` counts what has been executed.
    """

    def __init__(self, workers: int, deadline: float, options: dict[str, Any]) -> None:
        super().__init__(workers, _start, (deadline, options), apart=True, kill=True)
        self.summary = Summary()
        self._deadline, self._options = deadline, options

    def execute(
        self, batches: Iterable[tuple[Key, int, list[bytes]]], named: bool = False
    ) -> Iterator[tuple[Key, list[bytes]]]:
        """Yield the answers of every batch (key, first line number, lines), in order. With `named`
        the key is the input's name, and stands in the errors.

        Holds a few batches a worker at a time.
        """
        keys = deque[Key]()

        def jobs() -> Iterator[Batch]:
            for key, number, lines in batches:
                keys.append(key)
                yield f"{key} line".replace("\n", " ") if named else "line", number, lines

        for answers, summary in self.map(_execute, jobs(), died=self._one_by_one):
            self.summary.add(summary)
            yield keys.popleft(), answers

    def _one_by_one(self, batch: Batch, status: int) -> tuple[list[bytes], Summary]:
        where, number, lines = batch
        whole = Summary()
        if len(lines) > 1:
            answers: list[bytes] = []
            for place, line in enumerate(lines, number):
                found, summary = self.run(_execute, (where, place, [line]), self._one_by_one)
                answers += found
                whole.add(summary)
            return answers, whole
        row: Any = None
        with suppress(ValueError, RecursionError):
            row = json.loads(lines[0])
        executor = RowExecutor(**self._options, summary=whole)
        why = f"{where} {number}: infrastructure: {self._why_died(status)}"
        return [executor.failed(row, why)], whole

    def _why_died(self, status: int) -> str:
        if status == -signal.SIGPROF:
            return (
                f"timeout: the row took more than {self._deadline:g} s of processor time; "
                "raise --deadline to wait longer"
            )
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"the worker process died ({name}) at this row"


_executor = RowExecutor()  # of this process, and how long a row may take
_deadline = 0.0


def _start(deadline: float, options: dict[str, Any]) -> None:
    global _executor, _deadline
    _executor, _deadline = RowExecutor(**options), deadline
    os.dup2(2, 1)  # what a library prints is no row
    # Python would turn this into an exception; the default action ends the process instead.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def _execute(batch: Batch) -> tuple[list[bytes], Summary]:
    """The answers to the lines of a batch, each under the deadline, and their counts."""
    where, first, lines = batch
    answers: list[bytes] = []
    _executor.summary = Summary()
    for number, line in enumerate(lines, first):
        signal.setitimer(signal.ITIMER_PROF, _deadline)
        answers.append(_executor.line(line, f"{where} {number}"))
        signal.setitimer(signal.ITIMER_PROF, 0)
    return answers, _executor.summary
