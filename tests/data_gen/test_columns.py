"""What a column is: by its values and, where they do not say, by its name or description."""

from __future__ import annotations

import random
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("name", "values", "said", "want"),
    [
        ("month", WHOLE, "", ""),
        ("day_of_week", WHOLE, "", ""),
        ("site", WHOLE, "", ""),
        ("ZipCode", WHOLE, "", ""),
        ("Latitude", PARTS, "", ""),
        ("x", PARTS, "", ""),
        ("XC", PARTS, "X coordinate", ""),
        ("death", WHOLE, "Julian date of death", ""),
        ("rank", WHOLE, "", ""),
        ("rownames", range(1, 81), "", ""),
        ("rownames", [1 + i // 4 + (1 + i % 4) / 10 for i in range(80)], "", ""),  # 1.1, 1.2, …
        ("no", PARTS, "nitric oxide", "mean"),
        ("serial", WHOLE, "", ""),
        ("plate", range(7, 87), "", ""),  # a running number under any name
        ("v1", PARTS, "", ""),
        ("v1", PARTS, "width of the wing", "mean"),
        ("school", WHOLE, "School ID", ""),
        ("satisfaction", SCALE, "", ""),
        ("temperature", PARTS, "", "mean"),
        ("crime_rate", PARTS, "", "mean"),
        ("percent_population", PARTS, "", "mean"),
        ("GDP per capita", PARTS, "", "mean"),
        ("cases per 100", PARTS, "", "mean"),
        ("price", PARTS, "", "mean"),
        ("height", PARTS, "", "mean"),
        ("population", SHARES, "", "mean"),
        ("sales", [v - 50 for v in WHOLE], "", "mean"),
        ("sales", PARTS, "", "total"),
        ("Number of deaths", WHOLE, "", "total"),
        ("Infanticide", RANKS, "Infanticides per capita", ""),
        ("Infanticide", WHOLE, "Infanticides per capita. Ranked ratio", ""),
        ("delay", GRID, "", ""),  # as often each: chosen, not measured
        ("cases", GRID, "", "total"),
        ("mom", [i // 2 + i // 9 for i in range(80)], "", ""),  # of whom several rows speak
        ("end", WHOLE, "", ""),
        ("income", [1 + i * 7 % 19 for i in range(80)], "", ""),  # in classes
        ("income", WHOLE, "", "mean"),
        ("lc_ly_1", PARTS, "", ""),
        ("lc_ly_1", PARTS, "consumption less income, a year before", "mean"),
        ("n_visits", WHOLE, "", "total"),
        ("sleep_total", PARTS, "", "mean"),
        ("Freq", WHOLE, "number of accidents", "total"),
        ("children", SCALE, "", ""),
        ("deaths", [*SCALE[:40], *range(40)], "", "total"),
        ("experience", WHOLE, "Number of years of experience", "mean"),
    ],
)
def test_what_may_be_computed_of_a_column(name: str, values: object, said: str, want: str) -> None:
    assert measure(name, pd.Series(values, dtype=float), said) == want


def measure(name: str, column: Any, said: str = "") -> str:
    found = look(name, column, said)
    assert (found.kind == "measure") is (found.why == "")
    return "" if found.kind != "measure" else "total" if found.adds else "mean"


CLOCK = [100 * (i % 13 + 7) + i * 7 % 60 for i in range(80)]


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("time", [930, 1445, 1200, 800, 1815, 2359] * 20, "clock"),
        ("abfahrt", CLOCK, "clock"),  # under any name, where there are enough
        ("preis", [50 * (i % 40) for i in range(80)], "grid"),
        ("sold", [50 * (i * i % 41) for i in range(80)], "measure"),
        ("kauf", [20230101 + i % 28 for i in range(80)], "date"),
        ("ts", [1_700_000_000 + 997 * i for i in range(80)], "date"),
        ("anruf", [49_171_000_000 + 7919 * (i * 37 % 80) for i in range(80)], "id"),
        ("Kundennummer", [v + 0.0 for v in WHOLE], "id"),
        ("顧客番号", WHOLE, "id"),
        ("売上", WHOLE, "measure"),
        ("年齢", PARTS, "measure"),
        ("年", [1990 + i % 30 for i in range(80)], "year"),
        ("Gründung", [1650 + i for i in range(80)], "year"),
        ("shuffled", [(i * 37) % 80 + 1000 for i in range(80)], "id"),
        ("plz", [10115 + i * 113 for i in range(80)], "code"),
        ("distcod", [61382 + i * 113 for i in range(80)], "code"),
        ("wind_dir", [10 * (i * 7 % 36) + i % 3 for i in range(80)], "place"),
        ("lonely", [4.0] * 80, "constant"),
        ("gaps", [None] * 50 + WHOLE[:30], "empty"),
        ("town", [f"t{i % 9}" for i in range(80)], "group"),
        ("surname", [f"t{i % 9}" for i in range(80)], "person"),
        ("LastName", [f"t{i % 9}" for i in range(80)], "person"),
        ("name", [f"t{i % 9}" for i in range(80)], "group"),
        ("shop", [f"shop {i}" for i in range(80)], "name"),
        ("sku", [f"s{i % 70}" for i in range(150)], "key"),
        ("remark", ["word " * 30 + str(i) for i in range(80)], "text"),
        ("parts", [[1, 2]] * 80, "lists"),
        ("open", [True, False] * 40, "flag"),
    ],
)
def test_what_a_column_is(name: str, values: Any, kind: str) -> None:
    found = look(name, pd.Series(list(values)))
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
    assert of_many_things("value01", ["date", "variable"])
    assert not of_many_things("value01", ["date", "town"])
    assert not of_many_things("height", ["variable"])


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


def test_scores_of_several_things_say_nothing_together() -> None:
    assert of_many_things("prf_rate", ["measure_title"], "Measure performance rate")
    assert not of_many_things("prf_rate", ["city"], "Measure performance rate")
    assert of_many_things("score", ["measure_abbr"]) and not of_many_things("score", ["school"])


def test_numbers_that_never_come_twice_name_rows_where_chance_would_repeat_some() -> None:
    draw = random.Random(4)
    named = pd.Series(draw.sample(range(4, 9030), 600))
    assert look("ref", named).kind == "id" and look("identifier", named).kind == "id"
    paid = pd.Series([draw.randrange(1000, 90_000) for _ in range(600)])
    assert look("wage", paid).kind == "measure"
    assert look("wage", pd.Series(draw.sample(range(1000, 900_000), 600))).kind == "measure"
