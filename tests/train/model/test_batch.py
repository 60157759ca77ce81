"""Which tasks a step asks for, the advantages of its rollouts, and what `rl.overlong` does to
answers that were cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.task import Score, Task
from configs.schema import GrpoConfig
from rollouts.trajectory import NO_NUMBERS, Trajectory
from train.model.batch import batch_of, ends_of, joined, part, rollout_lines, segments_of
from train.model.loss import overlong_penalty
from train.model.order import balanced_batch, epoch_order, instead, strata
from train.model.order import batch_of as step_rows

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


EPISODES = [rollout(300, prompt=50), rollout(10, "length"), rollout(10)]
MEAN = 0.25 / 3
SOFT = {"overlong": "soft", "overlong_buffer": 40}


@pytest.mark.parametrize(
    ("changes", "rewards", "used", "adv"),
    [
        ({}, [1.0, 0.5, 0.0], [1, 0.5, 0], [0.5, 0, -0.5]),  # the reward less the mean
        ({"overlong": "mask"}, [1.0, 0.5, 0.0], [1, 0.5, 0], [0.5, 0, 0]),
        # 90 is 30 of 40 into the buffer; and of a fifth of 100 tokens
        (SOFT, [1.0, 1.0, 0.0], [1, 0.25, -1], [1 - MEAN, 0.25 - MEAN, -1 - MEAN]),
        (SOFT | {"overlong_buffer": 0}, [1.0, 1.0, 0.0], [1, 0.5, -1], [5 / 6, 1 / 3, -7 / 6]),
        # 350 of 400 of a whole episode; cut off by a message's limit; a failure
        (SOFT | {"overlong_buffer": 100}, [1.0, 1.0, None], [0.5, 0, 0], [0.25, -0.25, 0]),
    ],
)
def test_what_each_rollout_teaches(
    changes: dict[str, Any], rewards: list[float | None], used: list[float], adv: list[float]
) -> None:
    episode: Any = {"tools": ("t",)} if None in rewards else {}
    rollouts = EPISODES if episode else ROLLOUTS
    config = replace(CONFIG, **changes)
    found = batch(config, rollouts, rewards, **episode)
    assert found.used_PG.tolist() == [used] and found.rows == [4]
    assert found.adv_PG[0].tolist() == pytest.approx(adv)
    assert [s.reward for s in found.scores[0]] == rewards  # the score stays
    learned = [r for s in segments_of(found, [0]) for r in s.rows]
    assert learned == [i for i, value in enumerate(found.adv_PG[0].tolist()) if value]
    # a line of the log says what makes the difference between its score and what was learned
    lines, kept = rollout_lines(found, found, config), ("reward_used", "masked", "learned")
    assert [row["reward"] for row in lines] == rewards
    said = [[row[name] for name in kept if name in row] for row in lines]
    if config.overlong == "soft":
        assert said == [[] if r is None else [u] for r, u in zip(rewards, used, strict=True)]
    else:
        assert said == ([[False], [False], [True]] if changes else [[]] * 3)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 500))
def test_the_penalty_never_pays_and_grows_with_length(most: int, buffer: int, used: int) -> None:
    buffer, used = min(buffer, most), min(used, most)
    lengths = torch.tensor([used, most])
    less, all_of_it = overlong_penalty(lengths, torch.tensor(most), torch.tensor(buffer)).tolist()
    assert -1 <= less <= 0 and all_of_it == -1
    assert (less == 0) == (used <= most - buffer)


def test_groups_are_joined_and_taken_apart() -> None:
    one = batch(CONFIG, list(ROLLOUTS), [1.0, 0.5, 0.0])
    other = replace(batch(CONFIG, ROLLOUTS, [0.2, 0.2, None]), rows=[9])
    both = joined(one, other)
    assert both.rows == [4, 9] and both.adv_PG.shape == (2, 3) and len(both.groups) == 2
    last = part(both, [1])
    assert last.rows == [9] and last.valid_PG.tolist() == [[True, True, False]]
    assert last.scores == other.scores and torch.equal(last.adv_PG, other.adv_PG)
    lines = rollout_lines(both, last, replace(CONFIG, dynamic_sampling=True))
    assert [row["learned"] for row in lines] == [False] * 3 + [True] * 3


def test_shares_of_rollouts_that_ended_without_an_answer() -> None:
    said = replace(rollout(3), text="x")
    late, silent = replace(said, stop="turns"), replace(said, text=" \n")
    broken = replace(silent, failure=NO_NUMBERS)
    gone = replace(silent, failure="endpoint")
    assert ends_of([[said, late], [silent, silent], [broken, gone]]) == {
        "response/empty": 2 / 4,  # of those that did not fail
        "response/out_of_turns": 1 / 4,
        "response/nan": 1 / 6,
    }
    written = replace(silent, files={"a.txt": b"1"})
    assert set(ends_of([[written]]).values()) == set(ends_of([]).values()) == {0.0}
    alone = [[silent]], [[broken]]
    assert [list(ends_of(one).values()) for one in alone] == [[1, 0, 0], [0, 0, 1]]


# --- which rows a step asks for ------------------------------------------------------------------


def tasks(count: int) -> list[Task]:
    return [
        Task(f"t{i}", "refinement", "order_" + "fm"[i % 2], "train", [], {"status": "KEEP"})
        for i in range(count)
    ]


def test_batch_order_covers_every_row_once_an_epoch() -> None:
    rows = [i for step in range(5) for i in step_rows(step, 20, 8, 7)]
    assert sorted(rows[:20]) == sorted(rows[20:]) == list(range(20))
    assert rows[:20] != rows[20:] and step_rows(2, 20, 8, 7) != step_rows(2, 20, 8, 8)


def test_balanced_batches_take_turns_and_cover_every_row() -> None:
    groups = [[0, 1, 2, 3], list(range(4, 12))]
    batches = [balanced_batch(step, groups, 8, 7) for step in range(4)]
    assert all(sum(row < 4 for row in batch) == 4 for batch in batches)
    large = [row for batch in batches[:2] for row in batch if row >= 4]
    assert sorted(large) == groups[1] and large != groups[1]
    assert sorted(row for row in batches[0] if row < 4) == groups[0]
    assert balanced_batch(3, groups, 8, 7) == batches[3] != balanced_batch(3, groups, 8, 8)


def test_strata_of_status_and_track() -> None:
    statuses, tracks = ["KEEP", "DROP", "KEEP", "KEEP", "DROP", "KEEP"], "abbbaa"
    some = [
        replace(task, gold={"status": status}, track=track)
        for task, status, track in zip(tasks(6), statuses, tracks, strict=True)
    ]
    assert strata(some, "none") == [[0, 1, 2, 3, 4, 5]]
    assert sorted(strata(some, "status")) == [[0, 2, 3, 5], [1, 4]]
    assert sorted(strata(some, "track")) == [[0, 4, 5], [1, 2, 3]]
    assert balanced_batch(2, strata(some, "none"), 4, 3) == step_rows(2, 6, 4, 3)


def test_an_epoch_is_shuffled_once_however_many_steps_it_has() -> None:
    epoch_order.cache_clear()
    seen = [row for step in range(50) for row in step_rows(step, 1000, 30, 3)]
    assert epoch_order.cache_info().misses == 2 and sorted(seen[:1000]) == list(range(1000))


def test_what_takes_the_place_of_flat_groups() -> None:
    found = [
        Task(f"t{i}", "toy", "x", "train", [], {"status": "KEEP" if i % 2 else "DROP"})
        for i in range(20)
    ]
    pools, asked = strata(found, "status"), {*range(8)}
    rows = instead(3, 2, 0, pools, [1, 3, 4], asked)
    assert rows == instead(3, 2, 0, pools, [1, 3, 4], asked)
    assert rows != instead(3, 2, 1, pools, [1, 3, 4], asked)
    assert not {*rows} & asked and len({*rows}) == 3
    assert [found[row].gold["status"] for row in rows] == ["KEEP", "KEEP", "DROP"]
    assert instead(3, 2, 0, pools, [], asked) == []
    assert len(instead(3, 2, 0, pools, [1] * 9, asked)) == 6  # no more of that status
    assert instead(3, 2, 0, pools, [1], {*range(20)}) == []
