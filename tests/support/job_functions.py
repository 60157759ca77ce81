"""Functions that tests run in other processes, which import them from here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mini_slurm import wait_for

from assay.workers import map_ordered

STARTED: list[str] = []


def start(word: str) -> None:
    STARTED.append(word)


def work(job: int) -> tuple[int, str, int]:
    return job * job, STARTED[-1], os.getpid()


def wait(job: int, last: int, there: str) -> int:
    """The first job ends when the last one has been done, which leaves a file."""
    if job == last:
        Path(there).touch()
    elif job == 0:
        wait_for("the last job", Path(there).exists)
    return job


def die(job: int) -> int:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def killed_parent() -> None:
    """Print the processes that do its jobs, which have no end, and die."""
    found = map_ordered(work, iter(int, 1), 2, start, ("begun",))
    print(*{next(found)[2] for _ in range(200)}, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
