"""Jobs that other processes are given. They import this module by its name: `tests` may also be the
name of an installed package."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def slow_when_even(job: int) -> list[int]:
    time.sleep(0.02 * (job % 2 == 0))
    return [job, -job]


def killed_at_three(job: int) -> list[int]:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return [job]


def noted(job: tuple[str, int]) -> int:
    (Path(job[0]) / str(job[1])).touch()
    return job[1]
