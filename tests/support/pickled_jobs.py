"""Jobs that other processes are given. They import this module by its name: `tests` may also be the
name of an installed package."""

from __future__ import annotations

from pathlib import Path


def noted(job: tuple[str, int]) -> int:
    (Path(job[0]) / str(job[1])).touch()
    return job[1]
