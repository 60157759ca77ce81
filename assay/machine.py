"""What this process may use of its machine: cores, and how much memory it may still take."""

from __future__ import annotations

import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def usable_cores() -> int:
    """Cores this process may run on, which in a container or a job is fewer than there are.

    Only Linux can tell; elsewhere it is the number of all cores.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes that can be had without swapping: what Linux says the machine has, or what is left of
    the limit of a container or job, whichever is less. None where neither can be read."""
    left = [x for x in (machine_memory(proc), _of_cgroup(proc, cgroups)) if x is not None]
    return min(left, default=None)


def machine_memory(proc: Path, field: str = "MemAvailable") -> int | None:
    """Bytes of a field of /proc/meminfo; None where it cannot be read."""
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields[field].split()[0]) * 1024 if field in fields else None


def _of_cgroup(proc: Path, cgroups: Path) -> int | None:
    """The least left in this process's control group and those around it (versions 2 and 1)."""
    found = [left for folder in _groups(proc, cgroups) if (left := _left_in(folder)) is not None]
    return min(found, default=None)


def _groups(proc: Path, cgroups: Path) -> list[Path]:
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        number, kinds, path = line.split(":", 2)
        if number == "0":
            root = cgroups
        elif "memory" in kinds.split(","):
            root = cgroups / "memory"
        else:
            continue
        # inside a container the path may be the host's: then only the root is there
        own = root / path.lstrip("/")
        folders += [own, *(p for p in own.parents if p == root or root in p.parents)]
    return folders


def _left_in(folder: Path) -> int | None:
    """Limit − use, where cached file pages that the kernel can drop count as free."""
    for limit, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = (folder / limit).read_text(encoding="ascii").strip()
            now = int((folder / used).read_text(encoding="ascii"))
            stat = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        if most == "max":
            return None
        fields = dict(line.split(None, 1) for line in stat)
        return max(0, int(most) - now + int(fields.get(cached, 0)))
    return None
