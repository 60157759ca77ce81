"""Which tasks a step asks for, the advantages of its rollouts, and what `rl.overlong` does to
answers that were cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")


from assay.task import Score, Task
from configs.schema import GrpoConfig
from rollouts.trajectory import NO_NUMBERS, Trajectory
from train.grpo import metrics_of
from train.model.batch import batch_of, ends_of, rollout_lines, segments_of
from train.model.order import balanced_batch, instead, strata
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
        ({"divide_by_std": True}, [1.0, 0.5, 0.0], [1, 0.5, 0], [1, 0, -1]),  # and by their spread
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
    assert found.adv_PG[0].tolist() == pytest.approx(adv, rel=1e-5)
    assert [s.reward for s in found.scores[0]] == rewards  # the score stays
    learned = [r for s in segments_of(found, [0]) for r in s.rows]
    assert learned == [i for i, value in enumerate(found.adv_PG[0].tolist()) if value]
    logged = metrics_of(found, found, found, config)
    if config.overlong != "keep":
        valid = [u for r, u in zip(rewards, used, strict=True) if r is not None]
        assert logged["reward/used/mean"] == pytest.approx(sum(valid) / len(valid))
        masked = 1 / 3 if config.overlong == "mask" else 0
        assert logged["overlong/masked"] == pytest.approx(masked)
    lines = rollout_lines(found, found, config)
    assert [row["reward"] for row in lines] == rewards
    if config.overlong == "soft":
        assert [row.get("reward_used", 0) for row in lines] == used
    assert [row.get("masked") for row in lines if config.overlong == "mask"] in ([], [0, 0, 1])


def test_shares_of_rollouts_that_ended_without_an_answer() -> None:
    said = replace(rollout(3), text="x")
    late, silent = replace(said, stop="turns"), replace(said, text=" \n")
    broken, gone = (replace(silent, failure=why) for why in (NO_NUMBERS, "endpoint"))
    written = replace(silent, files={"a.txt": b"1"})
    for groups, empty, out_of_turns, nan in (
        ([[said, late], [silent, silent], [broken, gone]], 2 / 4, 1 / 4, 1 / 6),  # failed: no share
        ([[written]], 0, 0, 0),
        ([[silent]], 1, 0, 0),
        ([[broken]], 0, 0, 1),
    ):
        assert list(ends_of(groups).values()) == [empty, out_of_turns, nan]


# --- which rows a step asks for ------------------------------------------------------------------


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


def test_strata_and_what_takes_the_place_of_flat_groups() -> None:
    rows = [*range(20)]
    tasks = [replace(TASK, track="fm"[i < 9], gold={"status": "DK"[i % 2]}) for i in rows]
    assert strata(tasks, "none") == [rows]
    assert balanced_batch(2, strata(tasks, "none"), 4, 3) == step_rows(2, 20, 4, 3)
    assert sorted(strata(tasks, "track")) == [rows[:9], rows[9:]]
    pools, asked = strata(tasks, "status"), {*range(8)}
    assert sorted(pools) == [rows[::2], rows[1::2]]
    found = instead(3, 2, 0, pools, [1, 3, 4], asked)
    assert found == instead(3, 2, 0, pools, [1, 3, 4], asked)
    assert found != instead(3, 2, 1, pools, [1, 3, 4], asked)
    assert not {*found} & asked and [row % 2 for row in found] == [1, 1, 0]
    assert instead(3, 2, 0, pools, [], asked) == []
    assert len(instead(3, 2, 0, pools, [1] * 9, asked)) == 6  # no more of that status
    assert instead(3, 2, 0, pools, [1], {*rows}) == []
