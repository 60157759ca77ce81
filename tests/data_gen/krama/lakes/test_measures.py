"""Which columns are measured, and which may be added up: by name, unit and values."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")

from data_gen.krama.lakes.measures import measure, of_many_things  # noqa: E402

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
