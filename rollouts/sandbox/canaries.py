"""Ten attempts to break out, for `assay doctor --attack`: each prints OPEN when it got through.

They are a sample of the attack table that the tests run (tests/support/attacks.py).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rollouts.sandbox.model import Config, Level, Limits
from rollouts.sandbox.pool import Pool

LIMITS = Limits(wall_s=10, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8, processes=32)
# Every attempt begins with this; GOLD, VICTIM, PORT, ABSTRACT and HALVES of the secret are set.
_HEAD = """
import os, socket, sys, time
SECRET = "".join(HALVES)
def opened():
    print("OPEN", flush=True); os._exit(0)
def tries(*steps):
    for step in steps:
        try: step()
        except OSError: continue
        opened()
"""
ATTEMPTS = {
    "read a file outside of the jail": "tries(lambda: open(GOLD).read())",
    "read it through another process": (
        'tries(lambda: open(f"/proc/{VICTIM}/root{GOLD}").read(),\n'
        '      lambda: open(f"/proc/{os.getppid()}/root{GOLD}").read())'
    ),
    "read another process's command line": (
        "for pid in {VICTIM, 1, os.getppid()}:\n"
        '    try: text = open(f"/proc/{pid}/cmdline").read()\n'
        "    except OSError: continue\n"
        "    if SECRET in text: opened()"
    ),
    "write beside that file": 'tries(lambda: open(os.path.dirname(GOLD) + "/new", "w"))',
    "bring it back as a result": 'os.symlink(GOLD, "prediction.csv")',
    "reach a port of this machine": (
        'tries(lambda: socket.create_connection(("127.0.0.1", PORT), 2),\n'
        "      lambda: socket.socket(socket.AF_UNIX).connect(ABSTRACT))"
    ),
    "signal another process": "tries(lambda: os.kill(VICTIM, 0), lambda: os.kill(VICTIM, 9))",
    "more processes than allowed": (
        "for count in range(64):\n"
        "    try: child = os.fork()\n"
        "    except OSError: sys.exit()\n"
        "    if child == 0: time.sleep(20); os._exit(0)\n"
        "opened()"
    ),
    "more memory than allowed, over several processes": (
        "for _ in range(6):\n"
        "    if os.fork() == 0: x = b'1' * (100 << 20); time.sleep(20)\n"
        "time.sleep(6)\n"
        "opened()"
    ),
    "fill the disk": (
        'for i in range(20): open(f"f{i}", "wb").write(bytes(1 << 20))\ntime.sleep(1)\nopened()'
    ),
}


@dataclass(frozen=True)
class Outcome:
    """Whether an attempt was stopped, what was seen if not, and at which level of the sandbox."""

    name: str
    stopped: bool
    detail: str
    level: str


def run_all(level: Level | None = None) -> list[Outcome]:
    """Run the ten attempts at `level`, or at the best one that this machine has."""
    return asyncio.run(_run_all(Config(workers=1, level=level, min_level="limits", stack=())))


async def _run_all(config: Config) -> list[Outcome]:
    secret, abstract = secrets.token_hex(16), f"\0assay-{secrets.token_hex(8)}"
    with tempfile.TemporaryDirectory() as top, socket.create_server(("127.0.0.1", 0)) as port:
        os.chmod(top, 0o755)
        gold = Path(top) / "gold.json"
        gold.write_text(secret)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(abstract)
        listening.listen()
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)", secret]
        victim = subprocess.Popen(sleeper, stdin=subprocess.DEVNULL)
        names = {"GOLD": str(gold), "VICTIM": victim.pid, "PORT": port.getsockname()[1]}
        names |= {"ABSTRACT": abstract, "HALVES": (secret[:9], secret[9:])}
        head = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + _HEAD
        found: list[Outcome] = []
        try:
            async with Pool(config) as pool:
                for name, code in ATTEMPTS.items():
                    got = await pool.run(head + code, fetch=["prediction.csv"], limits=LIMITS)
                    open_ = "OPEN" in got.stdout or secret in got.stdout or bool(got.files)
                    lost = got.status == "sandbox_error" or victim.poll() is not None
                    detail = f"{got.status} ({got.why}): {(got.stdout + got.stderr)[-300:]!r}"
                    level = str(got.layers.get("level", ""))
                    stopped = not (open_ or lost or os.listdir(top) != ["gold.json"])
                    found.append(Outcome(name, stopped, "" if stopped else detail, level))
        finally:
            listening.close()
            victim.kill()
            victim.wait()
    return found
