"""Let an engine answer tasks: the one function behind RL, rejection sampling and evaluation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rewards.seeds import derive_seed
from rewards.task import Task
from rollouts.engine import Engine
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling, Trajectory


async def rollout(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    sampling: Sampling,
    n: int,
    run_seed: int,
    turn: int = 0,
) -> list[list[Trajectory]]:
    """`n` single-turn trajectories a task. Sample j of a task draws from (run, task, j, turn)."""
    started = time.perf_counter()
    prompts = [tokenizer.prompt(task.prompt) for task in tasks]
    seeds = [derive_seed(run_seed, task.id, turn) for task in tasks]
    groups = await engine.generate(prompts, sampling, n, seeds)
    wall = (time.perf_counter() - started) / max(len(tasks) * n, 1)
    return [
        [
            trajectory(task.id, j, prompt, completion, tokenizer, seed, wall)
            for j, completion in enumerate(group)
        ]
        for task, prompt, group, seed in zip(tasks, prompts, groups, seeds, strict=True)
    ]


def trajectory(
    task_id: str,
    sample: int,
    prompt: list[int],
    completion: Completion,
    tokenizer: ChatTokenizer,
    seed: int,
    wall_s: float,
) -> Trajectory:
    """Prompt and completion as one id sequence; the mask covers the sampled tokens alone."""
    zeros = [0.0] * len(prompt)
    return Trajectory(
        task_id=task_id,
        sample=sample,
        ids=prompt + completion.ids,
        loss_mask=[0] * len(prompt) + [1] * len(completion.ids),
        logprobs=zeros + completion.logprobs,
        sampling_logprobs=zeros + completion.sampling_logprobs,
        stop=completion.stop,
        text=tokenizer.text(completion.ids),
        seed=seed,
        wall_s=wall_s,
    )


def completion_ids(trajectory: Trajectory) -> tuple[list[int], list[int]]:
    """(prompt ids, sampled ids) of a single-turn trajectory."""
    start = trajectory.loss_mask.index(1) if 1 in trajectory.loss_mask else len(trajectory.ids)
    return trajectory.ids[:start], trajectory.ids[start:]


def to_json(trajectory: Trajectory, score: Any, task: Task) -> dict[str, Any]:
    """One line of a rollouts file: what was asked, what came back, and how it scored."""
    return {
        "task_id": trajectory.task_id,
        "sample": trajectory.sample,
        "text": trajectory.text,
        "stop": trajectory.stop,
        "tokens": sum(trajectory.loss_mask),
        "seed": trajectory.seed,
        **score.to_json(),
        "track": task.track,
        "ids": trajectory.ids,
        "loss_mask": trajectory.loss_mask,
        "logprobs": [round(x, 6) for x in trajectory.logprobs],
        "sampling_logprobs": [round(x, 6) for x in trajectory.sampling_logprobs],
    }
