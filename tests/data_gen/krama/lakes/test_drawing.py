"""Drafts drawn ahead are those that would be drawn one batch ahead of the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pandas")

from assay.seeds import derive_seed
from data_gen.krama.lakes.drawing import (
    BATCH,
    Batch,
    Drawing,
    checked_batches,
    tables_of,
    type_of,
)
from data_gen.krama.lakes.lake import Lake, open_lake
from data_gen.krama.lakes.questions import KINDS, question_for
from data_gen.krama.lakes.steps import NoQuestion

MOST, TOTAL = 3, 40 * BATCH
_TOWNS = ("Ahl", "Bree", "Celle", "Dorn", "Ems", "Forst")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lake of two tables of rainfall."""
    for name, step in (("north", 7), ("south", 11)):
        rows = [
            f"{_TOWNS[i % 6]},{1980 + i // 6},{(i * step) % 97 + i / 10:.1f},{i * i % 89}"
            for i in range(120)
        ]
        text = "\n".join(["town,year,rainfall,visitors", *rows])
        (tmp_path / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
    return tmp_path


def _accepted(number: int) -> bool:
    return number % 3 != 0


def _plainly(lake: Lake) -> list[list[str]]:
    """What is drawn when each batch waits until the one before the last is done."""
    types: Counter[str] = Counter()
    seen: set[str] = set()
    drawn: list[list[Any]] = []
    count = 0

    def done(batch: list[Any]) -> None:
        nonlocal count
        for question in batch:
            count += 1
            if types[type_of(question)] < MOST and _accepted(count):
                types[type_of(question)] += 1

    for place, start in enumerate(range(0, TOTAL, BATCH)):
        if place >= 2:
            done(drawn[place - 2])
        batch: list[Any] = []
        for number in range(start, start + BATCH):
            kind, draw = _choice(lake, number)
            try:
                question = question_for(lake.tables, kind, draw, lake.links)
            except NoQuestion:
                continue
            if types[type_of(question)] >= MOST:
                continue
            if question.shape in seen:
                continue
            seen.add(question.shape)
            batch.append(question)
        drawn.append(batch)
    return [[q.shape for q in batch] for batch in drawn]


def _choice(lake: Lake, number: int) -> tuple[str, int]:
    kind = Random(derive_seed(5, "lake-draft", lake.name, number)).choice(list(KINDS))
    return kind, derive_seed(5, lake.name, number, kind)


def _ahead(lake: Lake) -> tuple[list[list[str]], int]:
    """The same with `Drawing`, each batch done as late as can be; and how many were open."""
    types: Counter[str] = Counter()
    drawing = Drawing([lake], 5, TOTAL, types, MOST)
    source: Iterator[Batch | None] = drawing.batches()
    drawn: list[list[str]] = []
    waiting: list[Batch] = []
    count, most_open = 0, 0
    while True:
        while (batch := next(source, None)) is not None:
            drawn.append([question.shape for _, question, _, _ in batch.drafts])
            waiting.append(batch)
        if not waiting:
            return drawn, most_open
        most_open = max(most_open, len(waiting))
        batch = waiting.pop(0)
        for _, question, _, _ in batch.drafts:
            count += 1
            if types[type_of(question)] < MOST and _accepted(count):
                types[type_of(question)] += 1
        drawing.did(batch)


def test_drawing_ahead_draws_the_same(folder: Path) -> None:
    plain = _plainly(open_lake(folder))
    ahead, most_open = _ahead(open_lake(folder))
    assert ahead == plain
    assert most_open > 2  # it did draw ahead


def test_a_caller_that_stops_early_counts_what_one_batch_ahead_counts(folder: Path) -> None:
    lake, reasons = open_lake(folder), Counter[str]()
    drawing = Drawing([lake], 5, 4 * BATCH, Counter(), 10**6)
    found = checked_batches(drawing, reasons)
    drafts, results = next(found)
    assert len(drafts) == len(results) and any(values for values, _ in results)
    found.close()
    two = [b for b in Drawing([open_lake(folder)], 5, 2 * BATCH, Counter(), 10**6).batches() if b]
    assert reasons == Counter(why for batch in two for why in batch.refused)
    asked = {t.key for b in two for _, q, _, _ in b.drafts for t in tables_of(lake, q)}
    known = {t.key for t in lake.tables}
    assert asked and known >= set(lake.reasons)  # a reason is one of a table
