"""The attack table, run against the sandbox of this machine: `run_all(level=None, numbers=())`, or

`PYTHONPATH=.:tests/support python -m attacks [LEVEL] [NUMBER …]`: a JSON line per row, of the
whole table or of the rows with these numbers; status 1 if one is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import attack_evasions
import attack_files
import attack_further
import attack_kernel
import attack_later
import attack_network
import attack_reading
import attack_starving
from attack_row import Attack, Target

from rollouts.sandbox import usage
from rollouts.sandbox.model import LEVELS, Config, Level, Limits, Result
from rollouts.sandbox.pool import Pool

TABLE: tuple[Attack, ...] = (
    *attack_reading.ROWS,
    *attack_network.ROWS,
    *attack_starving.ROWS,
    *attack_files.ROWS,
    *attack_kernel.ROWS,
)
FURTHER: tuple[Attack, ...] = (*attack_further.ROWS, *attack_later.ROWS, *attack_evasions.ROWS)


@dataclass(frozen=True)
class Outcome:
    """Whether one attempt was stopped, and what was seen if not."""

    number: int
    name: str
    stopped: bool
    detail: str
    level: str


@contextmanager
def planted() -> Generator[Target]:
    """Gold, a home directory, a process and services to go after; all gone afterwards."""
    token = "gold-" + secrets.token_hex(16)
    top = Path(tempfile.mkdtemp(prefix="assay-attack-"))
    top.chmod(0o755)
    home = top / "home"
    home.mkdir()
    (home / ".profile").write_text(token)
    (top / "lake").mkdir(0o755)
    (top / "gold.json").write_text(token)
    environ = {"PATH": os.environ.get("PATH", ""), "API_TOKEN": token}
    sleeper = [sys.executable, "-c", "import time; time.sleep(3600)", f"--token={token}"]
    victim = subprocess.Popen(sleeper, env=environ, cwd=top, stdin=subprocess.DEVNULL)
    abstract = f"assay-{secrets.token_hex(8)}"
    os.environ["ASSAY_ATTACK_TOKEN"] = token
    sockets: list[socket.socket] = []
    reader = -1
    try:
        addresses = (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(top / "service")),
            (socket.AF_UNIX, socket.SOCK_DGRAM, str(top / "service.dgram")),
            (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract),
            (socket.AF_UNIX, socket.SOCK_DGRAM, "\0" + abstract + "d"),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(top / "lake" / "service")),
        )
        for family, kind, address in addresses:
            sockets.append(socket.socket(family, kind))
            sockets[-1].bind(address)
            if kind == socket.SOCK_STREAM:
                sockets[-1].listen(64)
        os.mkfifo(top / "lake" / "fifo")
        reader = os.open(top / "lake" / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        for path in [*top.glob("service*"), *(top / "lake").iterdir()]:
            path.chmod(0o777)
        tcp, udp = (s.getsockname()[1] for s in sockets[:2])
        yield Target(
            directory=str(top),
            gold=str(top / "gold.json"),
            home=str(home),
            token=token,
            victim=victim.pid,
            port=tcp,
            udp_port=udp,
            socket=str(top / "service"),
            abstract=abstract,
            marker=f"assay-{secrets.token_hex(8)}",
        )
    finally:
        for sock in sockets:
            sock.close()
        if reader >= 0:
            os.close(reader)
        victim.kill()
        victim.wait()
        del os.environ["ASSAY_ATTACK_TOKEN"]
        shutil.rmtree(top)


def damage(target: Target) -> str:
    """What an attempt did outside of its jail; the empty string when nothing. Put right again, so
    that the next row answers for itself."""
    if _state(target.victim) in ("Z", "T", ""):
        return "the victim was stopped or killed"
    gold = Path(target.gold)
    if not gold.is_file() or gold.read_text() != target.token:
        gold.write_text(target.token)
        return "the gold file was changed"
    expected = {"gold.json", "home", "lake", "service", "service.dgram"}
    if strange := set(os.listdir(target.directory)) - expected:
        for path in [Path(target.directory, name) for name in strange]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return f"left in the gold directory: {sorted(strange)}"
    places = ("/dev/shm", "/tmp", tempfile.gettempdir())
    found = [f"{p}/{n}" for p in places for n in os.listdir(p) if n.startswith(target.marker)]
    for path in found:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return f"left behind: {found}" if found else ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def attack(pool: Pool, row: Attack, target: Target) -> Outcome:
    """Run one row, then see that the pool still serves and that nothing was left."""
    shared = {row.shared: row.shared} if row.shared else None
    result = await pool.run(row.source(target), fetch=row.fetch, limits=row.limits, shared=shared)
    problems: list[str] = []
    if row.arch in ("", platform.machine()) and not row.stopped(result, target):
        problems.append(_summary(result))
    if harm := damage(target):
        problems.append(harm)
    after = await pool.run(row.then or 'print("fine")', limits=Limits(wall_s=20))
    if after.stdout != "fine\n":
        problems.append(f"the next call gave {_summary(after)}")
    level = str(after.layers.get("level", ""))
    return Outcome(row.number, row.name, not problems, "; ".join(problems), level)


def _summary(result: Result) -> str:
    shown = (result.stdout[-200:] + result.stderr[-300:]).strip()
    return f"{result.status} ({result.why}), exit {result.exit_code}: {shown!r}"


async def run_rows(rows: Sequence[Attack], config: Config) -> list[Outcome]:
    """Every row on one pool, then a look for processes that outlived their call."""
    with planted() as target:
        async with Pool(config) as pool:
            await pool.run("pass")  # from here on the spare jail stands
            before = _descendants(target.victim)
            found = [await attack(pool, row, target) for row in rows if not row.shared]
            left = len(before) + 1
            for _ in range(100):
                left = len(_descendants(target.victim)) - len(before)
                if left <= 0:
                    break
                await asyncio.sleep(0.05)
            if left > 0:
                detail = f"{left} processes more than before"
                found.append(Outcome(0, "nothing left running", False, detail, found[-1].level))
        # apart, because the jails of a pool that shares nothing are closed earlier
        async with Pool(replace(config, shared={"lake": f"{target.directory}/lake"})) as pool:
            found += [await attack(pool, row, target) for row in rows if row.shared]
    return found


def _descendants(but: int) -> list[int]:
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [p for p in usage.descendants(proc, os.getpid()) if p != but]
    finally:
        os.close(proc)


def run_all(level: Level | None = None, numbers: Sequence[int] = ()) -> list[Outcome]:
    """The whole table and the further rows, or those of `numbers`, at `level` or the best that this
    machine has."""
    rows = [row for row in (*TABLE, *FURTHER) if not numbers or row.number in numbers]
    config = Config(workers=1, level=level, min_level="limits", stack=("numpy",))
    return asyncio.run(run_rows(rows, config))


if __name__ == "__main__":
    wanted: list[Level] = [level for level in LEVELS if level in sys.argv[1:]]
    outcomes = run_all(
        wanted[0] if wanted else None, [int(word) for word in sys.argv[1:] if word.isdigit()]
    )
    for outcome in outcomes:
        print(json.dumps(asdict(outcome)))
    sys.exit(any(not outcome.stopped for outcome in outcomes))
