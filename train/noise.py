"""Rewards that are wrong on purpose (`noise.share`): what a wrong verifier does to training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from assay.seeds import derive_seed
from assay.task import Score, Task
from configs.noise import NoiseConfig
from rollouts.trajectory import Trajectory

if TYPE_CHECKING:
    from train.grpo import Scorer


def with_noise(score: Scorer, noise: NoiseConfig, seed: int) -> Scorer:
    """The scorer with a share of its rewards flipped to 1 − reward; itself without noise.

    Outcomes stay exact, and so do rollouts that have none. Every score's parts have the exact
    reward as `exact_reward`. Draws depend on the run's `seed` and the task, and by rollout on the
    rollout's own seed too, so a resumed run draws the same.
    """
    if not noise.share:
        return score

    def drawn(task: Task, rollout: Trajectory) -> bool:
        parts = (task.id,) if noise.by == "task" else (task.id, rollout.sample, rollout.seed)
        return Random(derive_seed(seed, "reward noise", *parts)).random() < noise.share

    def noisy(tasks: Sequence[Task], groups: list[list[Trajectory]]) -> list[list[Score]]:
        exact = score(tasks, groups)
        return [
            [
                wrong(found, flip=drawn(task, rollout))
                for rollout, found in zip(group, row, strict=True)
            ]
            for task, group, row in zip(tasks, groups, exact, strict=True)
        ]

    return noisy


def wrong(score: Score, *, flip: bool) -> Score:
    """The score as a wrong verifier gives it; one without a reward as it is."""
    if score.reward is None:
        return score
    parts = {**score.parts, "exact_reward": score.reward}
    if not flip:
        return replace(score, parts=parts)
    return replace(score, reward=1 - score.reward, parts=parts, why=f"{score.why}; reward flipped")
