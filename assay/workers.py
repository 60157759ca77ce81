"""Work shared by processes: results in the order of the jobs, memory for a few jobs at a time."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import chain, islice
from multiprocessing import active_children, get_context, parent_process
from threading import Event, ExceptHookArgs, Thread
from types import TracebackType
from typing import Any, TypeVar

from assay.signals import ENDING, undisturbed
from assay.task import MachineError

Job = TypeVar("Job")
Found = TypeVar("Found")

AHEAD = 3  # jobs handed out per process: enough that none waits, few when the caller stops early
FEW = 4  # with so few short jobs, starting processes costs more than it saves
Turn = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # `Crew.map`
LOOK_S = 1.0  # between two looks whether the threads that serve a pool are there
_OF_A_POOL = ("_ExecutorManagerThread", "QueueFeederThread")  # class of the one, name of the other
_THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")]
_lost = Event()  # such a thread has died of an exception


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_thread() -> None:
    """Let the numeric libraries of this process use one thread: processes that share the cores get
    in each other's way with more, and sums come out the same on any number of cores."""
    os.environ |= dict.fromkeys(_THREADS, "1")  # of the libraries that are not loaded yet
    with suppress(ImportError):  # not there: nor is a library that it could limit
        import_module("threadpoolctl").threadpool_limits(1)


def in_turn(
    work: Callable[[Job], Found],
    jobs: Iterable[Job],
    workers: int,
    start: Callable[..., None] | None = None,
    given: tuple[Any, ...] = (),
) -> Iterator[Found]:
    """What `work` gives for every job, in the order of the jobs, whoever is done first.

    `start(*given)` is run once in each process; with one worker all is done in this one. Functions,
    jobs and results of more are pickled. Raises `MachineError` when a process is killed.
    """
    with Crew(workers, start, given) as crew:
        yield from crew.map(work, jobs)


class Crew:
    """`workers` processes for several maps, one after the other. Use as a context manager.

    `start(*given)` is run once in each of them. One worker is this process, unless `apart`; and so
    are several until a map has more than `few` jobs, which starting them is worth. Raises
    `MachineError` when one of them is killed.
    """

    def __init__(
        self,
        workers: int,
        start: Callable[..., None] | None = None,
        given: tuple[Any, ...] = (),
        *,
        few: int = 0,
        apart: bool = False,
    ) -> None:
        self.workers = workers
        self._start, self._given = start, given
        self._few, self._apart = few, apart
        self._begun = False
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

    def map(
        self, work: Callable[[Job], Found], jobs: Iterable[Job], ahead: int = 0
    ) -> Iterator[Found]:
        """What `work` gives for every job, in the order of the jobs, which are taken as they are
        needed. `work`, the jobs and the results are pickled when processes share them; they begin
        with the first jobs at once, before a result is asked for. `ahead`: how many are handed out
        before that (0: a few for each process); all of them where their results are small."""
        if self.workers == 1 and not self._apart:
            return self._here(work, jobs)
        if self._pool is None:
            waiting = iter(jobs)
            first = list(islice(waiting, self._few + 1))
            jobs = chain(first, waiting)
            if len(first) <= self._few:
                return self._here(work, jobs)
            self._pool = self._stack.enter_context(spawned(self.workers, self._start, self._given))
        return queued(self._pool, work, jobs, max(ahead, AHEAD * self.workers))

    def _here(self, work: Callable[[Job], Found], jobs: Iterable[Job]) -> Iterator[Found]:
        if self._start is not None and not self._begun:
            self._start(*self._given)
        self._begun = True
        return map(work, jobs)


@contextmanager
def spawned(
    workers: int, start: Callable[..., None] | None = None, given: tuple[Any, ...] = ()
) -> Generator[ProcessPoolExecutor, None, None]:
    """Fresh processes, each of which runs `start(*given)` once; `start` and `given` are pickled.

    They end when this process does, however it ends. Raises `MachineError` when one is killed.
    """
    before = set(active_children())
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (start, given))
    try:
        with _noted_threads():
            yield pool
    except BrokenProcessPool:
        raise MachineError(
            "a worker process was killed before its work was done (often for want of memory); no "
            "file was written: run it again with fewer workers"
        ) from None
    finally:
        lost = _lost.is_set()
        if lost:  # nobody is left to tell the workers to end, and our own end waits
            for process in set(active_children()) - before:
                process.kill()
            _lost.clear()
        pool.shutdown(wait=not lost, cancel_futures=True)


@contextmanager
def _noted_threads() -> Generator[None]:
    """Note when a thread that serves a pool dies: without it the pool never answers."""
    usual = threading.excepthook

    def note(died: ExceptHookArgs) -> None:
        thread = died.thread
        if thread is not None and {type(thread).__name__, thread.name} & set(_OF_A_POOL):
            _lost.set()
        else:
            usual(died)

    threading.excepthook = note
    try:
        yield
    finally:
        threading.excepthook = usual


def queued(
    pool: ProcessPoolExecutor, work: Callable[[Job], Found], jobs: Iterable[Job], ahead: int
) -> Iterator[Found]:
    """What `work` gives for every job, in the order of the jobs, whoever is done first.

    At most `ahead` jobs are handed out, the first of them at once; so a caller may stop early and
    lose little.
    """
    rest = iter(jobs)
    waiting = deque(_submitted(pool, work, job) for job in islice(rest, ahead))
    return _results(pool, work, rest, waiting)


def _results(
    pool: ProcessPoolExecutor,
    work: Callable[[Job], Found],
    rest: Iterator[Job],
    waiting: deque[Future[Found]],
) -> Iterator[Found]:
    try:
        while waiting:
            found = _result(waiting.popleft())
            for job in islice(rest, 1):
                waiting.append(_submitted(pool, work, job))
            yield found
    finally:
        for future in waiting:
            future.cancel()


def _submitted(pool: ProcessPoolExecutor, work: Callable[[Job], Found], job: Job) -> Future[Found]:
    try:
        # Submitting starts processes, and one that is cut off while it is told what to do ends with
        # a traceback. It unblocks the signals itself (`_begin`).
        with undisturbed():
            return pool.submit(work, job)
    except Exception:  # nobody serves the processes that were begun
        _lost.set()
        raise


def _result(future: Future[Found]) -> Found:
    """What a job gave. Raises `MachineError` when nobody is left who could say it."""
    while not future.done():
        wait([future], LOOK_S)
        if _lost.is_set() and not future.done():
            raise MachineError(
                "a thread that serves the worker processes ended before their work was done (often "
                "for want of memory); no file was written: run it again with fewer workers"
            )
    return future.result()


def _begin(start: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    # An interrupt goes to the whole group; the parent says it, and ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    Thread(target=_end_with_parent, daemon=True).start()
    if start is not None:
        start(*given)


def _end_with_parent() -> None:
    """A pool's process waits for jobs on a pipe whose other end it holds itself: when the parent is
    killed nothing tells it."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
