"""Signs of a farmed reward: they are raised by what they name, and by nothing that is steady."""

from __future__ import annotations

from random import Random

import pytest

from train.run.hacking import StepMeans, diverging, length_change, repeating, signs


def run(steps: int, reward: float, outcome: float, seed: int = 0, length: float = 100) -> list:
    """Steps whose reward and outcome rise by so much in all, with noise."""
    rng = Random(seed)
    return [
        StepMeans(
            0.3 + reward * i / steps + rng.gauss(0, 0.02),
            0.2 + outcome * i / steps + rng.gauss(0, 0.02),
            length + rng.gauss(0, 5),
        )
        for i in range(steps)
    ]


@pytest.mark.parametrize(
    ("reward", "outcome", "raised"),
    [(0.3, 0.0, True), (0.3, -0.2, True), (0.3, 0.3, False), (0.3, 0.15, False), (0.0, 0.0, False)],
)
def test_a_reward_that_the_outcome_does_not_follow(
    reward: float, outcome: float, raised: bool
) -> None:
    assert bool(diverging(run(60, reward, outcome))) is raised


def test_a_steady_run_raises_nothing() -> None:
    false = [seed for seed in range(50) for n in (21, 40, 80) if signs(run(n, 0, 0, seed), [])]
    assert len(false) <= 2


def test_a_short_run_is_not_judged() -> None:
    assert diverging(run(19, 0.9, 0.0)) == ""
    assert length_change(run(10, 0, 0)) == ""


def test_one_answer_for_many_tasks() -> None:
    different = [(f"t{i}", f"answer {i}") for i in range(16)]
    assert repeating(different) == ""
    said = repeating([*different[:8], *((f"t{i}", " THE  Same") for i in range(8, 16))])
    assert "8 of 16 tasks" in said and "'the same'" in said
    # four rollouts of one task may well agree
    assert repeating([(f"t{i // 4}", f"{i // 4}") for i in range(64)]) == ""
    assert repeating([(f"t{i}", "") for i in range(16)]) != ""


def test_tasks_that_share_their_gold_may_share_answers() -> None:
    half = [(f"t{i}", "yes" if i % 2 else f"{i}") for i in range(40)]
    assert repeating(half, expected=0.5) == ""
    assert repeating(half, expected=0.1) != ""
    assert repeating(half[:6], expected=0.0) == ""


@pytest.mark.parametrize(
    ("length", "word"), [(100, ""), (130, ""), (210, "longer"), (1000, "longer"), (20, "shorter")]
)
def test_a_sudden_change_of_length(length: float, word: str) -> None:
    said = length_change([*run(20, 0, 0), StepMeans(0.3, 0.2, length)])
    assert (word in said) if word else said == ""


def test_lengths_that_swing_raise_no_sign() -> None:
    steps = [StepMeans(0, 0, 50 if i % 2 else 200) for i in range(30)]
    assert length_change([*steps, StepMeans(0, 0, 200)]) == ""


def test_no_answers_at_all_and_zero_lengths() -> None:
    assert signs([], []) == []
    assert "longer" in length_change([*[StepMeans(0, 0, 0)] * 11, StepMeans(0, 0, 50)])
