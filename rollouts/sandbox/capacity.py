"""How many calls fit on a node at once: by its processors, and by the memory each may take."""

from __future__ import annotations

import os
from pathlib import Path

from rollouts.sandbox.model import MIB, Limits

_UNLIMITED = 1 << 60  # version 1 of the control groups writes a huge number for "no limit"


def worker_count(limits: Limits | None = None, root: Path = Path("/")) -> int:
    """One worker a core of ours, fewer where the memory that is free now would not hold one call
    each at its limits; at least one."""
    cores = len(os.sched_getaffinity(0))
    return fitting(cores, free_bytes(root), limits or Limits())


def fitting(cores: int, free: int, limits: Limits) -> int:
    """The same from given numbers; `free` in bytes."""
    each = (limits.total_mb + limits.work_mb + limits.tmp_mb + limits.shm_mb) * MIB
    return max(1, min(cores, free // each))


def free_bytes(root: Path = Path("/")) -> int:
    """What the machine has free, and no more than our control groups leave of their limits."""
    free = _UNLIMITED
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for above in [group, *group.parents]:
            if above == top.parent:
                break
            held = max(0, _number(above / used, 0) - _cached(above / "memory.stat"))
            free = min(free, _number(above / limit) - held)
    return max(0, free)


def _cached(path: Path) -> int:
    """File pages that the kernel gives back when asked: they count as used and are free."""
    names = ("inactive_file", "total_inactive_file")  # of version 2, of version 1 with its children
    found = [line.split()[1] for line in _lines(path) if line.split()[0] in names]
    return max(map(int, found), default=0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path, missing: int = _UNLIMITED) -> int:
    text = "".join(_lines(path)[:1])
    return int(text) if text.isdigit() else missing
