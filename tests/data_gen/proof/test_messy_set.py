"""The messy set of the first reader, read a second time: right, or not provable; never wrong."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("openpyxl")

from messy_tables import MESSY, Columns, Messy

from data_gen.proof.forms import opened
from data_gen.proof.marks import number, time, words
from data_gen.proof.original import NotProvable, Opened, Original


def column(table: Opened, name: str, meant: list[Any]) -> list[Any] | None:
    """A column as the second reader gives it, None where it does not decide."""
    known = [v for v in meant if v is not None]
    read = number
    if known and all(isinstance(v, datetime) for v in known):
        read = time
    elif any(isinstance(v, str) for v in known):
        read = words
    try:
        made = read(table, name)
    except NotProvable:
        return None
    return [row[0] for row in table.all(f"select {made} from {table.table} order by rn")]


def right(found: Any, meant: Any) -> bool:
    if isinstance(meant, int | float) and isinstance(found, float):
        return math.isclose(found, meant, rel_tol=1e-12)
    if isinstance(meant, str) and found is None:
        return meant.lower() in ("na", "none", "n/a", "-")  # a word that may mean no value
    return found == (" ".join(meant.split()) if isinstance(meant, str) else meant)


def decided(table: Opened, columns: Columns) -> int:
    """How many columns are decided; each of them must be right."""
    count = 0
    for name, meant in columns.items():
        if name.strip() not in table.ids:
            continue
        found = column(table, name.strip(), meant)
        if found is None:
            continue
        assert len(found) == len(meant), name
        odd = [(a, b) for a, b in zip(found, meant, strict=True) if not right(a, b)]
        assert odd == [], name
        count += 1
    return count


@pytest.mark.parametrize("messy", MESSY, ids=lambda m: m.name)
def test_right_or_not_provable(messy: Messy, tmp_path: Path) -> None:
    path = tmp_path / messy.name
    parts = messy.write(path)
    several = len(parts) > 1
    for part, columns in parts.items():
        try:
            table = opened(Original(path, part if several else ""))
        except NotProvable:
            continue
        decided(table, columns)


def test_most_of_the_messy_set_is_decided(tmp_path: Path) -> None:
    """A second reader that decides nothing would never be wrong."""
    tables = columns_ = seen = 0
    for messy in MESSY:
        for part, columns in (messy.write(tmp_path / messy.name)).items():
            tables += len(columns) > 0
            try:
                table = opened(Original(tmp_path / messy.name, part))
            except NotProvable:
                continue
            seen += 1
            columns_ += decided(table, columns) / len(columns)
    assert seen >= 0.7 * tables and columns_ >= 0.8 * seen
