"""Which columns are measured, and which may be added up: by name, unit and values."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")

from data_gen.krama.lakes.measures import (  # noqa: E402
    are_cells,
    measure,
    of_many_things,
    opaque_group,
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
        ("Freq", WHOLE, "number of accidents", "total"),
        ("children", SCALE, "", ""),
        ("deaths", [*SCALE[:40], *range(40)], "", "total"),
        ("experience", WHOLE, "Number of years of experience", "mean"),
    ],
)
def test_what_may_be_computed_of_a_column(name: str, values: object, said: str, want: str) -> None:
    assert measure(name, pd.Series(values, dtype=float), said) == want


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
