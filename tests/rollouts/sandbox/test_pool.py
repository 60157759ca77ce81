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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import running, usable
from places import ROOT, tables

from rollouts.sandbox import usage
from rollouts.sandbox.model import STACK, Config, Limits, fitting, worker_count
from rollouts.sandbox.pool import Pool, check

CASES = tables("rollouts")
BAD_NAMES = ["../a", "/a", "a//b", "a/../b", "", "main.py", "a\0b"]
PLAIN = Config(workers=2, min_level="limits", stack=())
SMALL = Limits(wall_s=30, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8)


def below() -> list[int]:
    proc = os.open("/proc", os.O_RDONLY)
    try:
        return usage.descendants(proc, os.getpid())
    finally:
        os.close(proc)


@pytest.mark.parametrize(("code", "status", "exit_code"), CASES["programs and their status"])
def test_status(run, code: str, status: str, exit_code: int) -> None:
    result = run(code, limits=SMALL)
    assert (result.status, result.exit_code) == (status, exit_code), result
    assert bool(result.why) == (status != "ok")


def test_files_in_and_out_also_at_the_deadline(run) -> None:
    files = {"a/b.txt": "deep", "c.bin": b"\0\xff"}
    code = "open('d','wb').write(open('a/b.txt','rb').read() + open('c.bin','rb').read())\n"
    code += "import time; print('before', flush=True); time.sleep(1e6)"
    result = run(code, files, ["d", "none"], Limits(wall_s=1.5))
    assert (result.status, result.stdout) == ("timeout", "before\n")
    assert result.files == {"d": b"deep\0\xff"}
    assert result.refused == {"none": "missing"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *((lambda n=name: check("", {n: b""}, ()), "file name") for name in BAD_NAMES),
        (lambda: Limits(wall_s=0), r"limits\.wall_s"),
        (lambda: Config(workers=0), r"sandbox\.workers"),
        (lambda: Config(min_level="best"), "choose one of"),  # type: ignore[arg-type]
    ],
)
def test_what_could_never_be_run_is_refused(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wrong()


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
        async with Pool(Config(workers=1, min_level="limits", stack=())) as pool:
            await pool.run("pass")
            before = 0  # with the next call's process, which may still be starting
            for _ in range(20):
                before = max(before, len(below()))
                await asyncio.sleep(0.05)
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


@pytest.mark.parametrize(
    ("cores", "free", "wanted"), [(8, 64, 8), (64, 64, 16), (64, 15, 3), (4, 1, 1), (1, 999, 1)]
)
def test_processors_or_memory_decide_how_many_calls_fit(cores: int, free: int, wanted: int) -> None:
    call = Limits(total_mb=2048, work_mb=1024, tmp_mb=512, shm_mb=512)  # 4 GiB together
    assert fitting(cores, free << 30, call) == wanted
    assert fitting(cores, None, call) == cores
    assert worker_count(Limits(total_mb=10**8)) == 1


TELL = "print({i}); open('number', 'w').write('{i}')\n"
MANY = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        for at in range(0, len(x), 4096): x[at] = 1
        time.sleep(60)
time.sleep(60)
"""


# what a call does after it told its number, its status, and what must be said about it
KINDS = {
    "computes": [("x = sum(range(1000))", "ok", r"")],
    "crash": [
        ("import ctypes; ctypes.string_at(0)", "error", r"ended by signal 11"),
        ("import os; os.abort()", "error", r"ended by signal 6"),
        ("import os; os.kill(os.getpid(), 9)", "error", r"ended by signal 9"),
        ("raise SystemExit(3)", "error", r"exit status 3"),
    ],
    "hang": [
        ("import time\nwhile True: time.sleep(1)", "timeout", r"still running after 1 s"),
        (
            "import signal as s\ns.pthread_sigmask(s.SIG_BLOCK, range(1, 65))\nwhile True: pass",
            "timeout",  # its second by the clock is a second of the processor, too: either is due
            r"(still running after 1 s|used more than 1 s of processor time)",
        ),
        (
            "import os\nif os.fork() == 0: os.setsid()\nos.read(os.pipe()[0], 1)",
            "timeout",
            r"still running after 1 s",
        ),
    ],
    "bomb": [
        ("x = bytearray(300 << 20)", "memory", r"one process asked for more than 128 MB"),
        ("x = []\nwhile True: x.append(bytes(1 << 20))", "memory", r"one process asked .*"),
        (MANY, "memory", r"all processes together used more than 384 MB"),
    ],
}


async def soak(count: int, stack: tuple[str, ...], workers: int = 2) -> list[str]:
    """Calls of which 5 % crash, 5 % hang until their deadline, 5 % take too much memory, and the
    rest compute; each has a number that has to come back in its output and in its file. Every
    problem in a sentence."""
    rng = random.Random(0)
    names = rng.choices(list(KINDS), (85, 5, 5, 5), k=count)
    kinds = [rng.choice(KINDS[name]) for name in names]
    problems: list[str] = []
    config = Config(workers=workers, min_level="limits", stack=stack, spares=workers)
    async with Pool(config) as pool:

        async def caller(numbers: Iterator[int]) -> None:
            for i in numbers:
                code, status, why = kinds[i]
                limits = Limits(1 if names[i] == "hang" else 120, memory_mb=128, total_mb=384)
                program = TELL.format(i=i) + "import sys; sys.stdout.flush()\n" + code
                got = await pool.run(program, fetch=["number"], limits=limits)
                told = (got.stdout, got.files.get("number"), got.status)
                if told != (f"{i}\n", b"%d" % i, status) or not re.fullmatch(why, got.why):
                    problems.append(f"call {i}: {told}, {got.why!r}, wanted {status} {why!r}")

        left = iter(range(count))
        await asyncio.gather(*(caller(left) for _ in range(workers)))
    if pool.by_status.total() != count or pool.retried:
        problems.append(f"{pool.by_status} for {count} calls, {pool.retried} retried")
    return problems[:20]


@pytest.mark.parametrize("calls", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_calls_lose_and_mix_up_nothing(calls: int) -> None:
    assert asyncio.run(soak(calls, STACK if calls > 100 else ())) == []
