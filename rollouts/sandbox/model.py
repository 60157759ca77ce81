"""The sandbox's data: limits of a call and how many fit on a node, its result, the settings of a
pool, the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from assay.machine import available_memory

Status = Literal["ok", "error", "timeout", "memory", "disk", "sandbox_error"]
Level = Literal["full", "confined", "limits"]
LEVELS: tuple[Level, ...] = ("full", "confined", "limits")  # best first

MIB = 1 << 20
_SKLEARN = (
    *("cluster", "compose", "decomposition", "ensemble", "impute", "linear_model", "metrics"),
    *("model_selection", "neighbors", "pipeline", "preprocessing", "svm", "tree"),
)
# What `stack` names is imported once by the launcher; absent packages are left out and reported.
STACK = (
    *("numpy", "scipy.stats", "scipy.optimize", "pandas", "sqlite3"),
    *(f"sklearn.{name}" for name in _SKLEARN),
    *("json", "csv", "subprocess"),
)


class SandboxError(RuntimeError):
    """The sandbox could not be started or asked; never the fault of the code that was to run."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one call. Sizes in MiB, times in seconds; tmpfs sizes count on top of memory."""

    wall_s: float = 200.0
    cpu_s: float | None = None  # None: wall_s
    memory_mb: int = 4096  # of each process (private, writable)
    total_mb: int = 6144  # of all processes together, shared pages counted once
    file_mb: int = 200  # largest single file
    work_mb: int = 1024
    work_files: int = 20_000
    tmp_mb: int = 512
    shm_mb: int = 64
    processes: int = 128
    descriptors: int = 256
    output_kb: int = 64  # of each stream that is kept: half from the start, half from the end
    fetch_mb: int = 64  # one fetched file
    fetch_total_mb: int = 256

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None and item.name == "cpu_s":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"limits.{item.name}={value!r}: give a number above zero")
            if value > 1e9:
                raise ValueError(f"limits.{item.name}={value!r}: too large to mean anything")

    @property
    def cpu_seconds(self) -> int:
        return max(1, int(self.cpu_s if self.cpu_s is not None else self.wall_s))


@dataclass(frozen=True)
class Result:
    """What one call gave. `refused` says, per requested file, why it did not come back."""

    status: Status
    exit_code: int | None = None  # as subprocess has it: -9 for a process that signal 9 ended
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0  # how much the code wrote, kept or not
    stderr_bytes: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    layers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    why: str = ""  # one sentence when the status is not ok
    queue_s: float = 0.0  # waiting for a free worker
    spawn_s: float = 0.0  # from there to the first line of the code


@dataclass(frozen=True)
class Report:
    """Which layers hold on this machine, by having tried each one."""

    level: Level
    uid: str  # "ordinary" or "root" (which is dropped before anything runs)
    layers: Mapping[str, bool | int]
    missing: Mapping[str, str]
    import_s: float = 0.0
    stack: Mapping[str, str] = field(default_factory=dict[str, str])  # package: version

    def short(self) -> dict[str, Any]:
        return {"level": self.level, "uid": self.uid, **self.layers}


@dataclass(frozen=True)
class Config:
    """Settings of a pool."""

    workers: int = 2
    min_level: Level = "confined"
    level: Level | None = None  # force one, for tests and benchmarks; None: the best that holds
    landlock_abi: int | None = None  # pretend the kernel is not newer than this
    spares: int = 1  # jails forked ahead of need, per launcher
    python: str = sys.executable
    stack: tuple[str, ...] = STACK
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    # name: directory that calls may be given, read only and without copying (docs/sandbox.md)
    shared: Mapping[str, str] = field(default_factory=dict[str, str])
    # names at the top of the file system that lead to folders of the work directory, for programs
    # with absolute paths (/app, /tests); at a level with namespaces only
    roots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.roots:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"sandbox.roots {name!r}: give a plain name such as 'app'")
        if self.workers < 1:
            raise ValueError(f"sandbox.workers={self.workers}: set 1 or more")
        for name, level in (("min_level", self.min_level), ("level", self.level)):
            if level is not None and level not in LEVELS:
                raise ValueError(f"sandbox.{name}={level!r}: choose one of {', '.join(LEVELS)}")
        for name, path in self.shared.items():
            if "/" in name or name in ("", ".", "..") or not os.path.isdir(path):
                raise ValueError(f"sandbox.shared {name!r}: {path!r} must be a directory")
            from rollouts.sandbox.syscalls import is_root  # most pools share nothing

            if is_root() and os.stat(path).st_mode & 0o005 != 0o005:
                raise ValueError(
                    f"sandbox.shared {name!r}: {path!r} is shut to other users, and root gives its"
                    " id up before it runs anything; open it with chmod -R a+rX"
                )


def worker_count(limits: Limits | None = None) -> int:
    """One worker a core of ours, fewer where the memory that is free now would not hold one call
    each at its limits; at least one."""
    return fitting(len(os.sched_getaffinity(0)), available_memory(), limits or Limits())


def fitting(cores: int, free: int | None, limits: Limits) -> int:
    """The same from given numbers; `free` in bytes, none where it is not known."""
    each = (limits.total_mb + limits.work_mb + limits.tmp_mb + limits.shm_mb) * MIB
    return cores if free is None else max(1, min(cores, free // each))


def closed_folder(program: str) -> str:
    """The first folder on the way to a program that other users cannot enter; "" for none."""
    for path in dict.fromkeys([os.path.abspath(program), os.path.realpath(program)]):
        parts = path.split(os.sep)[1:-1]
        for count in range(1, len(parts) + 1):
            folder = os.sep + os.sep.join(parts[:count])
            if not os.stat(folder).st_mode & 0o001:
                return folder
    return ""
