"""What a column is: by its values and, where they do not say, by its name or description."""

from __future__ import annotations

import random
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
VALUES: dict[str, Any] = {
    "whole": WHOLE,
    "parts": PARTS,
    "shares": [i * 37 % 101 / 101 for i in range(80)],
    "ranks": [1 + i * 37 % 86 for i in range(86) if i % 12],
    "grid": [0.5 * (i % 10) for i in range(80)],
    "scale": [1 + i % 7 for i in range(80)],
    "one to eighty": range(1, 81),
    "sections": [1 + i // 4 + (1 + i % 4) / 10 for i in range(80)],
    "counted on": range(7, 87),
    "gains and losses": [v - 50 for v in WHOLE],
    "rising": [i // 2 + i // 9 for i in range(80)],
    "19 codes": [1 + i * 7 % 19 for i in range(80)],
    "a scale, then a count": [*(1 + i % 7 for i in range(40)), *range(40)],
    "course numbers": [400 + 100 * (i // 2) + 30 * (i % 2) for i in range(20)],
    "twice 21": [i % 21 for i in range(42)],
    "clock, few": [930, 1445, 1200, 800, 1815, 2359] * 20,
    "clock": [100 * (i % 13 + 7) + i * 7 % 60 for i in range(80)],
    "steps of 50": [50 * (i % 40) for i in range(80)],
    "steps of 50, uneven": [50 * (i * i % 41) for i in range(80)],
    "days as digits": [20230101 + i % 28 for i in range(80)],
    "seconds since 1970": [1700000000 + 997 * i for i in range(80)],
    "telephones": [49171000000 + 7919 * (i * 37 % 80) for i in range(80)],
    "whole, as floats": [v + 0.0 for v in WHOLE],
    "years": [1990 + i % 30 for i in range(80)],
    "old years": [1650 + i for i in range(80)],
    "all of eighty numbers": [i * 37 % 80 + 1000 for i in range(80)],
    "postcodes": [10115 + i * 113 for i in range(80)],
    "postcodes of the south": [61382 + i * 113 for i in range(80)],
    "angles": [10 * (i * 7 % 36) + i % 3 for i in range(80)],
    "one value": [4.0] * 80,
    "mostly missing": [None] * 50 + WHOLE[:30],
    "nine words": [f"t{i % 9}" for i in range(80)],
    "all words differ": [f"shop {i}" for i in range(80)],
    "seventy words": [f"s{i % 70}" for i in range(150)],
    "long texts": ["word " * 30 + str(i) for i in range(80)],
    "lists": [[1, 2]] * 80,
    "truths": [True, False] * 40,
    "drawn below 9030": random.Random(4).sample(range(4, 9030), 600),
    "drawn, some twice": random.Random(4).choices(range(1000, 90_000), k=600),
    "drawn below 900000": random.Random(4).sample(range(1000, 900_000), 600),
}

# Cases by the question that is asked of a column: what may be computed of it (`use`), what it is
# (`kind`), whether its values are of different things (`of_many_things`), whether its numbers are
# counts in the cells of a table (`cells`).
TABLE = tables("columns")


@pytest.mark.parametrize(("name", "values", "said", "want"), TABLE["use"])
def test_what_may_be_computed_of_a_column(name: str, values: str, said: str, want: str) -> None:
    assert measure(name, pd.Series(VALUES[values], dtype=float), said) == want


def measure(name: str, column: Any, said: str = "") -> str:
    found = look(name, column, said)
    assert (found.kind == "measure") is (found.why == "")
    return "" if found.kind != "measure" else "total" if found.adds else "mean"


@pytest.mark.parametrize(("name", "values", "kind"), TABLE["kind"])
def test_what_a_column_is(name: str, values: str, kind: str) -> None:
    found = look(name, pd.Series(list(VALUES[values])))
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
