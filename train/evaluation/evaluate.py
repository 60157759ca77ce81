"""Evaluation as a function: answers of an engine to tasks, as rows. For runs that train.

`assay eval` adds opening, a journal and files (train/evaluation/run.py); rows and scores are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.console import Progress
from assay.seeds import derive_seed
from assay.task import RIGHT, Task
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Maker
from rollouts.prompts import ChatTokenizer
from rollouts.sampler import Asked, Batch, Plan, sample
from rollouts.trajectory import Sampling, Trajectory
from train.evaluation.live import Tally
from train.evaluation.rows import Row, Scorer, baseline_rows, row_of, scorer
from train.evaluation.stats import pass_at_k

__all__ = ["Row", "Scorer", "baseline_rows", "evaluate_tasks", "scorer"]


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
