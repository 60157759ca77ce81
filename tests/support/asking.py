"""Episodes of tasks with something that is asked for one message at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.task import Task
from rollouts.environment import Budget, Maker
from rollouts.sampler import Asked, Each, Plan, sample_side_by_side
from rollouts.trajectory import Sampling, Trajectory


async def chat_rollout(
    tasks: Sequence[Task],
    engine: Any,
    sampling: Sampling,
    n: int,
    seed: int,
    *,
    maker: Maker | None = None,
    budget: Budget | None = None,
    in_flight: int = 16,
) -> list[list[Trajectory]]:
    """`n` trajectories a task, in order."""
    plan = Plan(sampling.max_new_tokens, budget or Budget())
    asked = Asked(tasks, lambda task: plan, sampling, n, seed, maker)
    found: dict[tuple[int, int], Trajectory] = {}
    where = {id(task): i for i, task in enumerate(tasks)}

    def keep(task: Task, run: Trajectory) -> None:
        found[where[id(task)], run.sample] = run

    await sample_side_by_side(asked, Each(engine, None, in_flight), keep)
    return [[found[i, j] for j in range(n)] for i in range(len(tasks))]
