"""Drafts drawn ahead are those that would be drawn one batch ahead of the caller."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pandas")

from assay.seeds import derive_seed
from data_gen.queries.lake import Lake, open_lake
from data_gen.queries.lake_drawing import BATCH, Draft, Drawing, checked_batches, type_of
from data_gen.queries.lake_questions import KINDS, question_for
from data_gen.queries.lake_steps import NoQuestion
from data_gen.tally import Tally

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


def _ahead(lake: Lake) -> list[list[str]]:
    """The same with `Drawing`."""
    types: Counter[str] = Counter()
    drawn: list[list[str]] = []
    before: list[Draft] = []
    count = 0
    for batch in Drawing([lake], 5, TOTAL, types, MOST, Tally()).batches():
        drawn.append([question.shape for _, question, _, _ in batch])
        for _, question, _, _ in before:
            count += 1
            if types[type_of(question)] < MOST and _accepted(count):
                types[type_of(question)] += 1
        before = batch
    return drawn


def test_drawing_draws_one_batch_ahead(folder: Path) -> None:
    assert _ahead(open_lake(folder)) == _plainly(open_lake(folder))


def test_a_caller_that_stops_early_counts_what_one_batch_ahead_counts(folder: Path) -> None:
    lake, tally = open_lake(folder), Tally()
    found = checked_batches(Drawing([lake], 5, 4 * BATCH, Counter(), 10**6, tally))
    drafts, results = next(found)
    assert len(drafts) == len(results) and any(values for values, _ in results)
    found.close()
    two = Tally()
    assert (
        len(list(Drawing([open_lake(folder)], 5, 2 * BATCH, Counter(), 10**6, two).batches())) == 2
    )
    assert tally.refused == two.refused
    assert set(tally.inputs) <= {lake.input_name(t.key) for t in lake.tables}
