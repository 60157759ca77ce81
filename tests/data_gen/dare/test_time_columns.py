"""Which tables are one series: no random split of them is fair."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")

from data_gen.dare.time_columns import (  # noqa: E402
    are_things,
    doubled,
    find_time,
    is_one_series,
    is_regular,
    keys_of,
)


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


def test_double_stamps_of_a_regular_series_are_a_doubt() -> None:
    stamps = [*days(200), *days(200)[10:15]]
    frame = pd.DataFrame({"day": sorted(stamps), "value": range(205)})
    when = pd.to_datetime(frame["day"])
    doubt = doubled(frame, "day", when, [])
    assert doubt is not None and doubt.code == "duplicate_stamps"
    assert doubt.settle == "drop_duplicates: [day]" and "5 of 205 rows" in doubt.said
    assert is_one_series(frame)
    once = frame.drop_duplicates("day")
    assert doubled(once, "day", pd.to_datetime(once["day"]), []) is None
    panel = pd.DataFrame({"day": days(100) * 2, "value": range(200)})
    assert doubled(panel, "day", pd.to_datetime(panel["day"]), []) is None


def test_a_register_of_things_is_no_series() -> None:
    bought = [days(4000)[n * n // 9 % 4000] for n in range(180)]
    frame = pd.DataFrame({"machine": [f"M-{n:03d}" for n in range(180)], "bought": bought})
    assert are_things(frame, "bought") == "machine"
    assert not is_regular(frame, pd.to_datetime(frame["bought"]), [])
    log = pd.DataFrame({"t": days(200), "state": ["on", "off"] * 100})
    assert are_things(log, "t") == "" and is_regular(log, pd.to_datetime(log["t"]), [])
    months = pd.Series(pd.date_range("2001-01-31", periods=60, freq="ME"))
    assert is_regular(pd.DataFrame({"t": months}), months, [])


def test_a_time_is_found_under_any_name() -> None:
    frame = pd.DataFrame({"コード": ["ab-12345"] * 60, "いつ": days(60), "v": range(60)})
    found = find_time(frame)
    assert found is not None and found[0] == "いつ"
    assert find_time(pd.DataFrame({"Jahr": list(range(1950, 2010))})) is not None
    assert find_time(pd.DataFrame({"weight": list(range(1950, 2010))})) is None


def test_years_one_after_the_other_and_elapsed_times_make_one_series() -> None:
    years = pd.DataFrame(
        {"Year": range(1850, 2000), "weddings": [float(i % 7) for i in range(150)]}
    )
    assert is_one_series(years)
    elapsed = [f"0 days 00:{i // 60:02d}:{i % 60:02d}" for i in range(600)]
    ride = pd.DataFrame(
        {"row": range(600), "time": elapsed, "speed": [i % 9 / 3 for i in range(600)]}
    )
    assert is_one_series(ride)
    assert is_one_series(ride.assign(time=[0.5 * i for i in range(600)]))
    shuffled = ride.sample(frac=1, random_state=1)
    assert not is_one_series(shuffled.assign(time=[(i * i) % 997 for i in range(600)]))
    assert not is_one_series(ride.drop(columns="time"))
