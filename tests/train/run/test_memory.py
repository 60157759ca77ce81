"""Freed memory is kept or given back."""

from __future__ import annotations

import pytest

from train import memory

GB = 1 << 30


@pytest.mark.parametrize(("left", "kept"), [(None, True), (9 * GB, True), (7 * GB, False)])
def test_freed_blocks_are_kept_unless_memory_is_short(
    left: int | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: left)
    asked: list[dict[int, int]] = []
    monkeypatch.setattr(memory, "_set_malloc", asked.append)
    memory.choose_allocation()
    assert [sorted(values.values()) for values in asked] == [[32 << 20, GB] if kept else [2 << 20]]


def test_a_heap_is_given_back_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    resident, returned = [0], list[int]()
    monkeypatch.setattr(memory, "memory_is_short", lambda: False)
    monkeypatch.setattr(memory, "resident_memory", lambda: resident[0])

    def give_back() -> None:
        returned.append(resident[0])
        resident[0] = min(resident[0], 3 * GB)

    monkeypatch.setattr(memory, "give_back_memory", give_back)
    heap = memory.Heap()
    most = 2 * GB + memory.MORE
    for now in (2 * GB, most, most + 1, GB, most, most + 2):
        resident[0] = now
        heap.settle()
    assert returned == [most + 1, most + 2]
