# ruff: noqa: E402
"""A column that a function of another gives is found, whatever the function; chance is not. What
the audit says of table tasks: planted leaks are found, clean tasks pass."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import Task, TaskError
from data_gen.dare.leaks import (
    audit_tables,
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


def noise(seed: int, rows: int = 300, size: float = 1.0) -> Any:
    rng = random.Random(seed)
    return pd.Series([rng.gauss(0, size) for _ in range(rows)])


FUNCTIONS: dict[str, Any] = {
    "a line": lambda x: 0.3 * x - 40,
    "the logarithm": lambda x: x.map(math.log),
    "the quotient": lambda x: -1 / x,
    "a square around its middle": lambda x: (x - 45) ** 2,
    "a wave": lambda x: ((x - 45) / 9).map(math.sin),
    "intervals": lambda x: x.map(lambda a: "child" if a < 18 else "adult" if a < 65 else "old"),
    "a code of its tens": lambda x: (x // 10).map({i: (i * 37) % 11 for i in range(9)}),
}


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(sorted(FUNCTIONS)))
def test_a_function_of_a_column_is_told_and_what_only_comes_along_is_not(
    seed: int, name: str
) -> None:
    x = numbers(seed)
    y = FUNCTIONS[name](x)
    assert tells(x, y)
    if name in ("a line", "the logarithm", "the quotient"):
        assert tells(y, x)
    loose = x + noise(seed + 1, size=12)
    labels = (loose // 10).map("g{:.0f}".format)
    assert not any(tells(x, one) or tells(one, x) for one in (loose, labels))


@pytest.mark.parametrize("form", [None, "%d.%m.%Y"])
def test_a_date_tells_what_the_calendar_says(form: str | None) -> None:
    days = pd.Series(pd.date_range("2019-01-01", periods=700)).sample(frac=1, random_state=1)
    days = days.reset_index(drop=True)
    shown = days if form is None else days.dt.strftime(form)
    for part in (days.dt.day_of_year, days.dt.month, days.dt.day_of_week, days.dt.month_name()):
        assert tells(shown, part)
    assert not tells(shown, noise(3, 700))


def test_time_and_entity_of_a_series_give_calendar_columns_constants_and_counters() -> None:
    days = pd.Series(pd.date_range("2020-01-01", periods=400))
    load = 50 + 9 * (pd.Series(range(400)) / 7).map(math.sin) + noise(5, 400, 2)
    one = pd.DataFrame({"day": days.dt.day_of_year, "t": range(400), "load": load, "_when": days})
    towns = [one.assign(town=t, area=i * 9.5 + i**2) for i, t in enumerate("abcd")]
    whole = pd.concat(towns, ignore_index=True)
    whole["age"] = whole["t"] + whole["area"] * 3
    for frame, keys, told in ((one, [], ["day", "t"]), (whole, ["town"], ["area", "age", "day"])):
        found = [n for n in (*told, "load") if told_by_key(frame, n, frame["_when"], keys)]
        assert found == told


def test_a_column_that_was_scaled_entity_by_entity_is_found() -> None:
    entity = pd.Series([t for t in "abcdef" for _ in range(40)])
    y = noise(4, 240, 9) + 50
    scale = entity.map({t: (i + 2.0) ** 3 for i, t in enumerate("abcdef")})
    assert tells_within(y / scale - scale, y, entity) and not tells(y / scale - scale, y)
    assert not tells_within(y / scale + noise(1, 240), y, entity)


MADE: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: (a / b).round(6),
    "%": lambda a, b: a * (1 + (b - 45) / 100),
}


@settings(max_examples=20)
@given(SEEDS, st.sampled_from(sorted(MADE)))
def test_what_two_columns_make_is_found(seed: int, way: str) -> None:
    frame = pd.DataFrame({name: numbers(seed + i) for i, name in enumerate("abc")})
    made = MADE[way](frame["a"], frame["b"])
    assert set(made_of(frame.assign(made=made), "made", [*"abc"])[0]) == {"a", "b"}
    loose = frame.assign(made=made + numbers(seed + 3) * float(made.std()) / 90)
    assert made_of(loose, "made", [*"abc"]) == ((), "")


def test_a_total_of_many_and_a_label_of_indicators_are_found() -> None:
    frame = pd.DataFrame({f"p{i}": numbers(i) for i in range(6)})
    parts = list(frame.columns)
    assert set(made_of(frame.assign(total=frame.sum(axis=1)), "total", parts)[0]) == set(parts)
    rng = random.Random(8)
    region = pd.Series([rng.choice("nesw") for _ in range(300)])
    flags = pd.DataFrame({f"is_{r}": (region == r).astype(int) for r in "nes"})
    whole = pd.concat([frame[["p0"]], flags, region.rename("region")], axis=1)
    assert set(made_of(whole, "region", ["p0", *flags])[0]) == set(flags)


def test_rows_of_one_owner_tell_one_another() -> None:
    frame = pd.DataFrame({"school": [n % 40 for n in range(400)], "own": noise(2, 400)})
    frame["mood"] = frame["school"].map(noise(3, 40, 3)) + noise(5, 400)
    assert owner_of(frame, "mood", ["school"]) == "school"
    assert owner_of(frame, "own", ["school"]) == ""


# --- the audit


def task(top: Path, track: str, leak: bool) -> Task:
    """Leak: MM repeats training rows in the test file; XF has the target in other units; IF is one
    label throughout; CF asks for times that were trained on."""
    rng = random.Random(f"{track} {leak}")
    train = pd.DataFrame({"x": noise(1, 80), "y": noise(2, 80)}).round(6)
    val = pd.DataFrame({"row_id": range(1, 31), "x": noise(3, 30).round(6)})
    truth = pd.DataFrame({"row_id": range(1, 31), "y": noise(4, 30).round(6)})
    if track == "class-IF":
        train["y"] = [rng.choice("ab") for _ in range(80)]
        truth["y"] = train["y"].mode()[0] if leak else [rng.choice("ab") for _ in range(30)]
    if track == "reg-MM" and leak:
        val["x"] = train["x"][:30].tolist()
    if track == "time-XF" and leak:
        train["x"], val["x"] = train["y"] * 1.8 + 32, truth["y"] * 1.8 + 32
    if track == "time-CF":
        days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
        whole = pd.DataFrame({"day": days, "y": noise(5, 60)})
        train, truth = whole.iloc[: 50 if leak else 40], whole.iloc[40:]
        val = truth[["day"]]
    files = {name: f"{track}-{leak}_{name}" for name in ("train.csv", "val.csv")}
    train.to_csv(top / files["train.csv"], index=False)
    val.to_csv(top / files["val.csv"], index=False)
    keys = [c for c in truth.columns if c != "y"]
    gold = {"task_type": track, "key_columns": keys, "targets": ["y"]}
    gold["truth_csv"] = truth.to_csv(index=False)
    return Task(f"{track}-{leak}", "table", track, "train", [], gold, files=files)


LEAKS: dict[str, dict[str, Any]] = {
    "reg-MM": {"test rows seen in training": 1.0},
    "time-XF": {"columns that tell the target": ["x"]},
    "time-CF": {"asked rows in the training file": 0.5},
    "class-IF": {},
}


def test_planted_leaks_are_found_and_clean_tasks_pass(tmp_path: Path) -> None:
    tasks = [task(tmp_path, track, leak) for track in LEAKS for leak in (True, False)]
    rows, report, broken = audit_tables(tasks, [tmp_path] * len(tasks))
    found = {t.id: row for t, row in zip(tasks, rows, strict=True)}
    for track, leaks in LEAKS.items():
        assert found[f"{track}-True"]["leaks"] == leaks and not found[f"{track}-False"]["leaks"]
    assert [name for name, row in found.items() if row["guessable"]] == ["class-IF-True"]
    assert report["tracks"]["class-IF"] == {"tasks": 2, "leaky": 0, "guessable": 1} and not broken
    (tmp_path / tasks[0].files["val.csv"]).unlink()
    with pytest.raises(TaskError, match=tasks[0].id):
        audit_tables(tasks, [tmp_path] * len(tasks))
