"""The attack table (tests/data/attacks.yaml), run against the sandbox of this machine.

An attempt prints OPEN when it got through. Attempts are bounded, so that one that gets through
harms nothing, and only ever read from the kernel.

`PYTHONPATH=.:tests/support python -m attacks [LEVEL] [NUMBER …]`: a JSON line per row, of the
whole table or of the rows with these numbers; status 1 if one is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from assay.confine import NUMBERS, machine
from rollouts.sandbox import usage
from rollouts.sandbox.model import LEVELS, Config, Level, Limits, Result
from rollouts.sandbox.pool import Pool

SMALL = Limits(
    **{"wall_s": 10, "memory_mb": 128, "total_mb": 384, "file_mb": 24, "work_mb": 8},
    **{"work_files": 500, "tmp_mb": 8, "shm_mb": 4, "processes": 32, "descriptors": 128},
)
ROWS = yaml.safe_load((Path(__file__).parents[1] / "data" / "attacks.yaml").read_text())
Row = dict[str, Any]
Target = dict[str, Any]  # what an attacker would like to reach, by its name in the code of a row

_HEAD = """\
import ctypes, os, sys, time
_libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    "(result, errno) of a system call by name"
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return _libc.syscall(ctypes.c_long(NR[name]), *args), ctypes.get_errno()
def opened():
    print("OPEN", flush=True)
    os._exit(0)
def tries(*steps):
    "OPEN when any step goes through without an OSError"
    for step in steps:
        try:
            step()
        except (OSError, ValueError):
            continue
        opened()
def refused(name, *args, by=(1, 38, 13)):
    "OPEN unless the call itself answers EPERM, ENOSYS or EACCES"
    result, error = call(name, *args)
    if result >= 0 or error not in by:
        opened()
"""


@contextmanager
def planted() -> Generator[Target]:
    """Gold, a home directory, a process and services to go after; all gone afterwards."""
    token, abstract = "gold-" + secrets.token_hex(16), f"\0assay-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-attack-")))
        top.chmod(0o755)
        for name in ("home", "lake"):
            (top / name).mkdir(0o755)
        for name in ("home/.profile", "gold.json"):
            (top / name).write_text(token)
        environ = {"PATH": os.environ.get("PATH", ""), "API_TOKEN": token}
        sleeper = [sys.executable, "-c", "import time; time.sleep(3600)", f"--token={token}"]
        victim = subprocess.Popen(sleeper, env=environ, cwd=top, stdin=subprocess.DEVNULL)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        os.environ["ASSAY_ATTACK_TOKEN"] = token
        stack.callback(os.environ.pop, "ASSAY_ATTACK_TOKEN")
        local = [str(top / name) for name in ("service", "service.dgram", "lake/service")]
        local[2:2] = [abstract, abstract + "d"]
        ports: list[int] = []
        for number, place in enumerate([("127.0.0.1", 0)] * 2 + local):
            family = socket.AF_INET if number < 2 else socket.AF_UNIX
            stream = number % 2 == 0
            kind = socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
            sock = stack.enter_context(socket.socket(family, kind))
            sock.bind(place)
            if stream:
                sock.listen(64)
            ports.append(sock.getsockname()[1] if number < 2 else 0)
        os.mkfifo(top / "lake" / "fifo")
        stack.callback(os.close, os.open(top / "lake" / "fifo", os.O_RDONLY | os.O_NONBLOCK))
        for path in [*top.glob("service*"), *(top / "lake").iterdir()]:
            path.chmod(0o777)
        yield {
            "DIRECTORY": str(top),
            "GOLD": str(top / "gold.json"),
            "HOME": str(top / "home"),
            "TOKEN": token,  # in gold, in the victim's environment and on its command line
            "VICTIM": victim.pid,
            "PORT": ports[0],
            "UDP_PORT": ports[1],
            "SOCKET": str(top / "service"),
            "ABSTRACT": abstract,
            "MARKER": f"assay-{secrets.token_hex(8)}",  # a file name that nobody else uses
        }


def damage(target: Target) -> str:
    """What an attempt did outside of its jail; the empty string when nothing. Put right again, so
    that the next row answers for itself."""
    if _state(target["VICTIM"]) in ("Z", "T", ""):
        return "the victim was stopped or killed"
    gold = Path(target["GOLD"])
    if not gold.is_file() or gold.read_text() != target["TOKEN"]:
        gold.write_text(target["TOKEN"])
        return "the gold file was changed"
    expected = {"gold.json", "home", "lake", "service", "service.dgram"}
    if strange := set(os.listdir(target["DIRECTORY"])) - expected:
        for path in [Path(target["DIRECTORY"], name) for name in strange]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return f"left in the gold directory: {sorted(strange)}"
    places = ("/dev/shm", "/tmp", tempfile.gettempdir())
    found = [f"{p}/{n}" for p in places for n in os.listdir(p) if n.startswith(target["MARKER"])]
    for path in found:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return f"left behind: {found}" if found else ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def source(row: Row, target: Target) -> str:
    """The code to run, with the target's places put in; the token in halves."""
    used = sorted(set(re.findall(r"\b(?:call|refused)\(\s*\"(\w+)\"", row["code"])))
    table, token = NUMBERS[machine()], target["TOKEN"]
    places = {name: place for name, place in target.items() if name != "TOKEN"}
    values = places | {"NR": {name: table.get(name, -1) for name in used}}
    values["HALVES"] = (token[:10], token[10:])
    return "".join(f"{name} = {value!r}\n" for name, value in values.items()) + _HEAD + row["code"]


