"""Which rows a step asks for: in turn, or of each stratum alike many."""

from __future__ import annotations

from dataclasses import replace

from assay.task import Task
from train.model.order import balanced_batch, batch_of, epoch_order, instead, strata


def tasks(count: int) -> list[Task]:
    return [
        Task(f"t{i}", "refinement", "order_" + "fm"[i % 2], "train", [], {"status": "KEEP"})
        for i in range(count)
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
        for task, status, track in zip(tasks(6), statuses, tracks, strict=True)
    ]
    assert strata(some, "none") == [[0, 1, 2, 3, 4, 5]]
    assert sorted(strata(some, "status")) == [[0, 2, 3, 5], [1, 4]]
    assert sorted(strata(some, "track")) == [[0, 4, 5], [1, 2, 3]]
    assert balanced_batch(2, strata(some, "none"), 4, 3) == batch_of(2, 6, 4, 3)


def test_an_epoch_is_shuffled_once_however_many_steps_it_has() -> None:
    epoch_order.cache_clear()
    seen = [row for step in range(50) for row in batch_of(step, 1000, 30, 3)]
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
