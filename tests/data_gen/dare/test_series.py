# ruff: noqa: E402
"""Series: which tables are one, bins by hand, and how the rows of a database lie in files."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")

from dare_worlds import built, days

from data_gen.certificate import Refused
from data_gen.columns import (
    Timed,
    is_one_series,
    shifted,
)
from data_gen.dare.layout import read_entries, write_question_list
from data_gen.dare.series import COVARIATES, ENTITIES, Shape, opened
from data_gen.dare.sources import sources
from data_gen.dare.targets import Built, Settings

SETTINGS = Settings(Path(), 0, False, frozenset())


def timed(times: Any, **columns: Any) -> Timed:
    when = pd.Series(pd.to_datetime(times))
    frame = pd.DataFrame({"when": when, **columns}).assign(_when=when)
    return Timed(frame, "when", "%Y-%m-%d", ["who"] if "who" in columns else [])


def test_a_column_that_is_the_target_moved_is_found() -> None:
    rng = random.Random(2)
    values = [rng.gauss(0, 1) for _ in range(80)]
    rows = timed(
        list(pd.date_range("2024-01-01", periods=40)) * 2,
        y=values,
        who=["a"] * 40 + ["b"] * 40,
        lag=[None, *values[:39], None, *values[40:79]],
        lead2=[*values[2:40], None, None, *values[42:], None, None],
        own=[v + 1 for v in values],
    )
    assert [shifted(rows, "y", name) for name in ("lag", "lead2", "own")] == [1, -2, 0]


# --- which tables are series ---


@cache
def dates(count: int) -> list[str]:
    return [d.date().isoformat() for d in pd.date_range("2001-01-01", periods=count)]


VALUE = [n * 37 % 101 / 3 for n in range(200)]
ELAPSED = [f"0 days 00:{i // 60:02d}:{i % 60:02d}" for i in range(200)]
TABLES: dict[str, tuple[bool, dict[str, Any]]] = {
    "days": (True, {"date": dates(200)}),
    "a panel": (False, {"date": dates(100) * 2}),
    "years": (True, {"Year": range(1850, 2050)}),
    "elapsed": (True, {"row": range(200), "time": ELAPSED}),
    "times in no order": (False, {"time": [(i * i) % 997 for i in range(200)]}),
    "a calendar": (
        True,
        {"year": [2000 + i // 12 for i in range(200)], "month": [i % 12 + 1 for i in range(200)]},
    ),
    "a register": (False, {"machine": [f"M-{n:03d}" for n in range(200)], "bought": dates(200)}),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_that_are_the_points_of_one_series_are_known(name: str) -> None:
    wanted, columns = TABLES[name]
    assert is_one_series(pd.DataFrame(columns | {"value": VALUE})) == wanted


def read(folder: Path, frame: Any) -> tuple[Timed | None, Built]:
    """A table as the series builder opens it, and what it says of it."""
    frame.to_csv(folder / "t.csv", index=False)
    (source,) = [s for s in sources([str(folder)]) if s.path == "t.csv"]
    found = Built(source.name)
    return opened(source, SETTINGS, found, ""), found


def test_double_stamps_are_a_doubt_until_the_user_settles_it(tmp_path: Path) -> None:
    hours = pd.date_range("2024-01-01", periods=300, freq="h").strftime("%Y-%m-%d %H:%M:%S")
    stamps = sorted([*hours, *hours[40:45]])
    frame = pd.DataFrame({"stamp": stamps, "heat": [20.25 + i % 24 / 3 for i in range(305)]})
    none, found = read(tmp_path, frame)
    (doubt,) = found.doubts
    assert none is None and (doubt.code, doubt.path) == ("duplicate_stamps", "t.csv")
    (tmp_path / "tables.yaml").write_text(f'"{doubt.path}":\n  {doubt.settle}\n')
    series, found = read(tmp_path, frame)
    assert series is not None and len(series.frame) == 300 and not found.doubts


@pytest.mark.parametrize(
    ("code", "columns"),
    [
        ("rows", {"day": dates(149)}),
        ("events", {"day": [dates(4300)[n * n // 10 + n] for n in range(200)]}),
        ("things", {"day": dates(200), "who": [f"M-{n:03d}" for n in range(200)]}),
        ("keys", {"day": dates(50) * 4}),
    ],
)
def test_why_a_table_with_times_is_no_series(
    tmp_path: Path, code: str, columns: dict[str, Any]
) -> None:
    with pytest.raises(Refused) as refused:
        read(tmp_path, pd.DataFrame(columns | {"value": VALUE[: len(columns["day"])]}))
    assert refused.value.why.code == code


# --- files ---


@pytest.mark.parametrize("kind", [ENTITIES, COVARIATES])
def test_files_joined_are_the_one_file(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = ("hoehe",) if kind == ENTITIES else ("temperatur", "hoehe")
    for out, shape in (("one", Shape()), ("two", Shape(kind, moved))):
        found = built(days(tmp_path), tmp_path / out, monkeypatch, None, shape)
        write_question_list(tmp_path / out, found.rows)
    (whole,), (parted,) = (read_entries(tmp_path / out) for out in ("one", "two"))
    assert parted.recipe["contain_multiple_files"] and not whole.recipe["contain_multiple_files"]
    train = pd.read_csv(parted.folder / "source" / "train.csv")
    assert not {*moved} & {*train.columns}
    keys = ["station"] if kind == ENTITIES else ["tag", "station"]
    beside = "entities.csv" if kind == ENTITIES else "covariates_train.csv"
    more = pd.read_csv(parted.folder / "source" / beside)
    joined = train.merge(more, on=keys, validate="many_to_one")
    one = pd.read_csv(whole.folder / "source" / "train.csv")[list(joined.columns)]
    pd.testing.assert_frame_equal(joined, one, check_like=True)
    assert all(beside in parted.needed(v) for v in ("v1", "v2"))
    assert f"`{beside}`" in parted.row["question_v1"]
    if kind == COVARIATES:  # forecasts are not handed later covariates
        assert "covariates_val.csv" in parted.needed("v1")
        assert "covariates_val.csv" not in parted.needed("v2")
        cut = pd.Timestamp(parted.recipe["prediction_starting_time"])
        assert pd.to_datetime(more["tag"]).max() < cut
