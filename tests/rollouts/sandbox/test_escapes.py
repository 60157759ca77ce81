"""Ways round the limits that no row of the attack table has: what counts, results lost."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from harness import Runner, running, usable
from places import ROOT

from rollouts.sandbox import usage
from rollouts.sandbox.model import Config, Limits
from rollouts.sandbox.pool import Pool
from rollouts.sandbox.usage import MemoryWatch, ProcessorWatch

SMALL = Limits(wall_s=20, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8, processes=64)


def test_locks_of_others_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an open file belong to no process, and every jail's /proc shows them."""
    monkeypatch.setattr(usage, "_WATCHABLE_LOCKS", 200)
    proc = os.open("/proc", os.O_RDONLY)
    watch = MemoryWatch(proc, 1 << 50, os.getpid())
    with (tmp_path / "f").open("wb") as file:
        for at in range(210):
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * at, 1, 0)
            fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK
        assert not watch.exceeded([os.getpid()], time.monotonic() + 60)
        for at in range(500, 710):  # this process's own
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
        assert watch.exceeded([os.getpid()], time.monotonic() + 60)
    os.close(proc)


def test_a_nameless_file_counts_with_its_size_where_that_is_known(reached: str) -> None:
    """As `multiprocessing` keeps its shared memory: no name, an open descriptor, a mapping."""
    code = """
import mmap, os, time
keep = []
for i in range(20):
    file = open('f', 'w+b'); os.unlink('f'); file.truncate(4096)
    keep.append((file, mmap.mmap(file.fileno(), 4096)))
time.sleep(0.5)
"""
    with running(Config(workers=1, stack=(), level=usable("confined", reached))) as (run, _):
        assert run(code, limits=SMALL).status == "ok"


def test_the_jail_that_was_late_is_killed_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollouts.sandbox.pool.GRACE_S", -28.0)

    async def two() -> tuple[str, str, int]:
        async with Pool(Config(workers=2, stack=(), min_level="limits")) as pool:
            late = pool.run("import time; time.sleep(40)", limits=Limits(wall_s=30))
            slow = pool.run("import time; time.sleep(4); print('mine')", limits=Limits(wall_s=120))
            first, second = await asyncio.gather(late, slow)
            return first.status, second.stdout, pool.retried

    assert asyncio.run(two()) == ("timeout", "mine\n", 0)


def test_a_busy_event_loop_loses_no_result() -> None:
    """The code ends before its deadline, with more files than a socket holds; nobody hears it."""

    async def blocked() -> tuple[str, int, int]:
        async with Pool(Config(workers=1, stack=(), min_level="limits")) as pool:
            code = "open('f', 'wb').write(bytes(40 << 20))"
            call = asyncio.create_task(pool.run(code, fetch=["f"], limits=Limits(wall_s=4)))
            await asyncio.sleep(0.2)
            time.sleep(5)
            result = await call
            return result.status, len(result.files.get("f", b"")), pool.retried

    assert asyncio.run(blocked()) == ("ok", 40 << 20, 0)


@pytest.mark.slow
def test_an_init_that_does_not_end_its_call_is_a_timeout() -> None:
    """The pool decides in its place, so that stopping init does not lose the result."""

    async def stopped() -> str:
        async with Pool(Config(workers=1, stack=(), min_level="limits", spares=0)) as pool:
            launcher = pool._launchers[0]
            (inner,) = children(launcher.process.pid)
            before = set(children(inner))
            call = asyncio.create_task(
                pool.run("import time; time.sleep(60)", limits=Limits(wall_s=1))
            )
            await asyncio.sleep(0.7)
            (init,) = [p for p in children(inner) if p not in before]
            os.kill(init, signal.SIGSTOP)
            return (await call).status

    assert asyncio.run(stopped()) == "timeout"


def children(pid: int) -> list[int]:
    proc = os.open("/proc", os.O_RDONLY)
    try:
        return usage.children(proc, pid)
    finally:
        os.close(proc)


LEFT_BEHIND = """
import os, subprocess, sys, time
from rollouts.sandbox.inside import Job, supervise
from rollouts.sandbox.jail import Folders, JailPlan
from rollouts.sandbox.model import Limits
from rollouts.sandbox.usage import Watches
from rollouts.sandbox.user_process import BEGUN, CLOSED
import socket
proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
mine, theirs = socket.socketpair()
code = "x = b'1' * (64 << 20); print(1, flush=True); import time; time.sleep(60)"
left = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
left.stdout.readline()
plan, folders, limits = JailPlan(False, 0), Folders("/", "/"), Limits(total_mb=int(sys.argv[1]))
job = Job(mine, plan, folders, proc, -1)
job.watches = Watches(plan, folders, limits, proc, os.getpid())
job.watches.disk = None
job.said = CLOSED + BEGUN
ended = subprocess.Popen(["true"])  # kept: a Popen that goes takes its process's status with it
job.user = ended.pid
time.sleep(0.2)  # it has ended before the first look
job.started = time.monotonic()
supervise(job, [], [])
left.kill()
print(job.end)
"""


@pytest.mark.parametrize(("limit_mb", "end"), [(32, "memory"), (512, "exit")])
def test_memory_left_behind_counts_though_no_look_was_due(limit_mb: int, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND, str(limit_mb)], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == (end, "")


# processor time: that of all processes counts, and of those that have ended

BUSY = """
import os
for _ in range(3):
    if os.fork() == 0:
        try: os.setsid()
        except OSError: pass
        while True: pass
import time
time.sleep(60)
"""


def test_processor_time_counts_over_all_processes(run: Runner) -> None:
    result = run(BUSY, limits=replace(SMALL, wall_s=60, cpu_s=1))
    assert result.status == "timeout" and "processor" in result.why


def test_who_is_too_busy_goes_to_the_back_and_the_dead_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "MOST_BUSY", 0.0015)
    own = os.getpriority(os.PRIO_PROCESS, 0)  # which the child starts with
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    proc = os.open("/proc", os.O_RDONLY)
    try:
        looks = ProcessorWatch(proc, limit_s=1e9)
        while looks.spent_s < 0.2 or os.getpriority(os.PRIO_PROCESS, child.pid) == own:
            assert not looks.exceeded([child.pid])
            time.sleep(0.05)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
        assert os.getpriority(os.PRIO_PROCESS, 0) == own
        assert ProcessorWatch(proc, limit_s=0.01).exceeded([child.pid])
    finally:
        child.kill()
        child.wait()
    spent = looks.spent_s
    looks.exceeded([])
    os.close(proc)
    assert looks.spent_s >= spent
