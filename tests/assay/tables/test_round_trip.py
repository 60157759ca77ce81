"""A frame written in any dialect is read back equal, or the table is refused: never different."""

from __future__ import annotations

import csv
import datetime as dt
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_code import same_by_code

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
    width = draw(st.integers(2, 5))  # of one column, marks in its cells could part fields
    date = draw(st.sampled_from(DATES))
    return draw(dialects()), date, [column_of(draw, rows) for _ in range(width)]


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
        pairs = zip(found, column, strict=True)
        assert [pair for pair in pairs if not same(*pair, dialect, date)] == []


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(tables())
def test_equal_or_refused(table: tuple[Dialect, str, list[list[Any]]]) -> None:
    dialect, date, columns = table
    head = [f"name {chr(97 + i)}" for i in range(len(columns))]
    rows = [[spell(v, dialect, date) for v in row] for row in zip(*columns, strict=True)]
    out = io.StringIO("".join(line + dialect.newline for line in dialect.above))
    out.seek(0, io.SEEK_END)
    csv.writer(out, delimiter=dialect.sep, lineterminator=dialect.newline).writerows([head, *rows])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "data"
        root.mkdir()
        data = out.getvalue().encode(dialect.encoding)
        (root / "t.csv").write_bytes(data)
        (found,) = plan_file(root / "t.csv")
        if isinstance(found, Skipped):
            return
        frame = load(found, root)
        check(frame, table, found)
        same_by_code(found, frame, root)
