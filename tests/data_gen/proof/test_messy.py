"""Files as people have them, read a second time: right, or not provable; never wrong. What is in
doubt is refused until `tables.yaml` settles it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("python_calamine", reason="needs the extra `build`")

from messy_files import EXPECTED, folder_of, rights, same_cell

from data_gen.proof.forms import opened
from data_gen.proof.marks import number, text, time
from data_gen.proof.original import NotProvable, Opened, Original, connect

# sums and means without a word: the first reader refuses them, and this one is not asked
NAMES = sorted({*EXPECTED} - {f"total_{n}.csv" for n in ("means", "parents", "parents_below")})
CLEAR = {("mark_semicolons.csv", "weight")}  # 0.558 stands there: no thousands
DB = connect()


def reading(name: str, column: str, values: list[str]) -> Callable[[Opened, str], str]:
    """How a column is meant: as numbers, times or text."""
    kind = EXPECTED[name].get("kinds", {}).get(column)
    if kind is None:
        try:
            _ = [float(v) for v in values if v]
            kind = "number"
        except ValueError:
            kind = "text"
    return {"number": number, "date": time, "text": text}[kind]


def decided(name: str, folder: Path) -> tuple[set[str], set[str]]:
    """(columns that are read, each of them right; columns that are not provable)."""
    head, rows = rights(name)
    try:
        table = opened(Original(folder / name, EXPECTED[name].get("part", ""), folder), DB)
    except NotProvable:
        return set(), set(head)
    found: set[str] = set()
    for place, column in enumerate(head):
        values = [row[place] for row in rows]
        try:
            made = reading(name, column, values)(table, column)
        except NotProvable:
            continue
        cells = [row[0] for row in table.all(f"select {made} from {table.table} order by rn")]
        assert len(cells) == len(values), column
        odd = [(a, b) for a, b in zip(cells, values, strict=True) if not right(a, b)]
        assert odd == [], column
        found.add(column)
    return found, set(head) - found


def right(got: Any, meant: str) -> bool:
    return same_cell(got, meant) or (got is not None and str(got).strip() == meant)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_doubt_is_refused_and_nothing_else(name: str, tmp_path: Path) -> None:
    found, refused = decided(name, folder_of([name], tmp_path))
    head, _ = rights(name)
    assert EXPECTED[name]["doubts"] or (found and not refused)
    for _, column in EXPECTED[name]["doubts"]:
        if (name, column) in CLEAR:
            continue
        assert refused >= ({column} & set(head) if column else set(head))


@pytest.mark.parametrize("name", [n for n in sorted(EXPECTED) if "settle" in EXPECTED[n]])
def test_what_the_user_settles_is_read(name: str, tmp_path: Path) -> None:
    found, refused = decided(name, folder_of([name], tmp_path, settle=True))
    assert found and not refused
