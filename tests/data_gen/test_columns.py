"""What a column is: by its values and, where they do not say, by its name or description."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from places import ROOT

pd = pytest.importorskip("pandas")

from data_gen.columns import (  # noqa: E402
    are_cells,
    look,
    look_at,
    of_calendar,
    of_many_things,
    opaque_group,
    says_nothing,
    stands_for,
)

WHOLE = [i * 37 % 101 for i in range(80)]
PARTS = [i * 37 % 101 / 3 + 0.25 for i in range(80)]
SHARES = [i * 37 % 101 / 101 for i in range(80)]
RANKS = [1 + i * 37 % 86 for i in range(86) if i % 12]  # some rows are lost
GRID = [0.5 * (i % 10) for i in range(80)]
SCALE = [1 + i % 7 for i in range(80)]


# what a column may be used for (mean, total, or nothing) and what it is: its name, an expression of
# its values, and what is said of it
TABLE = json.loads((ROOT / "tests/data/columns.json").read_text("utf-8"))


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
    for name, kind in (("Einheit", "mixed"), ("business unit", "measure")):
        frame = pd.DataFrame(
            {"test": names, name: ["kg", "cm"] * 50, "norm": [*PARTS, *PARTS[:20]]}
        )
        assert look_at(frame)["norm"].kind == kind


def test_names_say_something_in_any_script() -> None:
    assert not any(map(says_nothing, ["売上", "Gründung", "power kW", "цена", "값", "length"]))
    assert all(map(says_nothing, ["v1", "x", "z10", "lc_ly_1", "É1"]))
    assert of_calendar(["Mon", "Tue", "Wed."]) and of_calendar(["1994 Winter", "1998 Winter"])
    assert of_calendar(["Montag", "Dienstag"]) and not of_calendar(["sport", "garden"])


def test_a_long_table_holds_values_of_many_things() -> None:
    for name, columns, said, many in (
        ("value01", ["date", "variable"], "", True),
        ("value01", ["date", "town"], "", False),
        ("height", ["variable"], "", False),
        ("prf_rate", ["measure_title"], "Measure performance rate", True),
        ("prf_rate", ["city"], "Measure performance rate", False),
        ("score", ["measure_abbr"], "", True),
        ("score", ["school"], "", False),
    ):
        assert of_many_things(name, columns, said) is many


@pytest.mark.parametrize(
    ("name", "described", "sizes", "rows", "cells"),
    [
        ("Freq", "", [], 180, True),
        ("f", "frequency", [], 180, True),
        ("count", "", [3, 4, 5], 60, True),
        ("n", "", [3, 4, 5], 40, True),
        ("ncontrols", "", [6, 4, 4], 88, True),
        ("count", "", [3, 4, 5], 20, False),  # most cells are empty: rows of their own
        ("y", "The number of AIDS cases reported", [10, 4, 15, 38], 570, True),
        ("y", "The number of AIDS cases reported", [10, 4, 15, 200], 570, False),
        ("agree", "number of subjects in agreement", [21, 2], 42, True),
        ("sales", "", [12, 5], 60, False),  # by month and shop: each row is a figure of its own
        ("price", "", [3, 4, 5], 60, False),
    ],
)
def test_counts_in_the_cells_of_a_table_are_no_measures(
    name: str, described: str, sizes: list[int], rows: int, cells: bool
) -> None:
    assert are_cells(name, described, sizes, rows) is cells


def test_whole_numbers_that_stand_for_names_are_no_measures() -> None:
    names = pd.Series([f"n{i % 20}" for i in range(100)])
    assert stands_for(pd.Series([1000 + 7 * (i % 20) for i in range(100)]), names)
    assert not stands_for(pd.Series([1000 + 7 * (i % 19) for i in range(100)]), names)
    assert not stands_for(pd.Series([0.5 + i % 20 for i in range(100)]), names)
    assert not stands_for(pd.Series(range(100)), pd.Series([f"n{i}" for i in range(100)]))


def test_a_total_of_lengths_means_nothing_and_an_even_grid_is_no_measure() -> None:
    assert measure("totlngth", pd.Series(PARTS), "total length") == "mean"
    assert measure("tst", pd.Series([400 + 100 * (i // 2) + 30 * (i % 2) for i in range(20)])) == ""
    assert measure("education", pd.Series([i % 21 for i in range(42)]), "") == ""
    assert opaque_group("e2b") and opaque_group("v1") and not opaque_group("drv")


def test_numbers_that_never_come_twice_name_rows_where_chance_would_repeat_some() -> None:
    draw = random.Random(4)
    named = pd.Series(draw.sample(range(4, 9030), 600))
    assert look("ref", named).kind == "id" and look("identifier", named).kind == "id"
    paid = pd.Series([draw.randrange(1000, 90_000) for _ in range(600)])
    assert look("wage", paid).kind == "measure"
    assert look("wage", pd.Series(draw.sample(range(1000, 900_000), 600))).kind == "measure"
