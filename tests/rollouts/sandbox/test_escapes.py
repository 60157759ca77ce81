"""Ways round the limits: memory the sum does not see, results lost."""

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
from harness import running
from places import ROOT

from rollouts.sandbox import usage
from rollouts.sandbox.model import LEVELS, Config, Level, Limits
from rollouts.sandbox.pool import Pool

SMALL = Limits(wall_s=20, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8, processes=64)


def usable(level: Level, reached: str) -> Level:
    if LEVELS.index(level) < LEVELS.index(reached):  # type: ignore[arg-type]
        pytest.skip(f"this machine reaches {reached}, not {level}")
    return level


def held(code: str) -> str:
    """Code that prints OPEN when it holds what it took for long enough to be seen."""
    return f"import time\n{code}\ntime.sleep(1)\nprint('OPEN')\n"


SHARED_OF_MANY = """
import mmap, os
r, w = os.pipe()
for _ in range(40):
    if os.fork() == 0:
        m = mmap.mmap(-1, 20 << 20)
        for at in range(0, len(m), 4096): m[at] = 1
        os.write(w, b'x'); time.sleep(20)
os.close(w)
for _ in range(40):
    if not os.read(r, 1): raise MemoryError
"""
UNMAPPED_BUT_FOR_A_PAGE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size = 65536 if SMALL_PIECES else 16 << 20
zero = -1
if FROM_ZERO:
    try: zero = os.open('/dev/zero', os.O_RDWR)
    except OSError: raise SystemExit(1)
for _ in range(600 * (1 << 20) // size):
    at = libc.mmap(None, size, 3, 1 if zero >= 0 else 0x21, zero, 0)
    if at in (None, (1 << 64) - 1): raise MemoryError
    ctypes.memset(at, 1, size)
    libc.munmap(at + 4096, size - 4096)
"""
QUEUES = """
import socket
keep, queued = [], 0
for _ in range(100):
    pair = socket.socketpair(); keep.append(pair)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        end.setblocking(False)
        try:
            while True: queued += end.send(bytes(1 << 16))
        except BlockingIOError: pass
if queued < 300 << 20: raise MemoryError
"""
WAITING_CLIENTS = """
import socket
server = socket.socket(socket.AF_UNIX); server.bind('s'); server.listen(4096)
full = 0
while full < 2000:
    client = socket.socket(socket.AF_UNIX); client.setblocking(False)
    try: client.connect('s')
    except BlockingIOError: raise SystemExit(1)
    try:
        while True: client.send(bytes(1 << 16))
    except BlockingIOError: pass
    client.close(); full += 1
"""
LOCKS = """
import fcntl
with open('f', 'wb') as file:
    for at in range(60_000): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * at)
    time.sleep(2)
"""
ATTEMPTS = {
    "shared memory of many processes": SHARED_OF_MANY,
    "all of it unmapped but for a page": "SMALL_PIECES, FROM_ZERO = 0, 0" + UNMAPPED_BUT_FOR_A_PAGE,
    "in small pieces": "SMALL_PIECES, FROM_ZERO = 1, 0" + UNMAPPED_BUT_FOR_A_PAGE,
    "from /dev/zero": "SMALL_PIECES, FROM_ZERO = 0, 1" + UNMAPPED_BUT_FOR_A_PAGE,
    "queues of sockets": QUEUES,
    "clients that wait": WAITING_CLIENTS,
    "locks": LOCKS,
}


@pytest.mark.parametrize("level", ["full", "confined"])
@pytest.mark.parametrize("name", ATTEMPTS)
def test_memory_that_the_sum_did_not_see(name: str, level: Level, reached: str) -> None:
    config = Config(workers=1, stack=(), level=usable(level, reached))
    with running(config) as (run, _):
        result = run(held(ATTEMPTS[name]), limits=replace(SMALL, wall_s=120))  # locks are slow
    assert result.status in ("memory", "error") and "OPEN" not in result.stdout, result


@pytest.mark.parametrize("level", ["full", pytest.param("confined", marks=pytest.mark.slow)])
def test_locks_of_others_are_not_counted(level: Level, reached: str, tmp_path: Path) -> None:
    """Those of an open file belong to no process, and every jail's /proc shows them."""
    with (tmp_path / "f").open("wb") as file:
        for at in reversed(range(21_000)):  # in this order the kernel need not search
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * at, 1, 0)
            fcntl.fcntl(file, 37, lock)  # F_OFD_SETLK
        with running(Config(workers=1, stack=(), level=usable(level, reached))) as (run, _):
            assert run("import time; time.sleep(0.5)", limits=SMALL).status == "ok"


