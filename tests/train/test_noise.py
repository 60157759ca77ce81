"""Rewards that are wrong on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import Score, Task
from configs.loader import load
from configs.noise import NoiseConfig
from configs.schema import GrpoRunConfig
from rollouts.trajectory import Trajectory
from train.noise import with_noise

TASKS = [Task(f"t{i}", "toy", "x", "train", [], {}) for i in range(120)]
SCORES = [Score(1.0, 1.0), Score(0.0, 0.25, {"text": 0.5}, "wrong text"), Score(None, None)]


def groups(step: int) -> list[list[Trajectory]]:
    return [
        [Trajectory(t.id, g, [], [], [], [], "eos", "", 1000 * step + g) for g in range(3)]
        for t in TASKS
    ]


def exact(tasks: Any, rollouts: Any) -> list[list[Score]]:
    return [SCORES for _ in tasks]


def test_a_flip_changes_the_reward_and_nothing_else() -> None:
    every = with_noise(exact, NoiseConfig(share=1.0), 0)(TASKS, groups(0))
    right, wrong, lost = every[0]
    assert (right.outcome, right.reward, right.parts) == (1.0, 0.0, {"exact_reward": 1.0})
    assert (wrong.outcome, wrong.reward) == (0.0, 0.75)
    assert wrong.parts == {"text": 0.5, "exact_reward": 0.25}
    assert wrong.why == "wrong text; reward flipped"
    assert lost == SCORES[2]
    assert with_noise(exact, NoiseConfig(), 0) is exact


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.sampled_from(["rollout", "task"]), st.floats(0.1, 0.9))
def test_flips_are_drawn_once_for_a_run(seed: int, by: Any, share: float) -> None:
    score = with_noise(exact, NoiseConfig(share, by), seed)

    def flipped(tasks: Any, rollouts: Any) -> list[list[bool]]:
        return [["flipped" in s.why for s in row[:2]] for row in score(tasks, rollouts)]

    first, later = flipped(TASKS, groups(1)), flipped(TASKS, groups(2))
    assert first == flipped(TASKS, groups(1)) and (first == later) == (by == "task")
    assert first[7:9] == flipped(TASKS[7:9], groups(1)[7:9])  # whatever else is in the step
    assert all(a == b for a, b in first) == (by == "task")
    assert abs(sum(map(sum, first)) / (2 * len(TASKS)) - share) < 0.25


def test_what_chooses_by_exact_outcomes_is_refused() -> None:
    config = load(GrpoRunConfig, overrides=["noise.share=0.3", "noise.by=task"])
    assert config.noise == NoiseConfig(0.3, "task")
    with pytest.raises(ValueError, match="chooses tasks by exact"):
        replace(config, rl=replace(config.rl, curriculum="pass_rate"))
    with pytest.raises(ValueError, match="share"):
        NoiseConfig(share=1.5)