def stopped(row: Row, result: Result, target: Target) -> bool:
    """The usual rule is `closed`: nothing got through, nothing leaked, and no result was lost."""
    token = target["TOKEN"]
    leaked = token in result.stdout + result.stderr
    leaked = leaked or any(token.encode() in data for data in result.files.values())
    closed = "OPEN" not in result.stdout and not leaked and result.status != "sandbox_error"
    return eval(row.get("stopped", "closed"), {"closed": closed, "r": result})


async def attack(pool: Pool, row: Row, target: Target) -> Row:
    """Run one row, then see that the pool still serves and that nothing was left."""
    shared = {row["shared"]: row["shared"]} if "shared" in row else None
    limits = replace(SMALL, **row.get("limits", {}))
    code, fetch = source(row, target), row.get("fetch", ())
    result = await pool.run(code, fetch=fetch, limits=limits, shared=shared)
    problems: list[str] = []
    if row.get("arch") in (None, platform.machine()) and not stopped(row, result, target):
        problems.append(_summary(result))
    if harm := damage(target):
        problems.append(harm)
    after = await pool.run(row.get("then", 'print("fine")'), limits=Limits(wall_s=20))
    if after.stdout != "fine\n":
        problems.append(f"the next call gave {_summary(after)}")
    found = {"number": row["number"], "name": row["name"], "stopped": not problems}
    return found | {"detail": "; ".join(problems), "level": str(after.layers.get("level", ""))}


def _summary(result: Result) -> str:
    shown = (result.stdout[-200:] + result.stderr[-300:]).strip()
    return f"{result.status} ({result.why}), exit {result.exit_code}: {shown!r}"


async def run_rows(rows: Sequence[Row], config: Config) -> list[Row]:
    """Every row on one pool, then a look for processes that outlived their call."""
    with planted() as target:
        async with Pool(config) as pool:
            await pool.run("pass")  # from here on the spare jail stands
            before = _descendants(target["VICTIM"])
            found = [await attack(pool, row, target) for row in rows if "shared" not in row]
            left = len(before) + 1
            for _ in range(100):
                left = len(_descendants(target["VICTIM"])) - len(before)
                if left <= 0:
                    break
                await asyncio.sleep(0.05)
            if left > 0:
                more = {"number": 0, "name": "nothing left running", "stopped": False}
                found.append({**found[-1], **more, "detail": f"{left} processes more than before"})
        # apart, because the jails of a pool that shares nothing are closed earlier
        async with Pool(replace(config, shared={"lake": f"{target['DIRECTORY']}/lake"})) as pool:
            found += [await attack(pool, row, target) for row in rows if "shared" in row]
    return found


def _descendants(but: int) -> list[int]:
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [p for p in usage.descendants(proc, os.getpid()) if p != but]
    finally:
        os.close(proc)


if __name__ == "__main__":
    wanted: list[Level] = [level for level in LEVELS if level in sys.argv[1:]]
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    config = Config(workers=1, level=next(iter(wanted), None), min_level="limits", stack=("numpy",))
    rows = [row for row in ROWS if not numbers or row["number"] in numbers]
    outcomes = asyncio.run(run_rows(rows, config))
    for outcome in outcomes:
        print(json.dumps(outcome))
    sys.exit(any(not outcome["stopped"] for outcome in outcomes))
