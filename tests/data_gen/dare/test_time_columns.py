"""Which tables are one series: no random split of them is fair."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")

from data_gen.dare.time_columns import is_one_series, keys_of  # noqa: E402


def days(count: int) -> list[str]:
    return [d.date().isoformat() for d in pd.date_range("2001-01-01", periods=count)]


def test_times_that_come_once_and_evenly_make_one_series() -> None:
    value = [n * 37 % 101 / 3 for n in range(200)]
    assert is_one_series(pd.DataFrame({"date": days(200), "value": value}))
    assert not is_one_series(pd.DataFrame({"date": days(100) * 2, "value": value}))
    uneven = [days(4000)[n * n // 11] for n in range(200)]
    assert not is_one_series(pd.DataFrame({"date": uneven, "value": value}))
    assert not is_one_series(pd.DataFrame({"colour": ["red", "blue"] * 100, "value": value}))
    assert not is_one_series(pd.DataFrame({"date": [], "value": []}))


def test_what_with_a_time_names_the_rows_of_a_panel_is_found() -> None:
    rows = [(d, s, i) for d in days(60) for s in ("Ulm", "Bonn") for i in ("flu", "mumps")]
    frame = pd.DataFrame(rows, columns=["date", "town", "disease"])
    assert set(keys_of(frame.assign(cases=range(len(frame))))) == {"town", "disease"}
    assert keys_of(pd.DataFrame({"date": days(200), "colour": ["red", "blue"] * 100})) == []
    assert keys_of(frame.drop(columns="date")) == []
