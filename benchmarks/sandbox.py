"""Warm calls against a cold interpreter with the same imports, as ratios of one run.

`python benchmarks/sandbox.py [--calls N] [--check]`; with --check the exit status is 1 when the
typical call is less than 5 times faster than a cold one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rollouts.sandbox.model import STACK, Config, Result
from rollouts.sandbox.pool import Pool
from rollouts.sandbox.worker import environment

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


def cold(code: str, files: dict[str, bytes], calls: int, workers: int) -> float:
    """Seconds per call with a new interpreter each time, `workers` at once."""
    with tempfile.TemporaryDirectory() as top:
        for name, data in {**files, "main.py": code.encode()}.items():
            (Path(top) / name).write_bytes(data)
        command, env = [sys.executable, "main.py"], environment(Config())
        start = time.monotonic()
        for _ in range(calls // workers):
            running = [subprocess.Popen(command, cwd=top, env=env) for _ in range(workers)]
            if any(process.wait() for process in running):
                raise RuntimeError("the cold run failed")
        return (time.monotonic() - start) / (calls // workers * workers)


async def warm(pool: Pool, code: str, files: dict[str, bytes], calls: int, workers: int) -> float:
    """Seconds per call in the jail, `workers` callers that each wait for their answer."""

    async def caller(count: int) -> None:
        for _ in range(count):
            result: Result = await pool.run(code, files, ["prediction.csv"])
            if result.status != "ok":
                raise RuntimeError(f"{result.status}: {result.stderr}")

    await caller(3)
    start = time.monotonic()
    await asyncio.gather(*(caller(calls // workers) for _ in range(workers)))
    return (time.monotonic() - start) / (calls // workers * workers)


def private_mb(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean", "Private_Dirty")):
                total += int(line.split()[1])
    return total / 1024


async def memory_per_call(pool: Pool) -> float:
    """Private memory of one idle call: its init and its user process."""
    from rollouts.sandbox import watch

    proc = os.open("/proc", os.O_RDONLY)
    await asyncio.sleep(0.5)
    before = set(watch.descendants(proc, os.getpid()))
    calls = [asyncio.create_task(pool.run("import time; time.sleep(4)")) for _ in range(2)]
    await asyncio.sleep(2)
    added = list(set(watch.descendants(proc, os.getpid())) - before)
    used = private_mb(added) / len(calls)
    await asyncio.gather(*calls)
    os.close(proc)
    return used


async def measure(calls: int, say: Callable[[str], None]) -> dict[str, float]:
    files = {"train.csv": table(2000)}
    found: dict[str, float] = {}
    async with Pool(Config(workers=2, spares=2)) as pool:
        for workers in (1, 2):
            for name, code, given in (("empty", "", {}), ("typical", TYPICAL, files)):
                slow = cold(
                    IMPORTS + code, given, max(2, calls // 10) // workers * workers, workers
                )
                fast = await warm(pool, code, given, calls, workers)
                found[f"{name}_{workers}"] = slow / fast
                say(
                    f"{name:8} {workers} worker(s): cold {slow * 1e3:7.1f} ms,"
                    f" warm {fast * 1e3:6.1f} ms a call, ratio {slow / fast:5.1f}"
                )
        found["private_mb"] = await memory_per_call(pool)
        say(f"private memory of an idle call: {found['private_mb']:.1f} MB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = asyncio.run(measure(args.calls, lambda line: print(line, flush=True)))
    if args.json:
        print(json.dumps(found))
    return int(args.check and found["typical_1"] < 5)


if __name__ == "__main__":
    sys.exit(main())
