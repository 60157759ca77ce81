# duckdb and openpyxl ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The original file of a table as a DuckDB table: the second reader.

It decides by itself where a table begins, what separates its fields and which rows are no data, and
keeps what text files hold as text: `numbers.py` and `times.py` say what a cell means. Nothing of the
first reader's decisions comes in, and where the file does not tell, nothing is proved.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_gen.dare.second.dialect import csv_plan
from rewards.extras import install_extra
from rewards.task import TaskError


class Unprovable(ValueError):
    """The second reader cannot decide; nothing is proved."""


@dataclass(frozen=True)
class Original:
    """Where a table is from: a file, and which of its tables (a sheet, a SQLite table, a number)."""

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
    except ImportError:
        raise TaskError(
            f"gold is proved with DuckDB, which is not installed: {install_extra('build')}"
        ) from None
    return duckdb.connect(config={"threads": 1})


def opened(original: Original) -> Opened:
    """The table as the second reader finds it. Raises `Unprovable` where it cannot tell."""
    path, kind = original.path, original.path.name.lower()
    if kind.endswith(".pkl.compress"):
        return _pickle(path)
    packed = kind.endswith(".gz")
    suffix = Path(kind.removesuffix(".gz")).suffix
    reader = _READERS.get(suffix)
    if reader is None or (packed and suffix not in (".csv", ".tsv", ".txt")):
        raise Unprovable(f"{path.name}: there is no second reader of such files")
    return reader(path, original.part)


def _text_file(path: Path, _part: str) -> Opened:
    data = path.read_bytes()
    plan = csv_plan(gzip.decompress(data) if path.suffix.lower() == ".gz" else data)
    if isinstance(plan, str):
        raise Unprovable(f"{path.name}: {plan}")
    db = connect()
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(plan.names)))
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body.csv"
        body.write_text(plan.body, encoding="utf-8", newline="")
        try:
            db.execute(
                "create table o as select row_number() over () rn, * from read_csv("
                f"'{body}', auto_detect=false, header=false, quote='\"', escape='\"', nullstr='', "
                f"delim='{plan.sep}', columns={{{columns}}}, null_padding=true, strict_mode=false, "
                "parallel=false, max_line_size=10000000)"
            )
        except Exception as error:
            said = str(error).splitlines()[0][:120]
            raise Unprovable(f"{path.name}: DuckDB cannot read it: {said}") from None
    return _finished(db, plan.names, sep=plan.sep)


def _parquet(path: Path, _part: str) -> Opened:
    db = connect()
    quoted = str(path).replace("'", "''")
    try:
        db.execute(f"create table raw as select * from read_parquet('{quoted}')")
    except Exception as error:
        raise Unprovable(f"{path.name}: DuckDB cannot read it: {str(error)[:120]}") from None
    return _renamed(db)


def _json(path: Path, _part: str) -> Opened:
    """Records of one flat JSON array or of JSON lines."""
    text = path.read_text(encoding="utf-8-sig")
    try:
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        try:
            whole = json.loads(text)
        except ValueError as error:
            raise Unprovable(f"{path.name}: no JSON ({error})") from None
    if len(whole) == 1 and isinstance(whole[0], list):
        whole = whole[0]
    if not isinstance(whole, list) or not all(isinstance(row, dict) for row in whole):
        raise Unprovable(f"{path.name}: the second reader knows JSON arrays of records only")
    names = list(dict.fromkeys(str(key) for row in whole for key in row))
    return from_columns(names, [[row.get(name) for row in whole] for name in names])


def _sqlite(path: Path, part: str) -> Opened:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        listed = [str(r[0]) for r in db.execute("select name from sqlite_master where type='table'")]
        listed = [name for name in listed if not name.startswith("sqlite_")]
        name = part or (listed[0] if len(listed) == 1 else "")
        if name not in listed:
            raise Unprovable(f"{path.name}: which of its tables is meant is not known")
        quoted = name.replace('"', '""')
        rows = db.execute(f'select * from "{quoted}"')
        names = [str(item[0]) for item in rows.description]
        held = rows.fetchall()
    return from_columns(names, [list(column) for column in zip(*held, strict=True)])


def _excel(path: Path, part: str) -> Opened:
    """A sheet's cells by openpyxl; what a formula last gave counts."""
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError:
        raise TaskError(
            f"{path.name} is proved with openpyxl, which is not installed: {install_extra('build')}"
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:
        raise Unprovable(f"{path.name}: openpyxl cannot read it: {str(error)[:120]}") from None
    if part and part not in book.sheetnames:
        raise Unprovable(f"{path.name}: there is no sheet {part!r}")
    rows = [list(row) for row in book[part or book.sheetnames[0]].iter_rows(values_only=True)]
    book.close()
    return from_grid(path.name, rows)


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
    return _finished(db, names)


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


def _pickle(path: Path) -> Opened:
    """A table of an R package: no text stands behind it, so the frame itself is the original."""
    import pandas as pd

    frame: Any = pd.read_pickle(path, compression="xz")
    names, columns = [str(name) for name in frame.columns], list[Any]()
    arrow = importlib.import_module("pyarrow")
    for place in range(len(names)):
        column = frame.iloc[:, place]
        if column.dtype.kind in "iuf":
            columns.append(arrow.array(column.astype(float).to_numpy(), from_pandas=True))
        elif column.dtype.kind == "M":
            columns.append(arrow.array(column.dt.tz_localize(None), from_pandas=True))
        else:
            words = [None if gone else str(v) for v, gone in zip(column, column.isna(), strict=True)]
            columns.append(arrow.array(words, arrow.string()))
    db = connect()
    db.register("given", arrow.table({f"c{i}": column for i, column in enumerate(columns)}))
    db.execute("create table o as select row_number() over () rn, * from given")
    found = _finished(db, names, tidy=False)
    found.by = "frame"
    return found


def _renamed(db: Any) -> Opened:
    names = [str(row[0]) for row in db.execute("describe raw").fetchall()]
    columns = ", ".join(f'"{n.replace(chr(34), chr(34) * 2)}" as c{i}' for i, n in enumerate(names))
    db.execute(f"create table o as select row_number() over () rn, {columns} from raw")
    db.execute("drop table raw")
    return _finished(db, names, tidy=False)


_TOTAL = r"^(grand |sub)?(total|sum|summe|gesamt|insgesamt|totaal|somme|average|mean|mittelwert)s?\b"


def _finished(db: Any, names: Sequence[str], sep: str = "", tidy: bool = True) -> Opened:
    """Names stripped, the first of equal ones counts; rows without data go where `tidy`."""
    ids: dict[str, str] = {}
    for place, name in enumerate(names):
        ids.setdefault(name.strip(), f"c{place}")
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


_READERS: dict[str, Callable[[Path, str], Opened]] = {
    ".csv": _text_file,
    ".tsv": _text_file,
    ".txt": _text_file,
    ".parquet": _parquet,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
    ".sqlite": _sqlite,
    ".sqlite3": _sqlite,
    ".db": _sqlite,
    ".xlsx": _excel,
    ".xlsm": _excel,
}

