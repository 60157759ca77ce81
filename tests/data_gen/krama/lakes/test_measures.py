"""Which columns are measured, and which may be added up: by name, unit and values."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")

from data_gen.krama.lakes.measures import measure  # noqa: E402

WHOLE = [i * 37 % 101 for i in range(80)]
PARTS = [i * 37 % 101 / 3 + 0.25 for i in range(80)]
SHARES = [i * 37 % 101 / 101 for i in range(80)]
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
        ("n_visits", WHOLE, "", "total"),
        ("Freq", WHOLE, "number of accidents", "total"),
        ("children", SCALE, "", ""),
        ("deaths", [*SCALE[:40], *range(40)], "", "total"),
        ("experience", WHOLE, "Number of years of experience", "mean"),
    ],
)
def test_what_may_be_computed_of_a_column(name: str, values: object, said: str, want: str) -> None:
    assert measure(name, pd.Series(values, dtype=float), said) == want
