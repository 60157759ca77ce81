"""Drafts of questions, drawn in batches and run in the sandbox ahead of the caller.

What is drawn depends on what became of earlier drafts: a type of answer that has enough is drawn no
more. Batch n is drawn as if batch n - 2 were done and batch n - 1 were not. Where no outcome of the
batches that still run can change a draft, it is drawn before that, and the sandbox is never idle.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from assay.seeds import derive_seed
from data_gen.krama.lakes.forms import FULL, Form
from data_gen.krama.lakes.lake import Lake
from data_gen.krama.lakes.ops import sources_of
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.questions import question_for
from data_gen.krama.lakes.steps import NoQuestion
from data_gen.krama.lakes.tables import Table
from data_gen.krama.lakes.verify import Checked, validated
from rollouts.event_loop import asyncio_run

BATCH = 16  # numbers that are drawn together; fixed, so that no machine changes the tasks
AHEAD = 8  # batches that are drawn or run before the caller wants them
_NEXT = 2  # batches that are drawn whatever becomes of them: the caller's, and the one after it

Draft = tuple[Lake, Question, str, int]  # (lake, question, kind, draw)
Results = list[Checked]
Submit = Callable[[Coroutine[Any, Any, Results]], "Future[Results]"]


def tables_of(lake: Lake, question: Question) -> list[Table]:
    """The tables that a question reads."""
    read = [(source.path, source.part) for source in sources_of(question.ops or ())]
    return [t for t in lake.tables if (t.path, t.reading.part) in read]


def type_of(question: Question) -> str:
    return question.steps[-1].answer_type


@dataclass
class Batch:
    """Drafts, and the reasons of those that became none."""

    drafts: list[Draft] = field(default_factory=list[Draft])
    refused: list[str] = field(default_factory=list[str])
    tables: list[tuple[Lake, Sequence[str]]] = field(
        default_factory=list[tuple[Lake, Sequence[str]]]
    )  # of those, in the same order: the tables that they would have asked of

    def refuse(self, why: str, lake: Lake, tables: Sequence[str]) -> None:
        self.refused.append(why)
        self.tables.append((lake, tables))


class Drawing:
    """Draws batches. `types` counts the tasks of each answer type while the caller makes them; a
    type with `most` of them gets no more drafts."""

    def __init__(
        self,
        lakes: Sequence[Lake],
        seed: int,
        total: int,
        types: Mapping[str, int],
        most: int,
        form: Form = FULL,
    ) -> None:
        self._lakes = [lake for lake in lakes if lake.tables]
        self._seed, self._types, self._most, self._form = seed, types, most, form
        self._total = total if self._lakes else 0
        self._open: Counter[str] = Counter()  # drafts of each type that are not done yet
        self.done = 0  # batches that the caller is done with

    def did(self, batch: Batch) -> None:
        """The caller is done with a batch."""
        self.done += 1
        self._open.subtract(type_of(question) for _, question, _, _ in batch.drafts)

    def batches(self) -> Iterator[Batch | None]:
        """The batches in order; None where the next one has to wait until one more is done."""
        for place, start in enumerate(range(0, self._total, BATCH)):
            batch = Batch()
            for number in range(start, min(start + BATCH, self._total)):
                lake, kind, draw = self._drawn(number)
                try:
                    question = question_for(lake.tables, kind, draw, lake.links)
                except NoQuestion as error:
                    batch.refuse("no fitting columns", lake, error.tables)
                    continue
                while not self._certain(type_of(question), place):
                    yield None
                if self._types[type_of(question)] >= self._most:
                    continue
                if why := self._form.fits(lake, question):
                    batch.refuse(why, lake, [t.key for t in tables_of(lake, question)])
                    continue
                question = replace(question, script=self._form.script(lake, question))
                if question.shape in lake.seen:
                    batch.refuse("asked already", lake, ())
                    continue
                lake.seen.add(question.shape)
                self._open[type_of(question)] += 1
                batch.drafts.append((lake, question, kind, draw))
            yield batch

    def _drawn(self, number: int) -> tuple[Lake, str, int]:
        lake = self._lakes[number % len(self._lakes)]
        rng = Random(derive_seed(self._seed, "lake-draft", lake.name, number))
        kind = rng.choice(self._form.kinds)
        return lake, kind, derive_seed(self._seed, lake.name, number, kind)

    def _certain(self, answer_type: str, place: int) -> bool:
        """Whether it is known if the type has enough at the time of the batch at this place: it is
        that time, or it has enough already, or it will not even if all open drafts become tasks."""
        has = self._types[answer_type]
        its_time = place < self.done + _NEXT
        return its_time or has >= self._most or has + self._open[answer_type] < self._most


def checked_batches(
    drawing: Drawing, reasons: Counter[str]
) -> Generator[tuple[list[Draft], Results]]:
    """Each batch with what its runs in the sandbox gave. The next ones run there while the caller
    proves this one. What became of the drafts is counted at the time of their batch: a caller that
    stops early finds the same counts on every machine."""
    source = drawing.batches()
    waiting: deque[tuple[Batch, Future[Results]]] = deque()
    uncounted: deque[Batch] = deque()
    counted = 0
    with _beside() as submit:
        while True:
            while len(waiting) < AHEAD and (batch := next(source, None)) is not None:
                asked = [(question, lake.frames) for lake, question, _, _ in batch.drafts]
                waiting.append((batch, submit(validated(asked))))
                uncounted.append(batch)
            while uncounted and counted < drawing.done + _NEXT:
                _count(uncounted.popleft(), reasons)
                counted += 1
            if not waiting:
                return
            batch, found = waiting.popleft()
            yield batch.drafts, found.result()
            drawing.did(batch)


def _count(batch: Batch, reasons: Counter[str]) -> None:
    for why, (lake, tables) in zip(batch.refused, batch.tables, strict=True):
        reasons[why] += 1
        lake.note(tables, why)


@contextmanager
def _beside() -> Generator[Submit]:
    """Run coroutines on the event loop of `asyncio_run`, in a thread beside this one."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    given: list[Future[Results]] = []

    async def serve() -> None:
        end = asyncio.Event()
        begun.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    def submit(step: Coroutine[Any, Any, Results]) -> Future[Results]:
        given.append(asyncio.run_coroutine_threadsafe(step, loop))
        return given[-1]

    with ThreadPoolExecutor(1) as aside:
        served = aside.submit(asyncio_run, serve())
        served.add_done_callback(lambda _: begun.cancel())  # a loop that never began
        loop, end = begun.result()
        try:
            yield submit
        finally:
            wait(given)  # a run that is cut off would leave its jail
            loop.call_soon_threadsafe(end.set)
