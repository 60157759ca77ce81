"""What of the rows of a table is in doubt, and what is plain data."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from messy_files import rights
from places import tables

from assay.tables.structure import doubts_of

TABLES = tables("tables")

_NAMES = ["town", "department", "sales", "visitors"]


def _rows() -> list[list[str]]:
    return [row[:4] for row in rights("total_last.csv")[1][:40]]


def _codes(rows: list[list[Any]], names: list[str] | None = None, **given: Any) -> list[str]:
    names = names or _NAMES
    return [d.code for d in doubts_of(names, rows, range(2, len(rows) + 2), **given)]


def _all(word: str) -> dict[int, dict[int, str]]:
    return {i: {0: f"{word} {i}"} for i in range(40)}


PLAIN: dict[str, dict[int, dict[int, str]]] = {
    "clean": {},
    "people": _all("Ann") | {38: {0: "Max"}, 39: {0: "Ann 39", 2: "901.50", 3: "9001"}},
    "answers": {i: {1: ("none", "some", "all", "most")[i % 4]} for i in range(40)},
    # an oil company with ordinary figures
    "companies": _all("Aldra") | {17: {0: "Total", 2: "99.50", 3: "12"}},
    "films": _all("Film") | {5: {0: "Total Recall"}},
    # the first is a town of other rows
    "missing": {3: {0: "Aldra", 1: "", 2: "", 3: ""}, 5: {2: "n/a"}, 0: {2: "NA"}, 7: {2: "<5"}},
}


@pytest.mark.parametrize("changes", PLAIN.values(), ids=PLAIN)
def test_plain_rows_have_no_doubt(changes: dict[int, dict[int, str]]):
    rows = _rows()
    for place, cells in changes.items():
        rows[place] = [cells.get(column, cell) for column, cell in enumerate(rows[place])]
    assert _codes(rows) == []


@pytest.mark.parametrize("word", ["Mean", "Mittelwert", "平均", "Max", "min.", "Std. Dev."])
def test_figures_over_the_rows_above_are_in_doubt(word: str):
    rows = _rows()
    figures = {"Ma": max, "mi": min, "St": statistics.pstdev}.get(word[:2], statistics.mean)
    last = [f"{figures([float(r[c]) for r in rows]):.2f}" for c in (2, 3)]
    assert _codes([*rows, [word, "", *last]]) == ["total_rows"]
    names = ["town", "sales", "visitors"]
    bare = [[r[0] + str(i), *r[2:]] for i, r in enumerate(rows)]
    assert _codes([*bare, [word, *last]], names) == ["total_rows"]


def _by_sex(word: str) -> list[list[str]]:
    draw, rows = random.Random(3), list[list[str]]()
    for town in ("Aldra", "Birk", "Corva"):
        for year in range(2012, 2020):
            male, female = draw.randrange(100, 900), draw.randrange(100, 900)
            rows += [
                [town, str(year), "Male", str(male)],
                [town, str(year), "Female", str(female)],
                [town, str(year), word, str(male + female)],
            ]
    return rows


@pytest.mark.parametrize("word", ["Both sexes", "All", "Personen", "MF", "Total"])
def test_a_value_that_sums_its_siblings_is_in_doubt(word: str):
    names = ["town", "year", "sex", "deaths"]
    (doubt,) = doubts_of(names, _by_sex(word), range(2, 74))
    assert doubt.code == "total_rows" and doubt.settle.startswith("drop_where: {sex: [")


@pytest.mark.parametrize("note", TABLES["notes_are_in_doubt_wherever_they_stand"])
def test_notes_are_in_doubt_wherever_they_stand(note: list[Any]):
    rows: list[list[Any]] = list(_rows())
    for place in (20, 40):
        found = doubts_of(_NAMES, [*rows[:place], note, *rows[place:]], range(2, 43))
        assert [d.code for d in found] == ["notes"]
        assert found[0].settle.startswith(f"drop_rows: [{place + 2}]")
