"""Advantages of a step's rollouts, and what `rl.overlong` does to answers that were cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from assay.task import Score, Task  # noqa: E402
from configs.schema import GrpoConfig  # noqa: E402
from rollouts.trajectory import Trajectory  # noqa: E402
from train.model.batch import batch_of, joined, part, segments_of  # noqa: E402
from train.model.loss import overlong_penalty  # noqa: E402

CONFIG = GrpoConfig(max_new_tokens=100, max_length=400, rollouts_per_prompt=3)
TASK = Task("t", "toy", "x", "train", [], {})


def rollout(tokens: int, stop: Any = "eos", prompt: int = 5) -> Trajectory:
    mask = [0] * prompt + [1] * tokens
    zeros = [0.0] * len(mask)
    return Trajectory("t", 0, [7] * len(mask), mask, zeros, zeros, stop, "", 0)


def batch(config: GrpoConfig, rollouts: list[Trajectory], rewards: list[float | None], **task: Any):
    scores = [Score(None if r is None else float(r > 0.5), r) for r in rewards]
    return batch_of([replace(TASK, **task)], [rollouts], [scores], config, [4])


ROLLOUTS = [rollout(10), rollout(90), rollout(100, "length")]


def test_keep_is_the_reward_less_the_mean() -> None:
    found = batch(CONFIG, ROLLOUTS, [1.0, 0.5, 0.0])
    assert found.adv_PG.tolist() == [[0.5, 0.0, -0.5]]
    assert found.used_PG.tolist() == [[1.0, 0.5, 0.0]] and found.rows == [4]


def test_mask_takes_the_advantage_and_leaves_the_mean() -> None:
    found = batch(replace(CONFIG, overlong="mask"), ROLLOUTS, [1.0, 0.5, 0.0])
    assert found.adv_PG.tolist() == [[0.5, 0.0, 0.0]]
    assert [r for s in segments_of(found, [0]) for r in s.rows] == [0]
    assert [s.reward for s in found.scores[0]] == [1.0, 0.5, 0.0]  # the score stays


def test_soft_takes_more_the_nearer_the_limit() -> None:
    config = replace(CONFIG, overlong="soft", overlong_buffer=40)
    found = batch(config, ROLLOUTS, [1.0, 1.0, 0.0])
    assert found.used_PG.tolist() == [[1.0, 0.25, -1.0]]  # 90 is 30 of 40 into the buffer
    mean = 0.25 / 3
    assert found.adv_PG[0].tolist() == pytest.approx([1 - mean, 0.25 - mean, -1 - mean])
    assert [(s.outcome, s.reward) for s in found.scores[0]] == [(1, 1), (1, 1), (0, 0)]
    auto = batch(replace(config, overlong_buffer=0), ROLLOUTS, [1.0, 1.0, 0.0])
    assert auto.used_PG.tolist() == [[1.0, 0.5, -1.0]]  # a fifth of 100 tokens


def test_soft_counts_a_whole_episode_and_no_failure() -> None:
    config = replace(CONFIG, overlong="soft", overlong_buffer=100)
    long = [rollout(300, prompt=50), rollout(10, "length"), rollout(10)]
    found = batch(config, long, [1.0, 1.0, None], tools=("t",))
    assert found.used_PG.tolist() == [[0.5, 0.0, 0.0]]  # 350 of 400; cut off by a message's limit
    assert found.adv_PG.tolist() == [[0.25, -0.25, 0.0]]


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 500))
def test_the_penalty_never_pays_and_grows_with_length(most: int, buffer: int, used: int) -> None:
    buffer, used = min(buffer, most), min(used, most)
    lengths = torch.tensor([used, most])
    less, all_of_it = overlong_penalty(lengths, torch.tensor(most), torch.tensor(buffer)).tolist()
    assert -1 <= less <= 0 and all_of_it == -1
    assert (less == 0) == (used <= most - buffer)


def test_groups_are_joined_and_taken_apart() -> None:
    one = batch(CONFIG, ROLLOUTS, [1.0, 0.5, 0.0])
    other = replace(batch(CONFIG, ROLLOUTS, [0.2, 0.2, None]), rows=[9])
    both = joined(one, other)
    assert both.rows == [4, 9] and both.adv_PG.shape == (2, 3) and len(both.groups) == 2
    last = part(both, [1])
    assert last.rows == [9] and last.valid_PG.tolist() == [[True, True, False]]
    assert last.scores == other.scores and torch.equal(last.adv_PG, other.adv_PG)
