"""Obscured generated lakes: other names and numbers, the same questions, answers computed anew."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

from messy_files import folder_of
from places import tables

from assay.tables.load import load
from data_gen.proof.forms import Shelf
from data_gen.queries.lake import Folder, open_lakes
from data_gen.queries.obscured import (
    make_key,
    moved,
    obscure_tables,
    scaled,
)


@pytest.mark.parametrize("name", tables("queries")["settled"])
def test_a_settled_table_is_read_again_when_it_is_obscured(name: str, tmp_path: Path) -> None:
    """Each form is written so that the reader is in no doubt, or `tables.yaml` says what is meant:
    the same rows, numbers times their factor, other words."""
    folder = folder_of([name], tmp_path / "plain", settle=True)
    (lake,) = open_lakes([Folder(folder, bare=True)], map)
    assert lake.tables, lake.refused
    used, there = {t.path for t in lake.tables}, tmp_path / "obscured"
    found = obscure_tables(lake.folder, "plain", lake.tables, used, 1, there)
    key = make_key("plain", lake.tables, 1)
    for old, new in zip(lake.tables, found, strict=True):
        assert not new.reading.doubts
        one, two = load(old.reading, lake.folder), load(new.reading, there)
        assert len(one) == len(two) and list(new.columns) == list(two.columns)
        for before, after in zip(old.columns, new.columns, strict=True):
            assert one[before].isna().tolist() == two[after].isna().tolist(), (before, after)
            if before in old.numbers:
                right = one[before].astype(float) * float(key.factors[before])
                assert two[after].tolist() == pytest.approx(right.tolist(), nan_ok=True)
            elif before in old.groups:
                assert one[before].nunique() == two[after].nunique()
        with Shelf(there) as shelf:  # the second reader is in no doubt of its measures either
            opened = shelf.table(new.path, new.reading.part)
            assert {opened.column(c) for c in new.numbers} <= set(opened.ids.values())


@pytest.mark.parametrize(("cell", "want"), tables("queries")["three_times"])
def test_numbers_keep_the_way_they_are_written(cell: Any, want: Any) -> None:
    assert scaled(cell, Decimal(3)) == want


def test_years_move() -> None:
    given = (1990, 1990.0, "1990", "n/a", None)
    assert [moved(cell, 7) for cell in given] == [1997, 1997.0, "1997", "n/a", None]


@given(st.one_of(st.text(max_size=12), st.floats(), st.integers(), st.none(), st.booleans()))
def test_any_cell_can_be_changed(cell: Any) -> None:
    for value in (scaled(cell, Decimal("1.7")), moved(cell, 7)):
        assert isinstance(value, str) == isinstance(cell, str)
