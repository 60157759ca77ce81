"""What the speed scripts share: sides that work in turn, commands that are watched, the machine."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Took:
    """Seconds by the clock; processor seconds of this process and of its children that ended."""

    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> Took:
    def now() -> tuple[float, float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = time.process_time() + children.ru_utime + children.ru_stime
        return time.perf_counter(), cpu

    before = now()
    work()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # its work goes on after the call
        torch.cuda.synchronize()
    after = now()
    return Took(after[0] - before[0], after[1] - before[1])


def compare(
    name: str, sides: Mapping[str, Callable[[], Any]], rounds: int, count: int = 1, unit: str = ""
) -> dict[str, Took]:
    """Let the sides work in turn, after one round that nobody counts, so that a change in the
    machine's load meets all. Prints a line a side: the median time, `count` units a second of
    processor time, and the ratio of its time to the first side's, the median over rounds with the
    lowest and the highest. Returns the medians."""
    for work in sides.values():
        work()
    found = [{side: timed(work) for side, work in sides.items()} for _ in range(rounds)]
    medians: dict[str, Took] = {}
    first = next(iter(sides))
    print(name)
    for side in sides:
        wall, cpu = (statistics.median(getattr(r[side], k) for r in found) for k in ("wall", "cpu"))
        medians[side] = Took(wall, cpu)
        line = f"  {side:<22} {1e3 * cpu:10.2f} ms of processors {1e3 * wall:10.2f} ms by the clock"
        if unit:
            line += f"  {count / max(cpu, 1e-9):10,.1f} {unit}/s"
        if side != first:
            ratios = sorted(r[side].cpu / max(r[first].cpu, 1e-9) for r in found)
            clock = statistics.median(r[side].wall / r[first].wall for r in found)
            line += f"  ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            line += f", by the clock {clock:.2f}"
        print(line, flush=True)
    return medians


def machine() -> str:
    """The kind of processor, its cores, and how busy it is."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    known = dict(line.split(":", 1) for line in lines if ":" in line)
    about = {key.strip(): value.strip() for key, value in known.items()}
    has = [f for f in ("amx_bf16", "avx512_bf16", "avx2") if f in about.get("flags", "").split()]
    kind = f"{about.get('model name', 'a processor')} with {has[0] if has else 'none of AVX'}"
    return f"{kind}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


# --- commands ------------------------------------------------------------------------------------

# Runs the command and says what the parent and its children took, in seconds.
_CHILD = """
import os, sys
sys.path.insert(0, sys.argv.pop(1))
import assay
try:
    status = assay.main(sys.argv[1:])
except SystemExit as end:
    status = end.code
own, system, children, children_system, _ = os.times()
print("took", own + system, children + children_system)
sys.exit(status)
"""


@dataclass(frozen=True)
class Command:
    """Processor seconds of an `assay` command and of its processes, seconds by the clock, and the
    most memory that all of them had together, in bytes (PSS)."""

    parent: float
    children: float
    wall: float
    memory: int

    @property
    def cpu(self) -> float:
        return self.parent + self.children


def command(*words: object, checkout: Path = ROOT, limit: int | None = None) -> Command:
    """One `assay` command, which must succeed; `limit`: bytes of address space of each process."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(checkout), *map(str, words)],
        cwd=checkout,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )
    watch = MemoryWatch(process.pid)
    watch.start()
    said, _ = process.communicate()
    wall = time.perf_counter() - start
    watch.over.set()
    watch.join()
    if process.returncode:
        raise SystemExit(f"assay {' '.join(map(str, words))}: exit status {process.returncode}")
    took = next(line for line in said.splitlines() if line.startswith("took "))
    parent, children = map(float, took.split()[1:])
    return Command(parent, children, wall, watch.memory)


def workers_ratio(one: Sequence[Command], more: Sequence[Command], workers: int) -> str:
    """How much faster more workers are than one: by the clock, and as processor time allows where
    every worker has a core of its own (what the parent does stays there, the rest is divided)."""
    clock = statistics.median(a.wall / b.wall for a, b in zip(one, more, strict=True))
    a, b = (min(runs, key=lambda run: run.cpu) for runs in (one, more))
    allowed = max(a.parent, a.children) / max(b.parent, b.children / workers)
    return f"{workers} workers : 1 by the clock {clock:.2f}, by processor time {allowed:.2f}"


class MemoryWatch(threading.Thread):
    """Looks at a process four times a second; `memory` is the most that was seen, in bytes."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.over, self.memory = process, threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(0.25):
            self.memory = max(self.memory, proportional_memory(self.process))


def proportional_memory(process: int) -> int:
    """PSS of a process and everything below it, in bytes; 0 when it is gone."""
    total, waiting = 0, [process]
    while waiting:
        place = Path(f"/proc/{waiting.pop()}")
        try:
            for line in (place / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
            for task in (place / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # ended meanwhile
            continue
    return total
