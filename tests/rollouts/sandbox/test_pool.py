"""The pool: the contract of `run`, queueing, lost jails, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness import running, usable
from places import ROOT, tables

from rollouts.sandbox import usage
from rollouts.sandbox.model import Config, Limits, fitting, worker_count
from rollouts.sandbox.pool import Pool, check

CASES = tables("rollouts")
PLAIN = Config(workers=2, min_level="limits", stack=())
SMALL = Limits(wall_s=30, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8)


def below() -> list[int]:
    proc = os.open("/proc", os.O_RDONLY)
    try:
        return usage.descendants(proc, os.getpid())
    finally:
        os.close(proc)


def test_files_in_and_out_also_at_the_deadline(run) -> None:
    files = {"a/b.txt": "deep", "c.bin": b"\0\xff"}
    code = "open('d','wb').write(open('a/b.txt','rb').read() + open('c.bin','rb').read())\n"
    code += "import time; print('before', flush=True); time.sleep(1e6)"
    result = run(code, files, ["d", "none"], Limits(wall_s=1.5))
    assert (result.status, result.stdout) == ("timeout", "before\n")
    assert result.files == {"d": b"deep\0\xff"}
    assert result.refused == {"none": "missing"}


def test_what_could_never_be_run_is_refused() -> None:
    for name in ("../a", "/a", "a//b", "a/../b", "", "main.py", "a\0b"):
        with pytest.raises(ValueError, match="file name"):
            check("", {name: b""}, ())
    with pytest.raises(ValueError, match=r"limits\.wall_s"):
        Limits(wall_s=0)


def test_seed_fixes_the_legacy_generators(run) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    assert run(code, seed=7).stdout == run(code, seed=7).stdout != run(code, seed=8).stdout
    assert run(code).stdout != run(code).stdout


def test_a_killed_launcher_is_replaced_and_the_call_retried() -> None:
    async def lose() -> tuple[str, int]:
        async with Pool(PLAIN) as pool:
            call = asyncio.create_task(pool.run("import time; time.sleep(1); print('done')"))
            await asyncio.sleep(0.5)
            os.kill(pool._launchers[0].process.pid, signal.SIGKILL)
            return (await call).stdout, pool.retried

    assert asyncio.run(lose()) == ("done\n", 1)


def test_a_cancelled_call_ends_in_the_jail() -> None:
    async def cancel() -> int:
        async with Pool(Config(workers=1, min_level="limits", stack=(), spares=0)) as pool:
            await pool.run("pass")
            before = len(below())
            call = asyncio.create_task(pool.run("import time; time.sleep(1e6)"))
            await asyncio.sleep(0.5)
            call.cancel()
            for _ in range(200):
                if len(below()) <= before:
                    break
                await asyncio.sleep(0.05)
            return len(below()) - before

    assert asyncio.run(cancel()) <= 0


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    tmp_path.chmod(0o755)
    before = (sorted(os.listdir("/proc/self/fd")), len(below()))
    shared = set(os.listdir("/dev/shm"))
    mounts = Path("/proc/self/mountinfo").read_text()
    with running(PLAIN) as (run, _):
        for _ in range(20):
            assert run("open('x','w').write('1')").status == "ok"
    assert (sorted(os.listdir("/proc/self/fd")), len(below())) == before
    new = set(os.listdir("/dev/shm")) - shared
    # other tests run beside this one: their joblib and multiprocessing come and go
    assert [name for name in new if not name.startswith(("sem.", "psm_"))] == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert os.listdir(tmp_path) == []


KILLED = """
import asyncio, os
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import Pool
async def main():
    async with Pool(Config(workers=1, level={level!r}, min_level="limits", stack=())) as pool:
        await pool.run("open('x', 'w').write('1')")
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""


@pytest.mark.parametrize("level", ["full", "confined"])
def test_a_killed_pool_leaves_nothing(tmp_path: Path, level: str, reached: str) -> None:
    tmp_path.chmod(0o1777)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    code = [sys.executable, "-c", KILLED.format(level=usable(level, reached))]
    assert subprocess.run(code, cwd=ROOT, env=env, capture_output=True).returncode == -9
    for _ in range(400):  # its guard kills what it ran and empties the directory
        if not list(tmp_path.rglob("*/*")):
            break
        time.sleep(0.05)
    assert list(tmp_path.rglob("*/*")) == []


def test_processors_or_memory_decide_how_many_calls_fit() -> None:
    call = Limits(total_mb=2048, work_mb=1024, tmp_mb=512, shm_mb=512)  # 4 GiB together
    for cores, free, wanted in ((8, 64, 8), (64, 64, 16), (64, 15, 3), (4, 1, 1), (1, 999, 1)):
        assert fitting(cores, free << 30, call) == wanted
    assert fitting(8, None, call) == 8 and worker_count(Limits(total_mb=10**8)) == 1


async def soak(count: int, workers: int = 2) -> list[str]:
    """Calls of which most compute, beside every program of the table; each has a number that has
    to come back in its output and in its file. Every problem in a sentence."""
    kinds = [*CASES["programs and how they end"]]
    kinds += [["x = sum(range(1000))", "ok", 0, ""]] * (count - len(kinds))
    random.Random(0).shuffle(kinds)
    problems: list[str] = []
    async with Pool(Config(workers, min_level="limits", stack=(), spares=workers)) as pool:

        async def caller(numbers: Iterator[int]) -> None:
            for i in numbers:
                code, status, exit_code, why = kinds[i]
                program = f"print({i}, flush=True); open('number', 'w').write('{i}')\n{code}"
                limits = replace(SMALL, wall_s=1 if status == "timeout" else 120)
                got = await pool.run(program, fetch=["number"], limits=limits)
                told = (got.stdout, got.files.get("number"), got.status)
                told += (got.exit_code if exit_code is not None else None,)
                wanted = (f"{i}\n", b"%d" % i, status, exit_code)
                if told != wanted or not re.fullmatch(why, got.why):
                    problems.append(f"call {i}: {told}, {got.why!r}, not {wanted}, {why!r}")

        left = iter(range(count))
        await asyncio.gather(*(caller(left) for _ in range(workers)))
    if pool.by_status.total() != count or pool.retried:
        problems.append(f"{pool.by_status} for {count} calls, {pool.retried} retried")
    return problems[:20]


@pytest.mark.parametrize("calls", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_calls_lose_and_mix_up_nothing(calls: int) -> None:
    assert asyncio.run(soak(calls)) == []


# --- Results that are not lost, whoever is late; what the limits do not count

SHARED = """
import mmap, os, time
keep = []
for i in range(20):
    file = open('f', 'w+b'); os.unlink('f'); file.truncate(4096)
    keep.append((file, mmap.mmap(file.fileno(), 4096)))
time.sleep(0.5)
"""


def test_a_nameless_file_counts_with_its_size_where_that_is_known(reached: str) -> None:
    """As `multiprocessing` keeps its shared memory: no name, an open descriptor, a mapping."""
    small = Limits(wall_s=20, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8, processes=64)
    with running(Config(workers=1, stack=(), level=usable("confined", reached))) as (run, _):
        assert run(SHARED, limits=small).status == "ok"


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
