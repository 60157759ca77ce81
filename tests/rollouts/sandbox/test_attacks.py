"""The attack table (80 published rows, 48 of our own) at every level, as root and as a user."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attacks import ROWS
from harness import needs_root, rows_on

from rollouts.sandbox import jail
from rollouts.sandbox.model import LEVELS, Config, Level
from rollouts.sandbox.pool import Pool

# What `confined` leaves open: that the gold exists, and its size (Landlock does not cover stat).
OPEN_CONFINED = {3}
# `limits` is a filter and rlimits only; these rows are the file tree, memory sums and /proc.
OPEN_LIMITS = {1, 2, 3, 4, 5, 6, 29, 30, 32, 46, 47, 48, 49, 50, 56, 68, 72, 73, 103, 105, 113, 128}
AS = ["user"] if jail.is_root() else []


def opened(rows: dict[int, dict[str, Any]]) -> dict[int, str]:
    assert len([n for n in rows if n > 0]) == len(ROWS)
    return not_stopped(rows)


def not_stopped(rows: dict[int, dict[str, Any]]) -> dict[int, str]:
    return {n: f"{row['name']}: {row['detail']}" for n, row in rows.items() if not row["stopped"]}


def test_the_table_is_whole() -> None:
    assert [row["number"] for row in ROWS] == list(range(1, 129))


def needs(level: str, reached: str) -> None:
    if LEVELS.index(reached) > LEVELS.index(level):  # type: ignore[arg-type]
        pytest.skip(f"this machine reaches {reached}, not {level}")


def test_full_stops_every_sixth_attack(reached: str) -> None:
    """A part of each chapter of the table, as whoever runs the tests."""
    needs("full", reached)
    numbers = [row["number"] for row in ROWS][::6]
    rows = rows_on([], "full", *numbers)
    assert {n for n in rows if n > 0} == set(numbers)
    assert not_stopped(rows) == {}


@pytest.mark.parametrize("level", ["full", "confined"])
def test_memory_and_disk_that_no_one_number_shows(level: str, reached: str) -> None:
    needs(level, reached)
    rows = rows_on([], level, 111, 112, 113, 114, 115, 118, 125, 126, 127)
    assert not_stopped(rows) == {}


@pytest.mark.slow  # 128 attacks, as the others below
def test_full_stops_all_as_an_ordinary_user(reached: str) -> None:
    needs("full", reached)
    assert opened(rows_on(AS, "full")) == {}


@pytest.mark.slow
def test_full_stops_all_as_the_root_of_a_namespace(reached: str) -> None:
    needs("full", reached)
    assert opened(rows_on([*AS, "called_root"], "full")) == {}


@pytest.mark.slow
@needs_root
def test_full_stops_all_as_root(reached: str) -> None:
    needs("full", reached)
    assert opened(rows_on([], "full")) == {}


@pytest.mark.slow
def test_confined_says_what_is_open(reached: str) -> None:
    needs("confined", reached)
    assert set(opened(rows_on(AS, "confined"))) == OPEN_CONFINED


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize(
    ("kinds", "level", "left"),
    [(["masked_proc"], "full", set()), ([], "confined", OPEN_CONFINED)],
)
def test_less_as_root(reached: str, kinds: list[str], level: str, left: set[int]) -> None:
    needs(level, reached)
    assert set(opened(rows_on(kinds, level))) == left


@pytest.mark.slow
def test_limits_as_an_ordinary_user(reached: str) -> None:
    needs("limits", reached)
    assert set(opened(rows_on(AS, "limits"))) <= OPEN_LIMITS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "level", "left"),
    [
        (["masked_proc"], "full", set()),
        (["no_landlock"], "full", set()),
        (["no_userns"], "confined", OPEN_CONFINED),
    ],
)
def test_poorer_machines(reached: str, kinds: list[str], level: str, left: set[int]) -> None:
    needs("full", reached)
    rows = rows_on([*AS, *kinds], "")
    assert {row["level"] for row in rows.values()} == {level}
    assert set(opened(rows)) == left


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
    needs(level, reached)

    async def both() -> list[str]:
        config = Config(workers=2, level=level, min_level="limits", stack=())
        async with Pool(config) as pool:
            found = await asyncio.gather(pool.run(STAYS), pool.run(MEETS))
            return [result.stdout + result.stderr for result in found]

    assert asyncio.run(both()) == ["", ""]
