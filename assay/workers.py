"""Work shared by processes that may be killed: results in the order of the jobs, memory for a few
jobs at a time. The one program for it: `assay score`, `assay execute` and the builders use it."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from assay.machine import usable_cores
from assay.rows import STANDARD, is_plain
from assay.task import MachineError

Job = TypeVar("Job")
Found = TypeVar("Found")

AHEAD = 3  # jobs handed out per process: enough that none waits, few when the caller stops early
FEW = 4  # with so few short jobs, starting processes costs more than it saves
MapFunction = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # `WorkerPool.map`
_CHILD = "import sys; sys.path[:] = sys.argv[2:]; from assay.workers import serve; serve()"
_THREADS = [f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR")]


def workers_for(asked: int, inputs: Sequence[str], total: int | None, few: int) -> int:
    """Processes for the rows of some inputs: as asked, else all cores, but one where starting more
    takes longer than the work (`total` bytes of plain files, below `few`) or where answers are
    waited for."""
    if asked:
        return asked
    small = total is not None and total < few and all(map(is_plain, inputs))
    return 1 if small or STANDARD in inputs else usable_cores()


def limit_threads() -> None:
    """Let the numeric libraries of this process use one thread: processes that share the cores get
    in each other's way with more, and sums come out the same on any number of cores."""
    os.environ |= dict.fromkeys(_THREADS, "1")  # of the libraries that are not loaded yet
    with suppress(ImportError):  # not there: nor is a library that it could limit
        import_module("threadpoolctl").threadpool_limits(1)


@dataclass(frozen=True)
class Named:
    """A function `module:name`, which the process that calls it loads: who only divides the work
    loads none of what it needs."""

    place: str

    def __call__(self, *given: Any) -> Any:
        module, _, name = self.place.partition(":")
        return getattr(import_module(module), name)(*given)


