"""Which rows a step asks for: in turn, of each stratum alike many, or whole order groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rewards.task import Task, TaskError
from train.model.order import Order, balanced_batch, batch_of, epoch_order, strata


def tasks(*groups: str | None) -> list[Task]:
    return [
        Task(f"t{i}", "refinement", "order_f", "train", [], {"status": "KEEP"}, group=g)
        for i, g in enumerate(groups)
    ]


def test_batch_order_covers_every_row_once_an_epoch() -> None:
    rows = [i for step in range(5) for i in batch_of(step, 20, 8, 7)]
    assert sorted(rows[:20]) == sorted(rows[20:]) == list(range(20))
    assert rows[:20] != rows[20:] and batch_of(2, 20, 8, 7) != batch_of(2, 20, 8, 8)


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
        for task, status, track in zip(tasks(*[None] * 6), statuses, tracks, strict=True)
    ]
    assert strata(some, "none") == [[0, 1, 2, 3, 4, 5]]
    assert sorted(strata(some, "status")) == [[0, 2, 3, 5], [1, 4]]
    assert sorted(strata(some, "track")) == [[0, 4, 5], [1, 2, 3]]
    assert balanced_batch(2, strata(some, "none"), 4, 3) == batch_of(2, 6, 4, 3)


def test_siblings_always_meet_and_every_row_is_seen_once_an_epoch() -> None:
    some = tasks("a", "b", "a", "b", "c", "c", None, "d", "d")
    order, units = Order(some, 4, "group", seed=7), strata(some, "group")
    seen: list[int] = []
    for step in range(40):
        rows = order.of_step(step)
        assert len(rows) <= 4
        assert all(set(u) <= set(rows) or not set(u) & set(rows) for u in units)
        seen += rows
    counts = [seen.count(i) for i in range(9)]
    assert max(counts) - min(counts) <= 1


def test_a_step_depends_on_seed_and_step_alone() -> None:
    some = tasks("a", "a", "b", "b", "c", "c")
    for balance in ("group", "none", "status"):
        order = Order(some, 4, balance, 1)
        first = [order.of_step(s) for s in range(6)]
        fresh = [Order(some, 4, balance, 1).of_step(s) for s in (5, 4, 3, 2, 1, 0)]
        assert first == fresh[::-1] == [order.of_step(s) for s in range(6)]
        assert first != [Order(some, 4, balance, 2).of_step(s) for s in range(6)]


def test_a_group_larger_than_a_batch_is_refused() -> None:
    with pytest.raises(TaskError, match="prompts_per_step=2"):
        Order(tasks("a", "a", "a"), 2, "group", 0)


def test_an_epoch_is_shuffled_once_however_many_steps_it_has() -> None:
    epoch_order.cache_clear()
    seen = [row for step in range(50) for row in batch_of(step, 1000, 30, 3)]
    assert epoch_order.cache_info().misses == 2 and sorted(seen[:1000]) == list(range(1000))
