"""Evaluation as a function: answers of an engine to tasks, as rows. For runs that train.

`assay eval` adds opening, a journal and files (train/evaluation/run.py); rows and scores are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rewards.progress import Progress
from rewards.seeds import derive_seed
from rewards.task import RIGHT, Task
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Maker
from rollouts.episode import rollout
from rollouts.now import run_now
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling
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
    """One greedy row a task; with `pass_k`, also the unbiased pass@1 and pass@k at T = 1."""
    rows: list[Row] = []
    tally = Tally()
    for at in range(0, len(tasks), chunk):
        part = tasks[at : at + chunk]

        def ask(sampling: Sampling, n: int, key: int, part: Sequence[Task] = part) -> Any:
            return run_now(
                rollout(part, engine, tokenizer, sampling, n, key, maker=maker, budget=budget)
            )

        greedy = Sampling(max_new_tokens, temperature=0.0)
        for task, (answer,) in zip(part, ask(greedy, 1, seed), strict=True):
            rows.append(row_of(task, answer, score(task, answer)))
            tally.add(rows[-1])
        if pass_k:
            drawn = Sampling(max_new_tokens, temperature=1.0)
            samples = ask(drawn, pass_k, derive_seed(seed, "pass_k"))
            for row, task, group in zip(rows[at:], part, samples, strict=True):
                outcomes = [score(task, run).outcome for run in group]
                right = sum(o is not None and o >= RIGHT for o in outcomes)
                row["pass@1"] = pass_at_k(pass_k, right, 1)
                row[f"pass@{pass_k}"] = pass_at_k(pass_k, right, pass_k)
        if progress is not None:
            progress.note(tally.text())
            progress.add(len(part))
    return rows
