"""Drafts of questions, drawn in batches; one batch runs in the sandbox while another is proved.

What is drawn depends on what became of earlier drafts: a type of answer that has enough is drawn no
more. Batch n is drawn when batch n - 2 is done and batch n - 1 is not, on every machine.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from random import Random

from assay.seeds import derive_seed
from data_gen.queries.forms import FULL, Form
from data_gen.queries.lake import Lake
from data_gen.queries.lake_checks import Checked, validate_all
from data_gen.queries.lake_questions import question_for
from data_gen.queries.lake_steps import NoQuestion
from data_gen.queries.ops import sources_of
from data_gen.queries.pipeline import Question
from data_gen.queries.tables import Table
from data_gen.tally import Refusal, Tally

BATCH = 16  # numbers that are drawn together; fixed, so that no machine changes the tasks

Draft = tuple[Lake, Question, str, int]  # (lake, question, kind, draw)


def tables_of(lake: Lake, question: Question) -> list[Table]:
    """The tables that a question reads."""
    read = [(source.path, source.part) for source in sources_of(question.ops or ())]
    return [t for t in lake.tables if (t.path, t.reading.part) in read]


def names_of(lake: Lake, question: Question) -> list[str]:
    """What the lines of a build call these tables."""
    return [lake.input_name(t.key) for t in tables_of(lake, question)]


def type_of(question: Question) -> str:
    return question.steps[-1].answer_type


class Drawing:
    """Draws batches. `types` counts the tasks of each answer type while the caller makes them; a
    type with `most` of them gets no more drafts. Drafts that become none are told to `tally`."""

    def __init__(
        self,
        lakes: Sequence[Lake],
        seed: int,
        total: int,
        types: Mapping[str, int],
        most: int,
        tally: Tally,
        form: Form = FULL,
    ) -> None:
        self._lakes = [lake for lake in lakes if lake.tables]
        self._seed, self._types, self._most, self._form = seed, types, most, form
        self._total = total if self._lakes else 0
        self._tally = tally

    def batches(self) -> Iterator[list[Draft]]:
        for start in range(0, self._total, BATCH):
            numbers = range(start, min(start + BATCH, self._total))
            drawn = [self._draft(*self._drawn(number)) for number in numbers]
            yield [draft for draft in drawn if draft is not None]

    def _draft(self, lake: Lake, kind: str, draw: int) -> Draft | None:
        try:
            question = question_for(lake.tables, kind, draw, lake.links)
        except NoQuestion as error:
            names = [lake.input_name(key) for key in error.tables]
            return self._tally.refuse(Refusal("no fitting columns"), names)
        if self._types[type_of(question)] >= self._most:
            return None
        if why := self._form.fits(lake, question):
            return self._tally.refuse(Refusal(why), names_of(lake, question))
        question = replace(question, script=self._form.script(lake, question))
        if question.shape in lake.seen:
            return self._tally.refuse(Refusal("asked already"))
        lake.seen.add(question.shape)
        return lake, question, kind, draw

    def _drawn(self, number: int) -> tuple[Lake, str, int]:
        lake = self._lakes[number % len(self._lakes)]
        rng = Random(derive_seed(self._seed, "lake-draft", lake.name, number))
        kind = rng.choice(self._form.kinds)
        return lake, kind, derive_seed(self._seed, lake.name, number, kind)


def checked_batches(drawing: Drawing) -> Generator[tuple[list[Draft], list[Checked]]]:
    """Each batch with what its runs in the sandbox gave. The next one is drawn and runs there while
    the caller proves this one."""
    with ThreadPoolExecutor(1) as beside:
        before: tuple[list[Draft], Future[list[Checked]]] | None = None
        for drafts in drawing.batches():
            asked = [(question, lake.frames) for lake, question, _, _ in drafts]
            running = drafts, beside.submit(validate_all, asked)
            if before is not None:
                yield before[0], before[1].result()
            before = running
        if before is not None:
            yield before[0], before[1].result()
