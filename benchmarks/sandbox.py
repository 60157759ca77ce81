"""How much faster a call to a running sandbox is than a new Python that imports the same packages.

`python -m benchmarks.sandbox [--calls N] [--rounds N] [--check]`: both sides in turns, medians.
With --check the exit status is 1 when the typical call is less than 5 times faster than a cold one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rollouts.sandbox import usage
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


@dataclass
class Spent:
    """What one side used: seconds from start to end, and of processor time, per call."""

    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])

    def add(self, wall: float, cpu: float, calls: int) -> None:
        self.wall.append(wall / calls)
        self.cpu.append(cpu / calls)


def cold(code: str, files: dict[str, bytes], calls: int, workers: int, spent: Spent) -> None:
    """`calls` times a new interpreter, `workers` at once."""
    with tempfile.TemporaryDirectory() as top:
        for name, data in {**files, "main.py": code.encode()}.items():
            (Path(top) / name).write_bytes(data)
        command, env = [sys.executable, "main.py"], environment(Config())
        for _ in range(calls // workers):
            start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            # a session of its own, as the warm side has: schedulers may share by session
            running = [
                subprocess.Popen(command, cwd=top, env=env, start_new_session=True)
                for _ in range(workers)
            ]
            if any(process.wait() for process in running):
                raise RuntimeError("the cold run failed")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            spent.add(time.monotonic() - start, used, workers)


async def warm(
    pool: Pool, code: str, files: dict[str, bytes], calls: int, workers: int, spent: Spent
) -> None:
    """`calls` calls in the jail from `workers` callers that each wait for their answer."""

    async def caller(count: int) -> None:
        for _ in range(count):
            result: Result = await pool.run(code, files, ["prediction.csv"])
            if result.status != "ok":
                raise RuntimeError(f"{result.status}: {result.why}: {result.stderr}")

    await caller(2)
    start, before = time.monotonic(), pool_cpu()
    await asyncio.gather(*(caller(calls // workers) for _ in range(workers)))
    took = time.monotonic() - start
    await asyncio.sleep(0.2)  # the last spare is part of the price
    spent.add(took, pool_cpu() - before, calls // workers * workers)


def pool_cpu() -> float:
    """Processor seconds of this process, the launchers, and all that these have waited for."""
    total, proc = time.process_time(), os.open("/proc", os.O_RDONLY)
    for pid in usage.descendants(proc, os.getpid()):
        times = usage.read_proc(proc, f"{pid}/stat").rpartition(b")")[2].split()[11:15]
        total += sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    os.close(proc)
    return total


def private_mb(pids: Iterable[int]) -> float:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean", "Private_Dirty")):
                total += int(line.split()[1])
    return total / 1024


def jails(pool: Pool) -> list[int]:
    """The inits and user processes: all below the launchers but what serves every call."""
    proc, found = os.open("/proc", os.O_RDONLY), list[int]()
    for launcher in pool._launchers:
        (inner,) = usage.children(proc, launcher.process.pid)
        below = usage.descendants(proc, inner)
        parents = [pid for pid in below if usage.children(proc, pid)]
        # with namespaces one child of the inner process is warm, and it forks the user processes
        found += [pid for pid in below if pid not in parents] if len(parents) == 1 else below
    os.close(proc)
    return found


async def memory_per_call(pool: Pool) -> tuple[float, float]:
    """MB of private memory of one jail, init and user process together: while it waits for a call,
    and while its call is idle."""
    await pool.run("")
    await asyncio.sleep(1)
    spares, count = pool.config.spares, 2
    waiting = private_mb(jails(pool))
    calls = [asyncio.create_task(pool.run("import time; time.sleep(6)")) for _ in range(count)]
    await asyncio.sleep(3)
    everything = private_mb(jails(pool))
    await asyncio.gather(*calls)
    return waiting / spares, (everything - waiting) / count


async def measure(calls: int, rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Cold and warm in turns, the median of `rounds` for each."""
    files = {"train.csv": table(2000)}
    found: dict[str, float] = {}
    async with Pool(Config(workers=2, spares=2)) as pool:
        for workers in (1, 2):
            for name, code, given in (("empty", "", {}), ("typical", TYPICAL, files)):
                slow, fast = Spent(), Spent()
                for _ in range(rounds):
                    cold(IMPORTS + code, given, workers, workers, slow)
                    await warm(pool, code, given, calls, workers, fast)
                wall, cpu = (
                    (median(a) * 1e3, median(b) * 1e3)
                    for a, b in ((slow.wall, fast.wall), (slow.cpu, fast.cpu))
                )
                found[f"{name}_{workers}"] = wall[0] / wall[1]
                found[f"{name}_{workers}_cpu"] = cpu[0] / cpu[1]
                say(
                    f"{name:8} {workers} worker(s): cold {wall[0]:7.1f} ms, warm {wall[1]:6.1f} ms"
                    f" a call, ratio {wall[0] / wall[1]:5.1f}; processor {cpu[0]:7.1f} and"
                    f" {cpu[1]:6.1f} ms, ratio {cpu[0] / cpu[1]:5.1f}"
                )
        found["waiting_mb"], found["private_mb"] = await memory_per_call(pool)
        say(
            f"private memory: {found['waiting_mb']:.1f} MB of a jail that waits for its call,"
            f" {found['private_mb']:.1f} MB of a call that is idle"
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20, help="warm calls a round (default 20)")
    parser.add_argument("--rounds", type=int, default=5, help="median of how many (default 5)")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = asyncio.run(measure(args.calls, args.rounds, lambda line: print(line, flush=True)))
    if args.json:
        print(json.dumps(found))
    return int(args.check and found["typical_1"] < 5)


if __name__ == "__main__":
    sys.exit(main())
