"""Work over many items by several processes, in order, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any, TypeVar

Job = TypeVar("Job")
Found = TypeVar("Found")

FEW = 4  # with so few jobs, starting processes costs more than it saves


def in_order(
    work: Callable[[Job], list[Found]], jobs: Sequence[Job], workers: int, bar: Any
) -> list[Found]:
    """What `work` finds for every job, one after the other; the bar counts what was found.

    `work` and the jobs are pickled when `workers` processes share them.
    """
    found: list[Found] = []
    with bar:
        if workers > 1 and len(jobs) > FEW:
            with get_context("spawn").Pool(workers) as processes:
                for part in processes.imap(work, jobs):
                    found += part
                    bar.update(len(part))
        else:
            for job in jobs:
                part = work(job)
                found += part
                bar.update(len(part))
    return found
