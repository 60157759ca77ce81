"""A frame written in any dialect is read back equal, or the table is refused: never different."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import sqlite3
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")

from assay.tables.load import load, plan_file  # noqa: E402
from assay.tables.plan import Frame, ReadPlan, Skipped  # noqa: E402

WORDS = st.text("abcdefgXYZäöß ,;|'\"\n\t-/.:", min_size=1, max_size=12).filter(
    lambda w: w.strip() == w and w.strip(" ,;|'\"\n\t-/.:") != "" and not w.startswith(("'", '"'))
)
DATES = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d %b %Y", "%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True)
class Dialect:
    sep: str
    decimal: str
    thousands: str
    encoding: str
    above: tuple[str, ...]
    newline: str


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    sep = draw(st.sampled_from(";\t|,"))
    decimal = "." if sep == "," else draw(st.sampled_from(".,"))
    other = "," if decimal == "." else "."
    thousands = draw(st.sampled_from(["", "", other, " "]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16"]))
    above = draw(st.sampled_from([(), (), ("A report",), ("A report", "")]))
    return Dialect(sep, decimal, thousands, encoding, above, draw(st.sampled_from(["\n", "\r\n"])))


def spell(value: Any, dialect: Dialect, date: str) -> str:
    """A value as text of the dialect."""
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.strftime(date)
    if isinstance(value, str):
        return value
    text = f"{value:,}" if dialect.thousands else repr(value)
    marks = {",": dialect.thousands, ".": dialect.decimal}
    return "".join(marks.get(c, c) for c in text)


def field(text: str, dialect: Dialect) -> str:
    if any(c in text for c in (dialect.sep, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


def column_of(draw: st.DrawFn, rows: int) -> list[Any]:
    kinds = {
        "whole": st.integers(-(10**12), 10**12),
        "small": st.integers(0, 40),
        "float": st.floats(-1e9, 1e9).map(lambda x: round(x, 3)),
        "word": WORDS,
        "day": st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2030, 1, 1)).map(
            lambda d: d.replace(microsecond=0, hour=0, minute=0, second=0)
        ),
    }
    values = kinds[draw(st.sampled_from(sorted(kinds)))]
    gaps = draw(st.sampled_from([0, 0, 5]))
    made = draw(st.lists(values, min_size=rows, max_size=rows))
    return [None if gaps and i % gaps == 1 else v for i, v in enumerate(made)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Dialect, str, list[list[Any]]]:
    rows = draw(st.integers(2, 40))
    width = draw(st.integers(1, 5))
    date = draw(st.sampled_from(DATES))
    dialect = draw(dialects())
    if width == 1:  # a line above one column could be its name
        dialect = replace(dialect, above=())
    return dialect, date, [column_of(draw, rows) for _ in range(width)]


def same(found: Any, value: Any, dialect: Dialect, date: str) -> bool:
    """Whether a cell is the value, or the text that was written for it."""
    if value is None:
        return bool(pd.isna(found))
    if isinstance(found, str):
        return found == spell(value, dialect, date)
    if isinstance(value, str | dt.datetime):
        return found == value
    return abs(found - value) <= 1e-12 * abs(value)


def check(frame: Frame, table: tuple[Dialect, str, list[list[Any]]], plan: ReadPlan) -> None:
    """Columns in doubt are left out; all others are what was written."""
    dialect, date, columns = table
    columns = [v for n, v in zip(plan.columns, columns, strict=True) if n in plan.used]
    assert frame.shape == (len(columns[0]), len(columns))
    for place, column in enumerate(columns):
        found = frame.iloc[:, place].tolist()
        wrong = [
            (f, v) for f, v in zip(found, column, strict=True) if not same(f, v, dialect, date)
        ]
        assert wrong == []


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(tables())
def test_equal_or_refused(table: tuple[Dialect, str, list[list[Any]]]) -> None:
    dialect, date, columns = table
    head = [f"name {chr(97 + i)}" for i in range(len(columns))]
    rows = [[spell(v, dialect, date) for v in row] for row in zip(*columns, strict=True)]
    lines = [
        *dialect.above,
        *(dialect.sep.join(field(c, dialect) for c in r) for r in [head, *rows]),
    ]
    if len(columns) == 1:
        lines = [line or '""' for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = dialect.newline.join([*lines, ""]).encode(dialect.encoding)
        (root / "t.csv").write_bytes(data)
        (found,) = plan_file(root / "t.csv")
        if isinstance(found, Skipped):
            return
        frame = load(found, root)
        check(frame, table, found)
        pd.testing.assert_frame_equal(run(found, root), frame)


@pytest.mark.parametrize("form", ["json", "jsonl", "sqlite", "parquet"])
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_typed_forms_are_equal_or_refused(
    form: str, table: tuple[Dialect, str, list[list[Any]]]
) -> None:
    """Numbers keep their types there; days are text as the dialect writes them."""
    dialect, date, columns = table
    shown = [
        [spell(v, dialect, date) if isinstance(v, dt.datetime) else v for v in column]
        for column in columns
    ]
    names = [f"name {chr(97 + i)}" for i in range(len(columns))]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*shown, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root / f"t.{form}", names, rows)
        (found,) = plan_file(root / f"t.{form}")
        if isinstance(found, Skipped):
            return
        frame = load(found, root)
        check(frame, table, found)
        pd.testing.assert_frame_equal(run(found, root), frame)


def write(path: Path, names: list[str], rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
        pd.DataFrame(rows, columns=names).to_parquet(path)
    else:
        with contextlib.closing(sqlite3.connect(path)) as db:
            quoted = ", ".join('"' + name + '"' for name in names)
            db.execute(f"create table t ({quoted})")
            marks = ",".join("?" * len(names))
            db.executemany(f"insert into t values ({marks})", [list(r.values()) for r in rows])
            db.commit()


def run(reading: ReadPlan, root: Path) -> Frame:
    """What the code of a reading gives in a folder where the table lies below data/."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "data" / reading.path
        place.parent.mkdir(parents=True)
        place.write_bytes((root / reading.path).read_bytes())
        names: dict[str, Any] = {"pd": pd}
        try:
            os.chdir(folder)
            exec(reading.code("t"), names)
        finally:
            os.chdir(here)
    return names["t"]
