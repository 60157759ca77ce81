"""What a column is: by its values and, where they do not say, by its name or description."""

from __future__ import annotations

import random  # noqa: F401  (expressions of the table use it)
from typing import Any

import pytest
from places import tables

pd = pytest.importorskip("pandas")

from data_gen.columns import (  # noqa: E402
    are_cells,
    look,
    look_at,
    of_calendar,
    of_many_things,
    says_nothing,
)

WHOLE = [i * 37 % 101 for i in range(80)]
PARTS = [i * 37 % 101 / 3 + 0.25 for i in range(80)]
SHARES = [i * 37 % 101 / 101 for i in range(80)]
RANKS = [1 + i * 37 % 86 for i in range(86) if i % 12]  # some rows are lost
GRID = [0.5 * (i % 10) for i in range(80)]
SCALE = [1 + i % 7 for i in range(80)]


# what a column may be used for (mean, total, or nothing) and what it is: its name, an expression of
# its values, and what is said of it
TABLE = tables("columns")


@pytest.mark.parametrize(("name", "values", "said", "want"), TABLE["use"])
def test_what_may_be_computed_of_a_column(name: str, values: str, said: str, want: str) -> None:
    assert measure(name, pd.Series(eval(values), dtype=float), said) == want


def measure(name: str, column: Any, said: str = "") -> str:
    found = look(name, column, said)
    assert (found.kind == "measure") is (found.why == "")
    return "" if found.kind != "measure" else "total" if found.adds else "mean"


CLOCK = [100 * (i % 13 + 7) + i * 7 % 60 for i in range(80)]


@pytest.mark.parametrize(("name", "values", "kind"), TABLE["kind"])
def test_what_a_column_is(name: str, values: str, kind: str) -> None:
    found = look(name, pd.Series(list(eval(values))))
    assert found.kind == kind
    assert found.why or kind in ("measure", "group", "name", "flag")


def test_columns_are_seen_beside_each_other() -> None:
    names = [f"n{i % 20}" for i in range(100)]
    frame = pd.DataFrame({"who": names, "paid": [1000 + (i % 20) ** 2 for i in range(100)]})
    assert look_at(frame)["paid"].kind == "code"
    long = pd.DataFrame({"variable": ["a", "b"] * 40, "value": PARTS, "pay": PARTS})
    kinds = {n: c.kind for n, c in look_at(long).items()}
    assert kinds == {"variable": "group", "value": "mixed", "pay": "measure"}
    halves = pd.DataFrame({"child": names, "frequency": [v / 2 for v in range(100)]})
    assert look_at(halves)["frequency"].kind == "cells"
    units = pd.DataFrame(
        {"test": names, "Einheit": ["kg", "cm"] * 50, "norm": [*PARTS, *PARTS[:20]]}
    )
    assert look_at(units)["norm"].kind == "mixed"


def test_names_say_something_in_any_script() -> None:
    assert not any(map(says_nothing, ["売上", "Gründung", "power kW", "цена", "값", "length"]))
    assert all(map(says_nothing, ["v1", "x", "z10", "lc_ly_1", "É1"]))
    assert of_calendar(["Mon", "Tue", "Wed."]) and of_calendar(["1994 Winter", "1998 Winter"])
    assert of_calendar(["Montag", "Dienstag"]) and not of_calendar(["sport", "garden"])


@pytest.mark.parametrize(("name", "columns", "said", "many"), TABLE["of_many_things"])
def test_a_long_table_holds_values_of_many_things(
    name: str, columns: list[str], said: str, many: bool
) -> None:
    assert of_many_things(name, columns, said) is many


@pytest.mark.parametrize(("name", "described", "sizes", "rows", "cells"), TABLE["cells"])
def test_counts_in_the_cells_of_a_table_are_no_measures(
    name: str, described: str, sizes: list[int], rows: int, cells: bool
) -> None:
    assert are_cells(name, described, sizes, rows) is cells
