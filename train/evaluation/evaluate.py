"""Score a checkpoint on held-out tasks: greedy answers, and pass@k samples when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewards.cdr.refinement import (
    always_drop,
    always_keep_copy,
    copy_input,
    gold_answer,
)
from rewards.families import score_answer
from rewards.parse import parse_strict
from rewards.seeds import derive_seed
from rewards.task import Answer, Score, Task
from rollouts.engines.torch import TorchEngine, TransformersEngine
from rollouts.environment import Maker
from rollouts.episode import rollout
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling, Trajectory
from rollouts.workshop import run_now
from train.evaluation.stats import pass_at_k

Row = dict[str, Any]
Scorer = Callable[[Task, Trajectory], Score]


def scorer(weights: Mapping[str, Any] | None = None) -> Scorer:
    """(task, trajectory) → Score, with the run's weights by family."""

    def score(task: Task, trajectory: Trajectory) -> Score:
        return score_answer(task, trajectory.answer(), weights)

    return score


def row_of(task: Task, score: Score, output: str, tokens: int) -> Row:
    """One line of results.json: what the tables are computed from. Only refinement tasks have a
    status; `status_gold` and `predicted_status` are None elsewhere."""
    said = parse_strict(output)
    return {
        "task_id": task.id,
        "status_gold": task.gold.get("status"),
        "has_filter": bool(task.meta.get("has_filter")),
        "difficulty": task.meta.get("difficulty"),
        "predicted_status": said.status if "status" in task.gold and said.why == "ok" else None,
        "output": output,
        "tokens": tokens,
        **score.to_json(),
    }


def baselines(
    tasks: Sequence[Task], weights: Mapping[str, Any] | None = None
) -> dict[str, list[Row]]:
    """Rows of the answers that need no model, and of gold itself. They exist for refinement tasks
    only; tasks of other families have no rows here."""
    tasks = [task for task in tasks if task.family == "refinement"]
    if not tasks:
        return {}
    makers = {
        "copy_input": copy_input,
        "always_drop": always_drop,
        "always_keep_copy": always_keep_copy,
        "gold": gold_answer,
    }
    return {
        name: [
            row_of(t, score_answer(t, Answer(make(t.gold)), weights), make(t.gold), 0)
            for t in tasks
        ]
        for name, make in makers.items()
    }


def evaluate(
    tasks: Sequence[Task],
    engine: TorchEngine | TransformersEngine,
    tokenizer: ChatTokenizer,
    score: Scorer,
    *,
    max_new_tokens: int,
    pass_k: int,
    seed: int,
    chunk: int = 128,
    progress: Any = None,
    maker: Maker | None = None,
) -> list[Row]:
    """One greedy row a task; with `pass_k`, also the unbiased pass@1 and pass@k at T = 1."""
    rows: list[Row] = []
    for at in range(0, len(tasks), chunk):
        part = tasks[at : at + chunk]
        greedy = Sampling(max_new_tokens, temperature=0.0)
        groups = run_now(rollout(part, engine, tokenizer, greedy, 1, seed, maker=maker))
        for task, (answer,) in zip(part, groups, strict=True):
            rows.append(row_of(task, score(task, answer), answer.text, sum(answer.loss_mask)))
        if pass_k:
            drawn = Sampling(max_new_tokens, temperature=1.0)
            key = derive_seed(seed, "pass_k")
            step = rollout(part, engine, tokenizer, drawn, pass_k, key, maker=maker)
            samples = run_now(step)
            for row, task, group in zip(rows[at:], part, samples, strict=True):
                right = sum(score(task, t).outcome == 1.0 for t in group)
                row["pass@1"] = pass_at_k(pass_k, right, 1)
                row[f"pass@{pass_k}"] = pass_at_k(pass_k, right, pass_k)
        if progress is not None:
            progress.update(len(part))
    return rows
