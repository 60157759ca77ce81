"""Evaluation as a function: answers of an engine to tasks, as rows. For runs that train.

`assay eval` adds opening, a journal and files (train/evaluation/run.py); rows and scores are the
same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.console import Progress
from assay.seeds import derive_seed
from assay.task import RIGHT, Task
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Maker
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Asked, Batch, Plan, sample
from rollouts.trajectory import Sampling, Trajectory
from train.evaluation.rows import Row, Scorer, baseline_rows, row_of, scorer
from train.evaluation.stats import pass_at_k

__all__ = ["Row", "Scorer", "baseline_rows", "evaluate_tasks", "scorer"]


MOST_CLASSES = 3


class Tally:
    """Counts rows as they come; `text` says what they come to so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()
        self._scored, self._rows, self._tokens = 0, 0, 0
        self._outcome = self._reward = 0.0
        self._said: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows += 1
        self._tokens += int(row.get("tokens_out") or 0)
        if row["outcome"] is not None:
            self._scored += 1
            self._outcome += float(row["outcome"])
            self._reward += float(row["reward"])
        if row.get("said"):
            self._said[str(row["said"])] += 1

    def text(self) -> str:
        """`outcome 0.41, reward 0.55, KEEP 61%, DROP 30%, 118 tok/s`; failed answers count in no
        mean."""
        parts: list[str] = []
        if self._scored:
            parts.append(f"outcome {self._outcome / self._scored:.2f}")
            parts.append(f"reward {self._reward / self._scored:.2f}")
        for name, count in self._said.most_common(MOST_CLASSES):
            parts.append(f"{name} {count / self._rows:.0%}")
        if lost := self._rows - self._scored:
            parts.append(f"no outcome {lost}")
        seconds = self._clock() - self._start
        if self._tokens and seconds > 0:
            parts.append(f"{self._tokens / seconds:.0f} tok/s")
        return ", ".join(parts)


def evaluate_tasks(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    score: Scorer,
    *,
    max_new_tokens: int,
    pass_k: int = 0,
    seed: int = 0,
    chunk: int = 128,
    progress: Progress | None = None,
    maker: Maker | None = None,
    budget: Budget | None = None,
) -> list[Row]:
    """One greedy row a task; with `pass_k`, also the unbiased pass@1 and pass@k at T = 1. `chunk`
    answers are decoded side by side."""
    rows: list[Row] = []
    tally, model = Tally(), Batch(engine, tokenizer, chunk)
    plan = Plan(max_new_tokens, budget or Budget())

    def asked(temperature: float, n: int, key: int) -> Asked:
        drawn = Sampling(max_new_tokens, temperature)
        return Asked(tasks, lambda task: plan, drawn, n, key, maker)

    def keep(task: Task, run: Trajectory) -> None:
        rows.append(row_of(task, run, score(task, run)))
        tally.add(rows[-1])
        if progress is not None:
            progress.note(tally.text())
            progress.add(1)

    sample(asked(0.0, 1, seed), model, keep)
    if pass_k:
        outcomes: list[float | None] = []
        several = asked(1.0, pass_k, derive_seed(seed, "pass_k"))
        sample(several, model, lambda task, run: outcomes.append(score(task, run).outcome))
        for at, row in enumerate(rows):
            some = outcomes[at * pass_k : (at + 1) * pass_k]
            right = sum(o is not None and o >= RIGHT for o in some)
            row["pass@1"] = pass_at_k(pass_k, right, 1)
            row[f"pass@{pass_k}"] = pass_at_k(pass_k, right, pass_k)
    return rows