def map_ordered(
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
    with WorkerPool(workers, start, given) as pool:
        yield from pool.map(work, jobs)


class WorkerDied(Exception):
    """A process ended before its work was done; `status` as in `Popen.returncode`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a worker process ended with status {status}")
        self.status = status


class WorkerPool:
    """`workers` processes for several maps, one after the other. Use as a context manager.

    `start(*given)` is run once in each of them. One worker is this process, unless `apart`; and so
    are several until a map has more than `few` jobs, which starting them is worth. Functions, jobs
    and results are pickled; what a job raises is raised here. An error in the body lets the jobs
    that have begun end; with `kill` it kills them. The processes end when this one does, however it
    ends.
    """

    def __init__(
        self,
        workers: int,
        start: Callable[..., None] | None = None,
        given: tuple[Any, ...] = (),
        *,
        few: int = 0,
        apart: bool = False,
        kill: bool = False,
    ) -> None:
        self.workers = workers
        self._start, self._given = start, given
        self._few, self._apart, self._kill = few, apart, kill
        self._begun = self._over = False
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: dict[int, _Worker] = {}
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()  # one for each job that waits
        self._jobs = [queue.SimpleQueue[_Asked]() for _ in range(workers)]  # of each process
        self._places: dict[object, int] = {}  # what jobs share → the process that has it
        self._threads: list[Thread] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: object, *more: object) -> None:
        self._over = True
        if kind is not None and self._kill:
            for worker in [*self._all.values()]:
                worker.process.kill()
        for _ in self._threads:
            self._tokens.put(False)
        for thread in self._threads:  # what has begun ends
            thread.join()
        for worker in self._all.values():
            worker.end()

    def map(
        self,
        work: Callable[[Job], Found],
        jobs: Iterable[Job],
        ahead: int = 0,
        died: Callable[[Job, int], Found] | None = None,
        near: Callable[[Job], object] = lambda job: None,
    ) -> Iterator[Found]:
        """What `work` gives for every job, in the order of the jobs, which are taken as they are
        needed; processes begin with the first of them before a result is asked for.

        `ahead`: the most jobs whose results are waited for or kept at once (0: a few for each
        process); more where their results are small, so that a job that takes long keeps no process
        waiting. `died(job, status)` gives the result of a job whose process ended; without it that
        raises `MachineError`. Jobs that are alike in `near(job)` are given to one process, which
        may have kept what they share, unless another has nothing else to do.
        """
        if not self._threads:
            if self.workers == 1 and not self._apart:
                return self._here(work, jobs)
            waiting = iter(jobs)
            first = list(islice(waiting, self._few + 1))
            jobs = chain(first, waiting)
            if len(first) <= self._few:
                return self._here(work, jobs)
            for place in range(self.workers):
                self._idle.put(self._spawned(place))
                thread = Thread(target=self._serve, name="workers", daemon=True)
                thread.start()
                self._threads.append(thread)
        over: queue.SimpleQueue[None] = queue.SimpleQueue()
        more = (self._put(_Asked(work, job, died, over), near(job)) for job in jobs)
        begun, running = deque[_Asked](), AHEAD * self.workers

        def fill() -> None:
            while len(begun) < max(ahead, running) and sum(not a.over for a in begun) < running:
                if (asked := next(more, None)) is None:
                    return
                begun.append(asked)

        fill()
        return _results(begun, fill, over)

    def _put(self, asked: _Asked, shared: object) -> _Asked:
        self._jobs[self._places.setdefault(shared, len(self._places) % self.workers)].put(asked)
        self._tokens.put(True)
        return asked

    def _serve(self) -> None:
        """One of the threads that hand jobs to processes."""
        while self._tokens.get():
            worker = self._idle.get()
            asked = self._next(worker.place)
            if asked.dropped or self._over:
                self._idle.put(worker)
            else:
                asked.answer(self.run, worker)

    def _next(self, place: int) -> _Asked:
        """A job, of the others' where none waits for this process. Who holds a token finds one."""
        while True:
            for jobs in (*self._jobs[place:], *self._jobs[:place]):
                with suppress(queue.Empty):
                    return jobs.get_nowait()

    def run(
        self,
        work: Callable[[Job], Found],
        job: Job,
        died: Callable[[Job, int], Found] | None = None,
        worker: _Worker | None = None,
    ) -> Found:
        """What `work` gives for one job, in a process that is free; for any thread, after a map has
        begun. `died`: as in `map`. `worker`: the process, where the caller has taken one."""
        worker = worker or self._idle.get()
        try:
            if not worker.begun and self._start is not None:
                worker.call(self._start, *self._given)
            worker.begun = True
            return worker.call(work, job)
        except WorkerDied as death:
            begun = worker.begun
            worker.end()
            if died is None or not begun or self._over:
                raise MachineError(
                    "a worker process was killed before its work was done (often for want of "
                    "memory); no file was written: run it again with fewer workers"
                    if death.status < 0
                    else f"{death} before its work was done; its message stands above"
                ) from None
            worker = self._spawned(worker.place)
            status = death.status
        finally:
            self._idle.put(worker)
        return died(job, status)

    def _here(self, work: Callable[[Job], Found], jobs: Iterable[Job]) -> Iterator[Found]:
        if self._start is not None and not self._begun:
            self._start(*self._given)
        self._begun = True
        return map(work, jobs)

    def _spawned(self, place: int) -> _Worker:
        self._all[place] = worker = _Worker(place)
        return worker


class _Asked:
    """A job that was handed out, and the place of its result.

    The one thread that waits for it may be interrupted at any point. So it waits at a queue that
    takes no lock in Python: a lock that an interrupt leaves taken would stop the others for ever.
    """

    def __init__(self, work: Any, job: Any, died: Any, over: queue.SimpleQueue[None]) -> None:
        self._asked = work, job, died
        self._over = over  # has an entry for each job that ended
        self._found: Any = None
        self.over = self._good = self.dropped = False

    def answer(self, run: Callable[..., Any], worker: _Worker) -> None:
        try:
            self._found, self._good = run(*self._asked, worker), True
        except BaseException as error:
            self._found = error
        self.over = True
        self._over.put(None)

    def result(self) -> Any:
        if not self._good:
            raise self._found
        return self._found


def _results(
    begun: deque[_Asked], fill: Callable[[], None], over: queue.SimpleQueue[None]
) -> Iterator[Any]:
    """The results in order; each job that ends and each that is taken may hand out more."""
    try:
        while begun:
            over.get()  # may be of a job that was taken already
            fill()
            while begun and begun[0].over:
                found = begun.popleft().result()
                fill()
                yield found
    finally:
        for asked in begun:
            asked.dropped = True


class _Worker:
    """A fresh interpreter with the modules of this one, and a pipe to it."""

    def __init__(self, place: int) -> None:
        self.place, self.begun = place, False
        self._pipe, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(theirs.fileno()), *map(str, sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def call(self, work: Callable[..., Found], *given: Any) -> Found:
        """What `work(*given)` gives there. Raises what it raises, and `WorkerDied`."""
        try:
            self._pipe.send((work, given))
            good, found = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerDied(self.process.wait()) from None
        if not good:
            raise found
        return found

    def end(self) -> None:
        with suppress(OSError):
            self._pipe.send_bytes(b"")
        self._pipe.close()
        self.process.wait()


def serve() -> None:
    """The process of a worker: do what comes through the pipe until its end is told."""
    # An interrupt goes to the whole group; the parent says it, and ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    sys.argv[1:] = []
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    Thread(target=_received, args=(pipe, calls), daemon=True).start()
    while data := calls.get():
        try:
            work, given = pickle.loads(data)
            answer = True, work(*given)
        except Exception as error:
            error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)))
            answer = False, error
        try:
            pipe.send(answer)
        except BrokenPipeError:
            os._exit(1)


def _received(pipe: Connection, calls: queue.SimpleQueue[bytes]) -> None:
    """Take calls in a thread, which ends this process at once when the parent is killed."""
    try:
        while data := pipe.recv_bytes():
            calls.put(data)
        calls.put(b"")
    except (EOFError, OSError):
        os._exit(1)
