"""Requests that wait together are answered together, by one engine that knows no HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rollouts.engines.engine import Engine
from rollouts.event_loop import asyncio_run
from rollouts.trajectory import Completion, Sampling

GATHER_S = 0.005  # clients that ask side by side are a few milliseconds apart


class Full(Exception):
    """So many requests wait that another one would wait too long."""


@dataclass
class _Job:
    ids: Sequence[int]
    sampling: Sampling
    n: int
    seed: int
    done: asyncio.Future[list[Completion]] = field(repr=False)


class Batches:
    """Use as an async context manager. `rows` bounds the samples of one call of the engine,
    `waiting` the requests in the queue. Requests of equal sampling settings share a call; what a
    request draws depends on its own seed alone."""

    def __init__(self, engine: Engine, rows: int, waiting: int) -> None:
        self._engine, self._rows, self._most = engine, rows, waiting
        self._queue: deque[_Job] = deque()
        self._there = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._loop: asyncio.Task[None] | None = None
        self.calls = 0  # of the engine, so far

    async def __aenter__(self) -> Batches:
        self._loop = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        for job in self._queue:
            job.done.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        """Requests in the queue now."""
        return len(self._queue)

    async def ask(
        self, ids: Sequence[int], sampling: Sampling, n: int, seed: int
    ) -> list[Completion]:
        """`n` completions of one prompt. Raises `Full`; whatever the engine raises comes here."""
        if len(self._queue) >= self._most:
            raise Full
        done = asyncio.get_running_loop().create_future()
        self._queue.append(_Job(ids, sampling, n, seed, done))
        self._there.set()
        return await done

    async def _work(self) -> None:
        while True:
            await self._there.wait()
            await asyncio.sleep(GATHER_S)
            self._there.clear()
            while jobs := self._next():
                await self._answer(jobs)

    def _next(self) -> list[_Job]:
        """The oldest request and those that can go with it; who hung up is left out."""
        waiting = [job for job in self._queue if not job.done.done()]
        taken: list[_Job] = []
        rows = 0
        for job in waiting:
            same = not taken or (job.sampling, job.n) == (taken[0].sampling, taken[0].n)
            if same and (not taken or rows + job.n <= self._rows):
                taken.append(job)
                rows += job.n
        chosen = {id(job) for job in taken}
        self._queue = deque(job for job in waiting if id(job) not in chosen)
        return taken

    async def _answer(self, jobs: list[_Job]) -> None:
        first = jobs[0]
        self.calls += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._thread,
                lambda: asyncio_run(
                    self._engine.generate(
                        [job.ids for job in jobs],
                        first.sampling,
                        first.n,
                        [job.seed for job in jobs],
                    )
                ),
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:
            for job in jobs:
                if not job.done.done():
                    job.done.set_exception(error)
            return
        for job, group in zip(jobs, found, strict=True):
            if not job.done.done():
                job.done.set_result(group)
