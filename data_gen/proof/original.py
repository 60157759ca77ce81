# duckdb and openpyxl ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""An original table in DuckDB: what is kept of it, and which of its rows are data."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.extras import install_extra
from rewards.task import TaskError


class Unprovable(ValueError):
    """The second reader cannot decide; nothing is proved."""


@dataclass(frozen=True)
class Original:
    """A file, and which of its tables is meant: a sheet, a SQLite table, a number."""

    path: Path
    part: str = ""


@dataclass
class Opened:
    """Table `o` of `db`: `rn`, the row's number in the file, and columns `c0` to `cN`. `ids` says
    which is called what, `types` what DuckDB holds there; `sep` is the separator of a text file."""

    db: Any
    ids: dict[str, str]
    types: dict[str, str]
    sep: str = ""
    by: str = "duckdb"
    said: dict[str, Any] = field(default_factory=dict[str, Any])  # by the user (`told.py`)
    decided: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def column(self, name: str) -> str:
        try:
            return self.ids[name]
        except KeyError:
            raise Unprovable(f"the original has no column {name!r}") from None

    def one(self, query: str) -> tuple[Any, ...]:
        return self.db.execute(query).fetchone()


def connect() -> Any:
    """An empty database in memory, one thread. Raises `TaskError` where DuckDB is missing."""
    try:
        duckdb = importlib.import_module("duckdb")
    except ModuleNotFoundError:
        raise TaskError(
            f"gold is proved with DuckDB, which is not installed: {install_extra('build')}"
        ) from None
    return duckdb.connect(config={"threads": 1})


def from_grid(name: str, rows: Sequence[Sequence[Any]]) -> Opened:
    """A grid of cells in which the names stand in the first row that is full of words."""
    width = max((len(row) for row in rows), default=0)
    full = [[_empty(v) for v in row] + [None] * (width - len(row)) for row in rows]
    used = [i for i in range(width) if any(row[i] is not None for row in full)]
    full = [[row[i] for i in used] for row in full]
    for number, row in enumerate(full[:40]):
        words = [v for v in row if isinstance(v, str)]
        if len(words) >= 2 and len(words) >= 0.8 * len(used):
            names = [" ".join(str(v).split()) if v is not None else "" for v in row]
            body = full[number + 1 :]
            columns = [list(column) for column in zip(*body, strict=True)]
            return from_columns(_named(names), columns or [[] for _ in names])
    raise Unprovable(f"{name}: no row of names is found")


def _empty(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _named(names: Sequence[str]) -> list[str]:
    return [name or f"Unnamed: {place}" for place, name in enumerate(names)]


def from_columns(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Opened:
    """A table of Python values. A column of numbers alone stays one; elsewhere a number is written
    with an exponent, so that its point cannot be taken for a thousands mark."""
    table = python_columns(columns, "c")
    if table.num_rows == 0:
        raise Unprovable("the original holds no rows")
    db = connect()
    db.register("given", table)
    db.execute("create table o as select row_number() over () rn, * from given")
    db.unregister("given")
    return finished(db, names)


def python_columns(columns: Sequence[Sequence[Any]], letter: str) -> Any:
    """An Arrow table of Python values, its columns called by a letter and their place."""
    arrow = importlib.import_module("pyarrow")
    return arrow.table({f"{letter}{i}": _column(arrow, c) for i, c in enumerate(columns)})


def _column(arrow: Any, values: Sequence[Any]) -> Any:
    def number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    known = [v for v in values if v is not None]
    if known and all(number(v) for v in known):
        return arrow.array([None if v is None else float(v) for v in values], arrow.float64())
    return arrow.array([_word(v, number(v)) for v in values], arrow.string())


def _word(value: Any, number: bool) -> str | None:
    if value is None:
        return None
    if number:
        return f"{value:.17e}" if isinstance(value, float) else str(value)
    return value.isoformat(sep=" ") if hasattr(value, "hour") else str(value)


_TOTAL = (
    r"^(grand |sub)?(total|sum|summe|gesamt|insgesamt|totaal|somme|average|mean|mittelwert)s?\b"
)


def finished(db: Any, names: Sequence[str], sep: str = "", tidy: bool = True) -> Opened:
    """Names stripped, of equal ones the later numbered; rows without data go where `tidy`."""
    ids: dict[str, str] = {}
    for place, name in enumerate(names):
        bare, count = name.strip(), 0
        while (own := f"{bare}.{count}" if count else bare) in ids:
            count += 1
        ids[own] = f"c{place}"
    types = {str(r[0]): str(r[1]) for r in db.execute("describe o").fetchall() if r[0] != "rn"}
    if tidy:
        filled = " + ".join(f"(c{i} is not null)::int" for i in range(len(names)))
        db.execute(f"delete from o where ({filled}) = 0")
        if len(names) > 2:  # notes below the table stand alone in their row
            db.execute(
                f"delete from o where rn > (select max(rn) from o where ({filled}) > 1)"
                f" and ({filled}) = 1"
            )
        words = [c for c, kind in types.items() if kind == "VARCHAR"]
        if words:
            first = f"coalesce({', '.join(words)})"
            db.execute(
                f"delete from o where rn = (select max(rn) from o) and "
                f"regexp_matches(lower(trim({first})), '{_TOTAL}')"
            )
    return Opened(db, ids, types, sep)
