"""The attack table (80 published rows, 48 of our own) at every level, as root and as a user."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attacks import ROWS
from harness import needs_root, rows_on, usable

from rollouts.sandbox import jail
from rollouts.sandbox.model import Config, Level
from rollouts.sandbox.pool import Pool

# What `confined` leaves open: that the gold exists, and its size (Landlock does not cover stat).
OPEN_CONFINED = {3}
# `limits` is a filter and rlimits only; these rows are the file tree, memory sums and /proc.
OPEN_LIMITS = {1, 2, 3, 4, 5, 6, 29, 30, 32, 46, 47, 48, 49, 50, 56, 68, 72, 73, 103, 105, 113, 128}
AS = ["user"] if jail.is_root() else []


def not_stopped(rows: dict[int, dict[str, Any]]) -> dict[int, str]:
    return {n: f"{row['name']}: {row['detail']}" for n, row in rows.items() if not row["stopped"]}


def test_full_stops_every_sixth_attack(reached: str) -> None:
    """A part of each chapter of the table, as whoever runs the tests."""
    assert [row["number"] for row in ROWS] == list(range(1, 129))
    numbers = [row["number"] for row in ROWS][::6]
    rows = rows_on([], usable("full", reached), *numbers)
    assert {n for n in rows if n > 0} == set(numbers)
    assert not_stopped(rows) == {}


@pytest.mark.parametrize("level", ["full", "confined"])
def test_what_no_one_number_shows(level: str, reached: str) -> None:
    """Memory, disk and processor time that are a sum, or that nobody alive holds."""
    hidden = (98, 111, 112, 113, 114, 115, 118, 123, 125, 126, 127)
    assert not_stopped(rows_on([], usable(level, reached), *hidden)) == {}


# who runs it on which machine, the level asked for ("": the best), the one that is found, what is
# left open
MACHINES: list[tuple[list[str], str, str, set[int]]] = [
    (AS, "full", "full", set()),
    ([*AS, "called_root"], "full", "full", set()),
    (AS, "confined", "confined", OPEN_CONFINED),
    (AS, "limits", "limits", OPEN_LIMITS),
    ([*AS, "masked_proc"], "", "full", set()),
    ([*AS, "no_landlock"], "", "full", set()),
    ([*AS, "no_userns"], "", "confined", OPEN_CONFINED),
]
AS_ROOT: list[tuple[list[str], str, str, set[int]]] = [
    ([], "full", "full", set()),
    (["masked_proc"], "full", "full", set()),
    ([], "confined", "confined", OPEN_CONFINED),
]


@pytest.mark.slow  # 128 attacks each
@pytest.mark.parametrize(
    ("kinds", "asked", "level", "left"),
    [*MACHINES, *(pytest.param(*row, marks=needs_root) for row in AS_ROOT)],
)
def test_the_whole_table(
    reached: str, kinds: list[str], asked: str, level: str, left: set[int]
) -> None:
    usable(asked or "full", reached)
    rows = rows_on(kinds, asked)
    assert len([n for n in rows if n > 0]) == len(ROWS)
    assert {row["level"] for row in rows.values()} == {level}
    opened = set(not_stopped(rows))
    assert opened <= left if level == "limits" else opened == left


STAYS = """
import os, socket, time
try: socket.socket(socket.AF_UNIX).bind("\\0meet")
except OSError: pass
for top in ("/tmp", "/dev/shm", ".", os.environ["TMPDIR"]):
    try: open(top + "/meet", "w").write("x")
    except OSError: pass
time.sleep(4)
"""
MEETS = """
import os, socket, time
time.sleep(1)
for address in ("\\0meet", "/tmp/meet"):
    try: socket.socket(socket.AF_UNIX).connect(address); print("OPEN socket")
    except OSError: pass
for top in ("/tmp", "/dev/shm", ".", os.environ["TMPDIR"]):
    if os.path.exists(top + "/meet"): print("OPEN", top)
for pid in range(1, 40) if os.getpid() < 9 else range(os.getpid() - 60, os.getpid() + 60):
    if pid not in (1, os.getpid()):
        try: os.kill(pid, 0); print("OPEN", pid)
        except OSError: pass
"""


@pytest.mark.parametrize("level", ["full", "confined"])
def test_calls_that_run_at_once_do_not_meet(reached: str, level: Level) -> None:
    async def both() -> list[str]:
        config = Config(workers=2, level=usable(level, reached), min_level="limits", stack=())
        async with Pool(config) as pool:
            found = await asyncio.gather(pool.run(STAYS), pool.run(MEETS))
            return [result.stdout + result.stderr for result in found]

    assert asyncio.run(both()) == ["", ""]
