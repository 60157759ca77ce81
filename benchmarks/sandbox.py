"""How much faster a call to a running sandbox is than a new Python that imports the same packages.

`python -m benchmarks.sandbox [--calls N] [--rounds N]`: both sides in turns, medians of a call, for
one caller and two; then the memory of a jail that waits for its call, and of an idle call. The
processor time of the warm side is all that pool, launchers and jails used.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.runner import Took, machine, proportional_memory
from rollouts.sandbox import usage
from rollouts.sandbox.model import STACK, Config
from rollouts.sandbox.pool import Pool, environment

IMPORTS = "\n".join(f"import {name}" for name in STACK) + "\n"
TYPICAL = """
import pandas as pd
from sklearn.linear_model import LogisticRegression
data = pd.read_csv("train.csv")
model = LogisticRegression().fit(data[["a", "b", "c"]], data["y"])
pd.DataFrame({"y": model.predict(data[["a", "b", "c"]])}).to_csv("prediction.csv", index=False)
"""


def table(rows: int) -> bytes:
    rng = random.Random(0)
    lines = ["a,b,c,y"]
    for _ in range(rows):
        a, b, c = (rng.gauss(0, 1) for _ in range(3))
        lines.append(f"{a:.6f},{b:.6f},{c:.6f},{int(a + b * c > 0)}")
    return "\n".join(lines).encode()


def cold(code: str, files: dict[str, bytes], calls: int) -> Took:
    """Seconds a call of `calls` new interpreters side by side."""
    with tempfile.TemporaryDirectory() as top:
        for name, data in {**files, "main.py": code.encode()}.items():
            (Path(top) / name).write_bytes(data)
        start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        # a session of its own, as the warm side has: schedulers may share by session
        command, env = [sys.executable, "main.py"], environment(Config())
        running = [
            subprocess.Popen(command, cwd=top, env=env, start_new_session=True)
            for _ in range(calls)
        ]
        if any(process.wait() for process in running):
            raise RuntimeError("the cold run failed")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took((time.monotonic() - start) / calls, used / calls)


async def warm(pool: Pool, code: str, files: dict[str, bytes], calls: int, callers: int) -> Took:
    """Seconds a call of `calls` calls in the jail, by callers that each wait for their answer."""

    async def caller(count: int) -> None:
        for _ in range(count):
            result = await pool.run(code, files, ["prediction.csv"])
            if result.status != "ok":
                raise RuntimeError(f"{result.status}: {result.why}: {result.stderr}")

    await caller(2)
    start, before = time.monotonic(), pool_cpu()
    await asyncio.gather(*(caller(calls // callers) for _ in range(callers)))
    took, calls = time.monotonic() - start, calls // callers * callers
    await asyncio.sleep(0.2)  # the last spare is part of the price
    return Took(took / calls, (pool_cpu() - before) / calls)


def pool_cpu() -> float:
    """Processor seconds of this process, the launchers, and all that these have waited for."""
    total, proc = time.process_time(), os.open("/proc", os.O_RDONLY)
    for pid in usage.descendants(proc, os.getpid()):
        times = usage.read_proc(proc, f"{pid}/stat").rpartition(b")")[2].split()[11:15]
        total += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    os.close(proc)
    return total


async def memory() -> None:
    """What a jail that waits adds to all processes together, and what an idle call adds to that."""
    held: dict[int, float] = {}
    for spares in (2, 6):
        async with Pool(Config(workers=1, spares=spares)) as pool:
            await pool.run("")
            await asyncio.sleep(3)
            held[spares] = proportional_memory(os.getpid()) / 1e6
            if spares == 2:
                calls = [asyncio.create_task(pool.run("import time; time.sleep(6)"))]
                await asyncio.sleep(3)
                busy = proportional_memory(os.getpid()) / 1e6
                await asyncio.gather(*calls)
    waiting = (held[6] - held[2]) / 4
    print(f"memory: {waiting:.1f} MB a waiting jail, {busy - held[2]:.1f} MB more an idle call")


async def measure(calls: int, rounds: int) -> None:
    files = {"train.csv": table(2000)}
    async with Pool(Config(workers=2, spares=2)) as pool:
        for callers in (1, 2):
            for name, code, given in (("empty", "", {}), ("typical", TYPICAL, files)):
                pairs: list[tuple[Took, Took]] = []
                for _ in range(rounds):
                    slow = cold(IMPORTS + code, given, callers)
                    pairs.append((slow, await warm(pool, code, given, calls, callers)))
                said = [f"{name} call, {callers} worker(s):"]
                for kind in ("wall", "cpu"):
                    a, b = (1e3 * median(getattr(p[i], kind) for p in pairs) for i in (0, 1))
                    said.append(f"{kind} cold {a:.1f} ms, warm {b:.1f} ms, ratio {a / b:.1f};")
                print(*said, flush=True)
    await memory()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20, help="warm calls a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="median of how many (%(default)s)")
    args = parser.parse_args()
    print(machine())
    asyncio.run(measure(args.calls, args.rounds))


if __name__ == "__main__":
    main()
