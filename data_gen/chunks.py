"""Work over many items by several processes, in order, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from multiprocessing import get_context
from types import TracebackType
from typing import Any, TypeVar

from rewards.processes import queued
from rewards.progress import Progress
from rewards.task import TaskError

Job = TypeVar("Job")
Found = TypeVar("Found")

FEW = 4  # with so few jobs, starting processes costs more than it saves
AHEAD = 2  # jobs handed out per process: enough that none waits, few when the caller stops early


@contextmanager
def processes(
    workers: int, start: Callable[..., None] | None = None, given: tuple[Any, ...] = ()
) -> Generator[ProcessPoolExecutor, None, None]:
    """Fresh processes, each of which runs `start(*given)` once; `start` and `given` are pickled.

    A process that is killed ends the work with a `TaskError`; `multiprocessing.Pool` would wait
    for its answer for ever.
    """
    pool = ProcessPoolExecutor(workers, get_context("spawn"), start, given)
    try:
        yield pool
    except BrokenProcessPool:
        raise TaskError(
            "a worker process was killed before its work was done (often for want of memory); "
            "nothing was written: run it again with fewer workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def in_turn(
    pool: ProcessPoolExecutor, workers: int, work: Callable[[Job], Found], jobs: Iterable[Job]
) -> Iterator[Found]:
    """`queued` for a pool of so many workers."""
    return queued(pool, work, jobs, AHEAD * workers)


def in_order(
    work: Callable[[Job], list[Found]], jobs: Sequence[Job], workers: int, bar: Progress
) -> list[Found]:
    """What `work` finds for every job, one after the other; the bar counts what was found.

    `work` and the jobs are pickled when `workers` processes share them. Raises `TaskError` when one
    of these is killed.
    """
    found: list[Found] = []

    def note(part: list[Found]) -> None:
        found.extend(part)
        bar.add(len(part))

    with bar:
        if workers > 1 and len(jobs) > FEW:
            with processes(workers) as pool:
                for part in in_turn(pool, workers, work, jobs):
                    note(part)
        else:
            for job in jobs:
                note(work(job))
    return found


class Crew:
    """`workers` processes for several maps one after the other, started when they are first worth
    it; with one worker everything runs here. Use as a context manager."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._stack = ExitStack()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def map(self, work: Callable[[Job], Found], jobs: Iterable[Job]) -> Iterator[Found]:
        """What `work` gives for every job, in the order of the jobs, which are taken as they are
        needed. `work` and the jobs are pickled when processes share them."""
        waiting = iter(jobs)
        first = list(islice(waiting, FEW + 1))
        jobs = chain(first, waiting)
        if self.workers < 2 or (self._pool is None and len(first) <= FEW):
            return map(work, jobs)
        if self._pool is None:
            self._pool = self._stack.enter_context(processes(self.workers))
        return in_turn(self._pool, self.workers, work, jobs)
