"""Drafts drawn ahead are those that would be drawn one batch ahead of the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pandas")

from assay.seeds import derive_seed
from data_gen.queries import lake_build
from data_gen.queries.lake import Lake, open_lake
from data_gen.queries.lake_build import BATCH, FULL, Draft, LakeBuilder, LakeTally
from data_gen.queries.lake_questions import KINDS, question_for
from data_gen.queries.lake_steps import NoQuestion

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
            kind = question.steps[-1].answer_type
            if types[kind] < MOST and _accepted(count):
                types[kind] += 1

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
            if types[question.steps[-1].answer_type] >= MOST:
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


def _builder(total: int, most: int) -> LakeBuilder:
    builder = LakeBuilder("train", 1, 5, FULL, LakeTally(), None)
    builder.total, builder.most = total, most
    return builder


def test_drawing_draws_one_batch_ahead(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is run here: of the drafts in turn, two of three are said to have become tasks."""
    monkeypatch.setattr(lake_build, "_run", lambda drafts: [(None, "")] * len(drafts))
    lake, drawn, made = open_lake(folder), list[list[str]](), list[Any]()

    class Noted(LakeBuilder):
        def batches(self, lakes: Sequence[Lake]) -> Iterator[list[Draft]]:
            for batch in super().batches(lakes):
                drawn.append([draft.question.shape for draft in batch])
                yield batch

    builder = Noted("train", 1, 5, FULL, LakeTally(), None)
    builder.total, builder.most = TOTAL, MOST
    tried = set[str]()
    for draft in builder.drafts([lake], Random(0), made):
        tried.add(draft.question.shape)
        every = [shape for batch in drawn for shape in batch]
        if _accepted(every.index(draft.question.shape) + 1):
            made.append(draft)
    assert drawn == _plainly(open_lake(folder)) and tried


def test_a_caller_that_stops_early_counts_what_one_batch_ahead_counts(folder: Path) -> None:
    lake, builder = open_lake(folder), _builder(4 * BATCH, 10**6)
    drafts = builder.drafts([lake], Random(0), [])
    assert isinstance(drafts, Generator) and next(drafts).checked[1] != "not run"
    drafts.close()
    two = _builder(2 * BATCH, 10**6)
    assert len(list(two.batches([open_lake(folder)]))) == 2
    assert builder.tally.refused == two.tally.refused
    assert set(builder.tally.inputs) <= {lake.input_name(t.key) for t in lake.tables}
