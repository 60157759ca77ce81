"""Work over many items by several processes, in order, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rewards.processes import FEW, Crew
from rewards.progress import Progress

Job = TypeVar("Job")
Found = TypeVar("Found")


def in_order(
    work: Callable[[Job], list[Found]], jobs: Sequence[Job], workers: int, bar: Progress
) -> list[Found]:
    """What `work` finds for every job, one after the other; the bar counts what was found.

    `work` and the jobs are pickled when `workers` processes share them. Raises `MachineError` when
    one of these is killed.
    """
    found: list[Found] = []
    with bar, Crew(workers, few=FEW) as crew:
        for part in crew.map(work, jobs):
            found.extend(part)
            bar.add(len(part))
    return found