WRITTEN = {
    "open descriptors in a directory that was shut": """
import os
os.mkdir('d')
files = [open(f'd/{i}', 'wb') for i in range(8)]
os.chmod('d', 0)
for file in files: file.write(bytes(5 << 20)); file.flush()
""",
    "paths too long to name": """
import os
for _ in range(60): os.mkdir('d' * 200); os.chdir('d' * 200)
for i in range(8): open(str(i), 'wb').write(bytes(5 << 20))
""",
    "files without a name that one page keeps": """
import mmap, os
keep = []
for i in range(8):
    with open('f', 'w+b') as file:
        file.write(bytes(5 << 20)); file.flush()
        keep.append(mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE))
    os.unlink('f')
    for page in keep[-1:]:
        os.close(os.dup(0))
""",
    "the same without Python's own descriptor": """
import ctypes, os
m = ctypes.CDLL(None).mmap
m.restype, m.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3,
                                         ctypes.c_long]
for i in range(8):
    with open('f', 'w+b') as file:
        file.write(bytes(5 << 20)); file.flush()
        m(None, 4096, 1, 2, file.fileno(), 0)
    os.unlink('f')
""",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_disk_use_that_the_watch_did_not_see(name: str, reached: str) -> None:
    limits = replace(SMALL, file_mb=8)
    with running(Config(workers=1, stack=(), level=usable("confined", reached))) as (run, _):
        result = run(held(WRITTEN[name]), limits=limits)
        assert (result.status, result.stdout) == ("disk", ""), result
        assert run("print(1)").stdout == "1\n"


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
    monkeypatch.setattr("rollouts.sandbox.worker.GRACE_S", -28.0)

    async def two() -> tuple[str, str, int]:
        async with Pool(Config(workers=2, stack=(), min_level="limits")) as pool:
            late = pool.run("import time; time.sleep(40)", limits=Limits(wall_s=30))
            slow = pool.run("import time; time.sleep(4); print('mine')", limits=Limits(wall_s=120))
            first, second = await asyncio.gather(late, slow)
            return first.status, second.stdout, pool.retried

    assert asyncio.run(two()) == ("timeout", "mine\n", 0)


def test_a_busy_event_loop_loses_no_result() -> None:
    """The code ends just before its deadline, with more files than a socket holds."""

    async def blocked() -> tuple[str, int, int]:
        async with Pool(Config(workers=1, stack=(), min_level="limits")) as pool:
            code = "open('f', 'wb').write(bytes(40 << 20)); import time; time.sleep(0.5)"
            call = asyncio.create_task(pool.run(code, fetch=["f"], limits=Limits(wall_s=1.5)))
            await asyncio.sleep(0.2)
            time.sleep(6)
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
from rollouts.sandbox.usage import Members, MemoryWatch, ProcessorWatch, Watches
from rollouts.sandbox.user_process import BEGUN, CLOSED
import socket
proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
mine, theirs = socket.socketpair()
code = "x = b'1' * (64 << 20); print(1, flush=True); import time; time.sleep(60)"
left = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
left.stdout.readline()
job = Job(mine, JailPlan(False, 0, proc=proc), Folders("/", "/"), proc, -1)
limit = int(sys.argv[1]) << 20
job.watches = Watches(
    Members(proc, False), MemoryWatch(proc, limit, os.getpid()), ProcessorWatch(proc, 60.0, 4), None
)
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
        [sys.executable, "-c", LEFT_BEHIND, str(limit_mb)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == (end, "")
