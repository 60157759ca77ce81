"""Functions that tests run in other processes, which import them from here."""

from __future__ import annotations

import os
import signal

STARTED: list[str] = []


def start(word: str) -> None:
    STARTED.append(word)


def work(job: int) -> tuple[int, str, int]:
    return job * job, STARTED[-1], os.getpid()


def die(job: int) -> int:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job
