"""Resampling of a series: bins by hand, and which rules a series gets."""

from __future__ import annotations

import random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")

from data_gen.dare.series import HOWS, binned, choose, until  # noqa: E402
from data_gen.dare.time_columns import Timed, shifted  # noqa: E402


def timed(times: Any, form: str = "%Y-%m-%d", **columns: Any) -> Timed:
    when = pd.Series(pd.to_datetime(times))
    frame = pd.DataFrame({"when": when, **columns}).assign(_when=when)
    return Timed(frame, "when", form, ["who"] if "who" in columns else [])


def test_weeks_end_on_sunday_and_months_on_their_last_day() -> None:
    days = timed(pd.date_range("2024-01-29", periods=14), y=range(14))  # a Monday
    weeks = binned(days, "y", ("1W", "sum"))
    assert weeks["_bin"].dt.strftime("%m-%d").tolist() == ["02-04", "02-11"]
    assert weeks["_start"].dt.strftime("%m-%d").tolist() == ["01-29", "02-05"]
    assert weeks["_end"].dt.strftime("%m-%d").tolist() == ["02-05", "02-12"]
    assert weeks["y"].tolist() == [sum(range(7)), sum(range(7, 14))]
    months = binned(days, "y", ("1M", "mean"))
    assert months["_bin"].dt.strftime("%m-%d").tolist() == ["01-31", "02-29"]
    assert months["_end"].dt.strftime("%m-%d").tolist() == ["02-01", "03-01"]
    assert months["y"].tolist() == [1.0, 8.0]


def test_entities_are_kept_apart_and_empty_bins_count_nothing() -> None:
    hours = ["2024-01-01 01:10", "2024-01-01 01:50", "2024-01-01 04:00", "2024-01-01 01:00"]
    rows = timed(hours, "%Y-%m-%d %H:%M:%S", y=[1.0, 2.0, 4.0, 8.0], who=["a", "a", "a", "b"])
    counts = binned(rows, "y", ("1H", "count"))
    assert counts[counts["who"] == "a"]["y"].tolist() == [2, 0, 0, 1]
    assert counts[counts["who"] == "b"]["y"].tolist() == [1]
    for how, wanted in (("sum", [3.0, 4.0]), ("mean", [1.5, 4.0])):
        found = binned(rows, "y", ("1H", how))
        assert found[found["who"] == "a"]["y"].tolist() == wanted


@pytest.mark.parametrize(
    ("step", "rules"),
    [
        ("10s", {"1min"}),
        ("5min", {"30min", "1H"}),
        ("1h", {"1D"}),
        ("1D", {"1W", "1M"}),
        ("7D", {"1M"}),
        ("30D", set[str]()),
    ],
)
def test_rules_fit_the_steps_of_a_series(step: str, rules: set[str]) -> None:
    count = 2000
    series = timed(pd.date_range("2020-01-01", periods=count, freq=step), y=range(count))
    found = {choose(series, random.Random(seed)) for seed in range(60)}
    kept = {one for one in found if one is not None}
    assert {rule for rule, _ in kept} == rules
    assert {how for _, how in kept} <= set(HOWS[:2])  # every bin holds as many rows
    assert None in found


def test_uneven_series_may_be_counted() -> None:
    rng = random.Random(1)
    at, times = pd.Timestamp("2020-01-01"), list[Any]()
    for _ in range(1500):
        at += pd.Timedelta(hours=rng.expovariate(1 / 4))
        times.append(at)
    events = timed(times, "%Y-%m-%d %H:%M:%S", y=range(1500))
    assert "count" in {(choose(events, random.Random(s)) or ("", ""))[1] for s in range(60)}
    assert until(events) > at


def test_a_column_that_is_the_target_moved_is_found() -> None:
    rng = random.Random(2)
    values = [rng.gauss(0, 1) for _ in range(80)]
    days = list(pd.date_range("2024-01-01", periods=40)) * 2
    who = ["a"] * 40 + ["b"] * 40
    lag = [None, *values[:39], None, *values[40:79]]
    lead2 = [*values[2:40], None, None, *values[42:], None, None]
    rows = timed(days, y=values, who=who, lag=lag, lead2=lead2, own=[v + 1 for v in values])
    assert shifted(rows, "y", "lag") == 1
    assert shifted(rows, "y", "lead2") == -2
    assert shifted(rows, "y", "own") == 0
