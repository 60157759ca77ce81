"""Freed memory is kept or given back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


FREED = """
import resource, sys
from train import memory
memory.available_memory = lambda: int(sys.argv[1])
memory.choose_allocation()
import torch
heap = memory.Heap()
def faults():
    for _ in range(20):
        torch.ones(4 << 20, dtype=torch.uint8)
    heap.settle()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
faults(), faults()
print(faults() - faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_kept_blocks_are_not_asked_of_the_system_again() -> None:
    """4 MiB are 1,024 pages, each a page fault where it is new."""
    pytest.importorskip("torch")
    for left, most, least in ((9 * GB, 2_000, 0), (7 * GB, 10**6, 20_000)):
        run = subprocess.run(
            [sys.executable, "-c", FREED, str(left)], capture_output=True, text=True, check=True
        )
        assert least <= -int(run.stdout) <= most


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


def test_memory_in_use_is_told(tmp_path: Path) -> None:
    assert memory.resident_memory(tmp_path) is None
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "statm").write_text("900 25 3 1 0 9 0\n")
    assert memory.resident_memory(tmp_path) == 25 * os.sysconf("SC_PAGE_SIZE")
