"""Prompts that take the places of flat groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.task import Task
from configs.training import GrpoConfig
from train.model.order import instead, strata

CONFIG = GrpoConfig(prompts_per_step=8, mini_batch=8, rollouts_per_prompt=8, steps=30)


def test_what_takes_the_place_of_flat_groups() -> None:
    found = [
        Task(f"t{i}", "toy", "x", "train", [], {"status": "KEEP" if i % 2 else "DROP"})
        for i in range(20)
    ]
    pools, asked = strata(found, "status"), {*range(8)}
    rows = instead(3, 2, 0, pools, [1, 3, 4], asked)
    assert (
        rows
        == instead(3, 2, 0, pools, [1, 3, 4], asked)
        != instead(3, 2, 1, pools, [1, 3, 4], asked)
    )
    assert not {*rows} & asked and len({*rows}) == 3
    assert [found[row].gold["status"] for row in rows] == ["KEEP", "KEEP", "DROP"]
    assert instead(3, 2, 0, pools, [], asked) == []
    assert len(instead(3, 2, 0, pools, [1] * 9, asked)) == 6  # no more of that status
    assert instead(3, 2, 0, pools, [1], {*range(20)}) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dynamic_sampling": -1}, "dynamic_sampling=-1 is too small"),
        ({"max_new_tokens": 8, "overlong_buffer": 9}, "longer than an answer may be"),
    ],
)
def test_settings_that_cannot_go_together(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(CONFIG, **changes)  # type: ignore[arg-type]


def test_a_run_whose_rate_falls_keeps_its_end() -> None:
    assert GrpoConfig().also_locked() == ()
    assert replace(CONFIG, schedule="cosine").also_locked() == ("steps",)
