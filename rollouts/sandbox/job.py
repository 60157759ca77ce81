"""One call while it runs: what init knows of it, and the answer it sends at the end."""

from __future__ import annotations

import os
import resource
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from rollouts.sandbox import jail, wire
from rollouts.sandbox.disk import DiskWatch
from rollouts.sandbox.memory import MemoryWatch
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.orders import BEGUN, CLOSED
from rollouts.sandbox.processor import ProcessorWatch
from rollouts.sandbox.results import Collected, collect
from rollouts.sandbox.scene import Place, Scene
from rollouts.sandbox.text import Capture
from rollouts.sandbox.warm import Borrowed, Fate
from rollouts.sandbox.watch import Members

_SET_UP_S = 60.0


@dataclass
class Watches:
    """What looks after a call from before its first line to its end."""

    members: Members
    memory: MemoryWatch
    processor: ProcessorWatch
    disk: DiskWatch | None  # with namespaces the mounts have their sizes

    def exceeded(self, until: float) -> str:
        """The first limit that is exceeded, by its word in `Job.end`; empty when none is."""
        pids = self.members.pids()
        if self.memory.exceeded(pids, until):
            return "memory"
        if self.processor.exceeded(pids):
            return "cpu"
        return "disk" if self.disk is not None and self.disk.exceeded(pids) else ""

    def over_at_the_end(self, until: float) -> str:
        """The limit that is exceeded by what is there when the code has ended: its files, and the
        memory of processes that it left behind."""
        pids = self.members.pids()
        if self.disk is not None and self.disk.exceeded(pids):
            return "disk"
        return "memory" if pids and self.memory.exceeded(pids, until) else ""


@dataclass
class Job:
    """One call. `end` is "exit", or why it was ended."""

    conn: socket.socket
    stage: Scene
    place: Place
    proc: int
    work_fd: int
    launcher: socket.socket  # hears when the code starts and when all of it is dead
    borrowed: Borrowed | None = None  # with namespaces; else the user process is our own fork
    fate: Fate | None = None
    limits: Limits = field(default_factory=Limits)
    before: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, Any])
    watches: Watches | None = None
    ready: int = -1  # where the user process says how far it is
    said: bytes = b""
    user: int = 0
    status: int | None = None
    end: str = "exit"
    started: float = 0.0
    peak: int = 0
    cell: int | None = None  # in a session: 1 when the cell raised, 0 when not, none if not over

    @property
    def begun(self) -> bool:
        return self.said.startswith(CLOSED + BEGUN)

    @property
    def deadline(self) -> float:
        """The code's own, counted from its first line; before that, the one of our set-up."""
        return self.started + (self.limits.wall_s if self.begun else _SET_UP_S)


def watches(job: Job, model: int, user: int = 0) -> Watches:
    """To be made before the code runs: `model` is a process as its own will begin, by its number
    in `job.proc`. `user` is the user process where it is not init's child."""
    limits, proc = job.limits, job.proc
    disk = None
    if not job.stage.namespaces:
        sizes = {job.place.work: limits.work_mb * MIB, job.place.tmp: limits.tmp_mb * MIB}
        most = min(limits.file_mb, limits.work_mb) * MIB
        disk = DiskWatch(proc, sizes, limits.work_files, most)
    return Watches(
        Members(proc, job.stage.own_proc, user),
        MemoryWatch(proc, limits.total_mb * MIB, model),
        ProcessorWatch(proc, limits.cpu_seconds, limits.threads),
        disk,
    )


def new_capture(job: Job) -> list[Capture]:
    return [Capture(job.limits.output_kb * 1024) for _ in range(2)]


def answer(job: Job, names: list[str], capture: list[Capture]) -> None:
    """Send how it ended, the output, and the files that may go."""
    if job.end == "abandoned":
        return
    found = collect(job.work_fd, names, job.limits, job.before) if job.user else Collected()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = (job.fate.cpu_s, job.fate.peak) if job.fate else (0.0, 0)
    header = {
        "end": job.end,
        "status": job.status if job.cell is None else job.cell << 8,
        "wall": time.monotonic() - job.started if job.user else 0.0,
        "cpu": usage.ru_utime + usage.ru_stime + cpu,
        "peak": max(usage.ru_maxrss * 1024, job.peak, peak),
        "started": job.started,
        "full": _is_full(job),
        "streams": [[len(c.head), len(c.tail()), c.total] for c in capture],
        "files": [[name, size] for name, _, size in found.files],
        "refused": found.refused,
    }
    parts = [part for c in capture for part in (c.head, c.tail())]
    wire.send(job.conn, header, parts)
    for _, descriptor, size in found.files:
        found.stream(job.conn, descriptor, size)


def timed_out(wall_s: float) -> dict[str, Any]:
    """The answer in place of an init that did not end its call."""
    return {
        "end": "timeout",
        "status": None,
        "wall": wall_s,
        "cpu": 0.0,
        "peak": 0,
        "started": time.monotonic() - wall_s,
        "full": False,
        "streams": [[0, 0, 0], [0, 0, 0]],
        "files": [],
        "refused": {},
    }


def _is_full(job: Job) -> bool:
    """Whether a scratch file system has no byte or no inode left."""
    if not job.stage.namespaces:
        return False
    seen = [os.statvfs(path) for path in (*job.place.writable, jail.SHM)]
    return any(s.f_bavail == 0 or s.f_favail == 0 for s in seen)
