"""Calls of which 5 % crash, 5 % hang until their deadline of one second, 5 % take more memory than
they may, and the rest compute: is any lost, mixed up, or wrongly explained? Every call has a number
of its own that has to come back in its output and in its file."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rollouts.sandbox.model import Config, Limits, Result
from rollouts.sandbox.pool import Pool

_TELL = "print({i}); open('number', 'w').write('{i}')\n"
_MANY = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        x = bytearray(100 << 20)
        for at in range(0, len(x), 4096): x[at] = 1
        time.sleep(60)
time.sleep(60)
"""


@dataclass(frozen=True)
class Kind:
    """What a call does after it told its number, and what must be said about it."""

    code: str
    status: str
    why: str


KINDS = {
    "computes": [Kind("x = sum(range(1000))", "ok", r"")],
    "crash": [
        Kind("import ctypes; ctypes.string_at(0)", "error", r"ended by signal 11"),
        Kind("import os; os.abort()", "error", r"ended by signal 6"),
        Kind("import os; os.kill(os.getpid(), 9)", "error", r"ended by signal 9"),
        Kind("raise SystemExit(3)", "error", r"exit status 3"),
    ],
    "hang": [
        Kind("import time\nwhile True: time.sleep(1)", "timeout", r"still running after 1 s"),
        Kind(
            "import signal as s\ns.pthread_sigmask(s.SIG_BLOCK, range(1, 65))\nwhile True: pass",
            "timeout",  # its second by the clock is a second of the processor, too: either is due
            r"(still running after 1 s|used more than 1 s of processor time)",
        ),
        Kind(
            "import os\nif os.fork() == 0: os.setsid()\nos.read(os.pipe()[0], 1)",
            "timeout",
            r"still running after 1 s",
        ),
    ],
    "bomb": [
        Kind("x = bytearray(300 << 20)", "memory", r"one process asked for more than 128 MB"),
        Kind("x = []\nwhile True: x.append(bytes(1 << 20))", "memory", r"one process asked .*"),
        Kind(_MANY, "memory", r"all processes together used more than 384 MB"),
    ],
}


def wrong(i: int, kind: Kind, result: Result) -> str:
    """What is not as it should be; the empty string when all is."""
    told = (result.stdout, result.files.get("number", b"").decode("utf-8", "replace"))
    if told != (f"{i}\n", f"{i}"):
        return f"call {i} told {told}: {result.status}, {result.why}"
    if result.status != kind.status or not re.fullmatch(kind.why, result.why):
        return (
            f"call {i}: {result.status} because {result.why!r}, wanted {kind.status} {kind.why!r}"
        )
    return ""


async def soak(count: int, stack: tuple[str, ...], workers: int = 2) -> list[str]:
    """Run `count` calls; every problem in a sentence."""
    rng = random.Random(0)
    names = rng.choices(list(KINDS), (85, 5, 5, 5), k=count)
    kinds = [rng.choice(KINDS[name]) for name in names]
    problems: list[str] = []
    config = Config(workers=workers, min_level="limits", stack=stack, spares=workers)
    async with Pool(config) as pool:

        async def caller(numbers: Iterator[int]) -> None:
            for i in numbers:
                kind = kinds[i]
                wall = 1 if names[i] == "hang" else 120
                limits = Limits(wall_s=wall, memory_mb=128, total_mb=384)
                code = _TELL.format(i=i) + "import sys; sys.stdout.flush()\n" + kind.code
                result = await pool.run(code, fetch=["number"], limits=limits)
                if problem := wrong(i, kind, result):
                    problems.append(problem)

        left = iter(range(count))
        await asyncio.gather(*(caller(left) for _ in range(workers)))
    if pool.by_status.total() != count or pool.retried:
        problems.append(f"{pool.by_status} for {count} calls, {pool.retried} retried")
    return problems[:20]
