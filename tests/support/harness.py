"""Pools and simulated machines for the sandbox tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rollouts.environments import EnvironmentFactory
from rollouts.sandbox import jail
from rollouts.sandbox.model import LEVELS, Config, Level, Result
from rollouts.sandbox.pool import Pool

MACHINES = str(Path(__file__).parent / "machines.py")
Runner = Callable[..., Result]


@contextlib.contextmanager
def running(config: Config) -> Generator[tuple[Runner, Pool]]:
    """A pool driven from ordinary test functions."""
    with asyncio.Runner() as loop:
        pool = loop.run(_made(config))
        try:
            yield (lambda *a, **k: loop.run(pool.run(*a, **k))), pool
        finally:
            loop.run(pool.close())


@cache
def warm_pool() -> Pool:
    """The one pool with the data stack, on the event loop of `asyncio_run`, that the tests of a
    process share: it costs a second to start, and every call gets a jail of its own."""
    return Pool(Config(workers=1, min_level="limits"))


class WarmFactory(EnvironmentFactory):
    """An `EnvironmentFactory` over that pool, which is started anew for other lakes than it has.
    Not for containers."""

    def pool(self, container: bool = False) -> Pool:
        pool = warm_pool()
        if not self._shared.items() <= pool.config.shared.items():
            pool.config = replace(pool.config, shared=dict(self._shared))
        return pool


async def _made(config: Config) -> Pool:
    pool = Pool(config)
    await pool.report()
    return pool


def on_machine(kinds: list[str], *args: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter on a simulated machine."""
    command = [sys.executable, MACHINES, *kinds, "--", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=570)


def rows_on(kinds: list[str], level: str, *numbers: int) -> dict[int, dict[str, Any]]:
    """The attack table, or these rows of it, on a simulated machine: row number to outcome."""
    done = on_machine(kinds, "-m", "attacks", level, *map(str, numbers))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows, done.stderr
    return {row["number"]: row for row in rows}


def usable(level: str, reached: str) -> Level:
    """The level, where this machine reaches it; else the test is skipped."""
    if LEVELS.index(level) < LEVELS.index(reached):  # type: ignore[arg-type]
        pytest.skip(f"this machine reaches {reached}, not {level}")
    return level  # type: ignore[return-value]


needs_root = pytest.mark.skipif(not jail.is_root(), reason="needs root to become another user")
