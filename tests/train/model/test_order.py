"""Batches of whole order groups."""

from __future__ import annotations

import pytest

from rewards.task import Task, TaskError
from train.model.order import grouped_batch, rows_of_step, strata


def tasks(*groups: str | None) -> list[Task]:
    return [
        Task(f"t{i}", "refinement", "order_f", "train", [], {"status": "KEEP"}, group=g)
        for i, g in enumerate(groups)
    ]


def test_siblings_always_meet_and_every_row_is_seen_once_an_epoch() -> None:
    units = strata(tasks("a", "b", "a", "b", "c", "c", None, "d", "d"), "group")
    seen: list[int] = []
    for step in range(40):
        rows = grouped_batch(step, units, 4, seed=7)
        assert len(rows) <= 4
        assert all(set(u) <= set(rows) or not set(u) & set(rows) for u in units)
        seen += rows
    counts = [seen.count(i) for i in range(9)]
    assert max(counts) - min(counts) <= 1


def test_a_step_depends_on_seed_and_step_alone() -> None:
    units = strata(tasks("a", "a", "b", "b", "c", "c"), "group")
    first = [rows_of_step(s, units, 4, 1, "group") for s in range(6)]
    assert first == [rows_of_step(s, units, 4, 1, "group") for s in range(6)]
    assert first != [rows_of_step(s, units, 4, 2, "group") for s in range(6)]


def test_a_group_larger_than_a_batch_is_refused() -> None:
    with pytest.raises(TaskError, match="prompts_per_step=2"):
        grouped_batch(0, strata(tasks("a", "a", "a"), "group"), 2, 0)
