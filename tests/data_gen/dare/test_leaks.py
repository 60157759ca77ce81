"""A column that a function of another gives is found, whatever the function; chance is not."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from data_gen.dare.leaks import (  # noqa: E402
    given_away,
    made_of,
    owner_of,
    tells,
    tells_within,
    told_by_key,
)

SEEDS = st.integers(0, 10**6)


def numbers(seed: int, rows: int = 300) -> Any:
    rng = random.Random(seed)
    return pd.Series([rng.uniform(0.5, 90) for _ in range(rows)])


@settings(max_examples=30)
@given(SEEDS, st.floats(0.01, 1000), st.floats(-1e4, 1e4), st.integers(0, 3))
def test_a_line_a_monotone_function_and_a_rounding_tell(
    seed: int, slope: float, base: float, digits: int
) -> None:
    x = numbers(seed)
    ways = (lambda v: slope * v + base, lambda v: base - slope * v, math.log, math.sqrt, math.exp)
    for way in (*ways, lambda v: -1 / v, lambda v: v**3):
        assert tells(x, x.map(way)) and tells(x.map(way), x)
    assert tells(x, x.round(digits))


@settings(max_examples=25)
@given(SEEDS, st.integers(3, 12), st.booleans())
def test_a_mapping_by_dictionary_tells(seed: int, size: int, words: bool) -> None:
    rng = random.Random(seed)
    keys = [f"k{i}" if words else i * 7 for i in range(size)]
    codes = {k: rng.randrange(size // 2 + 1) for k in keys} | {keys[0]: 0, keys[1]: 1}
    quantity = {k: rng.gauss(0, 100) for k in keys}
    x = pd.Series([rng.choice(keys) for _ in range(300)])
    assert tells(x, x.map(codes)) and tells(x, x.map(quantity))


def test_intervals_tell_one_way_and_a_smooth_function_that_is_not_monotone_too() -> None:
    age, x = numbers(3).round(2), numbers(1) - 45
    group = age.map(lambda a: "child" if a < 18 else "adult" if a < 65 else "old")
    assert tells(age, group) and not tells(group, age)
    assert tells(x, x**2) and tells(x, (x / 9).map(math.sin))


@settings(max_examples=25)
@given(SEEDS, st.sampled_from(["numbers", "labels", "many labels"]))
def test_what_only_comes_along_does_not_tell(seed: int, kind: str) -> None:
    rng, x = random.Random(seed + 1), numbers(seed)
    noisy = x + pd.Series([rng.gauss(0, 12) for _ in x])
    if kind == "numbers":
        assert not tells(x, noisy) and not tells(noisy, x)
    else:
        parts = 2 if kind == "labels" else 9
        label = (noisy // (90 / parts)).astype(int).map(lambda v: f"g{v}")
        assert not tells(x, label) and not tells(label, x)


def test_rare_values_are_no_mapping() -> None:
    """Names of which nearly each occurs once fit any column; that says nothing."""
    rng = random.Random(0)
    names = pd.Series([f"n{rng.randrange(5000)}" for _ in range(300)])
    assert not tells(names, pd.Series([rng.choice("ab") for _ in range(300)]))
    assert not tells(names, numbers(2))


@pytest.mark.parametrize("form", [None, "%Y-%m-%d", "%d.%m.%Y"])
def test_a_date_tells_what_the_calendar_says(form: str | None) -> None:
    rng = random.Random(3)
    days = pd.Series(pd.date_range("2019-01-01", periods=700)).sample(frac=1, random_state=1)
    shown = (days if form is None else days.dt.strftime(form)).reset_index(drop=True)
    days = days.reset_index(drop=True)
    for part in (days.dt.day_of_year, days.dt.month, days.dt.day_of_week, days.dt.month_name()):
        assert tells(shown, part)
    assert not tells(shown, pd.Series([rng.gauss(0, 1) for _ in range(700)]))


def series(rows: int = 400) -> Any:
    rng = random.Random(5)
    days = pd.Series(pd.date_range("2020-01-01", periods=rows))
    return pd.DataFrame(
        {
            "day_of_year": days.dt.day_of_year,
            "t": range(rows),
            "load": [50 + 9 * math.sin(i / 7) + rng.gauss(0, 2) for i in range(rows)],
            "_when": days,
        }
    )


def test_the_key_of_a_series_gives_calendar_columns_and_counters() -> None:
    frame = series()
    assert told_by_key(frame, "day_of_year", frame["_when"], [])
    assert told_by_key(frame, "t", frame["_when"], [])
    assert told_by_key(frame, "load", frame["_when"], []) == ""


def test_the_entity_of_a_series_gives_constants_and_ages() -> None:
    whole = pd.concat([series().assign(town=t, area=i * 9.5 + i**2) for i, t in enumerate("abcd")])
    whole = whole.reset_index(drop=True)
    whole["age"] = whole["t"] + whole["area"] * 3
    for target in ("area", "age", "day_of_year"):
        assert told_by_key(whole, target, whole["_when"], ["town"]), target
    assert told_by_key(whole, "load", whole["_when"], ["town"]) == ""


def test_a_column_that_was_scaled_entity_by_entity_is_found() -> None:
    rng = random.Random(4)
    entity = pd.Series([t for t in "abcdef" for _ in range(40)])
    y = pd.Series([rng.gauss(50, 9) for _ in entity])
    scale = entity.map({t: (i + 2.0) ** 3 for i, t in enumerate("abcdef")})
    assert tells_within(y / scale - scale, y, entity) and not tells(y / scale - scale, y)
    assert not tells_within(y / scale + pd.Series([rng.gauss(0, 1) for _ in y]), y, entity)


@settings(max_examples=20)
@given(SEEDS, st.sampled_from("+-*/%w"))
def test_what_two_columns_make_is_found(seed: int, way: str) -> None:
    a, b, c = numbers(seed), numbers(seed + 1), numbers(seed + 2)
    made = {
        "+": a + b,
        "-": a - b,
        "*": a * b,
        "/": (a / b).round(6),
        "%": a * (1 + (b - 45) / 100),
        "w": 0.3 * a + 0.7 * b,
    }[way]
    frame = pd.DataFrame({"a": a, "b": b, "c": c, "made": made})
    assert set(made_of(frame, "made", ["a", "b", "c"])[0]) == {"a", "b"}
    noisy = frame.assign(made=made + numbers(seed + 3) * float(made.std()) / 90)
    assert made_of(noisy, "made", ["a", "b", "c"]) == ((), "")


def test_a_total_of_many_and_a_label_of_indicators_are_found() -> None:
    rng = random.Random(8)
    parts = {f"p{i}": numbers(i) for i in range(6)}
    frame = pd.DataFrame(parts)
    frame["total"] = frame.sum(axis=1)
    assert set(made_of(frame, "total", list(parts))[0]) == set(parts)
    region = pd.Series([rng.choice("nesw") for _ in range(300)])
    flags = pd.DataFrame({f"is_{r}": (region == r).astype(int) for r in "nes"})
    frame = pd.concat([frame[["p0"]], flags, region.rename("region")], axis=1)
    assert set(made_of(frame, "region", ["p0", *flags])[0]) == set(flags)


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(["line", "map", "steps", "none"]))
def test_the_audit_fits_on_training_rows_and_judges_on_others(seed: int, way: str) -> None:
    rng, x = random.Random(seed), numbers(seed, 400)
    y = {
        "line": x * 3 + 1,
        "map": (x // 9).map({i: (i * 37) % 11 for i in range(12)}),
        "steps": (x > 40).map({True: "high", False: "low"}),
        "none": pd.Series([rng.gauss(0, 1) for _ in x]) + x / 60,
    }[way]
    frame = pd.DataFrame({"x": x, "z": numbers(seed + 9, 400), "y": y})
    found = given_away(frame[:320], frame[320:], "y", ["x", "z"])
    assert list(found) in ([["x"]] if way in ("line",) else [["x"], []] if way != "none" else [[]])


def test_rows_of_one_owner_tell_one_another() -> None:
    rng = random.Random(2)
    level = [rng.gauss(0, 3) for _ in range(40)]
    school = [n % 40 for n in range(400)]
    frame = pd.DataFrame({"school": school, "mood": [level[s] + rng.gauss(0, 1) for s in school]})
    frame["own"] = [rng.gauss(0, 1) for _ in school]
    assert owner_of(frame, "mood", ["school"]) == "school"
    assert owner_of(frame, "own", ["school"]) == ""
