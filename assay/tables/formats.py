"""The tables of files that are no delimited text: sheets, records, Parquet, SQLite, HTML.

Each gives readings without decisions, with the cells of some rows beside them.
"""

# pandas, openpyxl, pyarrow and lxml ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from assay.extras import install_extra
from assay.tables.calls import namespace
from assay.tables.doubts import Doubt
from assay.tables.encoding import read_text, unpacked
from assay.tables.fixed import plans
from assay.tables.plan import ReadPlan, Skipped, Unreadable, source
from assay.tables.settings import TableSettings
from assay.tables.workbooks import Found, sheets

_ROWS = 2000  # of a table, that are looked at for decisions
_NEEDS = {
    **{"parquet": "pyarrow", "feather": "pyarrow", "html": "lxml"},
    **{"spss": "pyreadstat", "duckdb": "duckdb"},
}
_BYTES = {
    **{"excel": 200 << 20, "json": 200 << 20, "lines": 2 << 30, "html": 50 << 20},
    **{"feather": 2 << 30, "stata": 2 << 30, "spss": 2 << 30},
}


def tables_of(path: Path, name: str, form: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    """The tables of a file of this form. Raises `Unreadable` for a file that is broken."""
    needed = _NEEDS.get(form, "")
    if needed and importlib.util.find_spec(needed) is None:
        raise Unreadable(f"{needed} is not installed; {install_extra('build')}")
    if path.stat().st_size > _BYTES.get(form, 1 << 60):
        raise Unreadable(f"larger than {_BYTES[form] >> 20} MiB; store it as csv or parquet")
    try:
        found = list(_READERS[form](path, name, rules))
    except Unreadable:
        raise
    except MemoryError:
        raise
    except Exception as error:  # whatever the reading library says of a broken file
        said = " ".join(str(error).split())[:120]
        raise Unreadable(f"no readable {form} file ({type(error).__name__}: {said})") from None
    yield from found


def _json(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    text = read_text(path, "utf-8")
    if not text.whole:
        with unpacked(path) as file:
            loaded: Any = json.loads(file.read())
    else:
        loaded = json.loads(text.start)
    if not isinstance(loaded, list) or not loaded:
        raise Unreadable("no array of objects")
    yield _records(name, "json", cast("list[Any]", loaded))


def _lines(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    with unpacked(path) as file:
        rows: list[Any] = [json.loads(x) for x in islice(file, _ROWS) if x.strip()]
    yield _records(name, "lines", rows)


def _records(name: str, form: str, rows: list[Any]) -> Found:
    if not rows or not all(isinstance(r, dict) for r in rows):
        raise Unreadable("no array of objects, or no object on each line")
    listed = cast("list[dict[str, Any]]", rows)
    nested = next((k for r in listed for k, v in r.items() if isinstance(v, dict | list)), None)
    if nested is not None:
        raise Unreadable(f"field {nested!r} holds objects or lists; a table has plain values")
    huge = next(
        (k for r in listed for k, v in r.items() if isinstance(v, int) and abs(v) >= 1 << 63), None
    )
    if huge is not None:
        raise Unreadable(f"field {huge!r} holds whole numbers of more than 64 bits")
    keys = list(dict.fromkeys(k for r in listed for k in r))
    step = max(1, len(listed) // _ROWS)
    return Found(ReadPlan(name, form), [[r.get(k) for r in listed[::step]] for k in keys])


def _fixed(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    for reading, cells in plans(path, name, rules):
        yield Found(reading, cells)


def _parquet(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        batch = next(file.iter_batches(batch_size=_ROWS), None)
        table = batch if batch is not None else schema.empty_table()
    about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    kept = about.get("index_columns", ())
    named = [i for i in kept if isinstance(i, str) or i.get("name") is not None]
    picked, doubts = _flat(schema, name)
    table = table.select(picked) if picked else table
    frame = table.to_pandas().reset_index() if named else table.to_pandas()
    yield _framed(ReadPlan(name, "parquet", header=not named, picked=picked, doubts=doubts), frame)


def _feather(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    feather: Any = importlib.import_module("pyarrow.feather")
    table = feather.read_table(path)
    picked, doubts = _flat(table.schema, name)
    table = table.select(picked) if picked else table
    frame = table.slice(0, _ROWS).to_pandas()
    yield _framed(ReadPlan(name, "feather", picked=picked, doubts=doubts), frame)


def _flat(schema: Any, name: str) -> tuple[tuple[str, ...], tuple[Doubt, ...]]:
    """(the columns to read, nothing for all; a doubt for each that holds lists or objects)."""
    types: Any = importlib.import_module("pyarrow").types
    odd = [f for f in schema if types.is_nested(f.type) or "binary" in str(f.type)]
    if len(odd) == len(schema):
        raise Unreadable(f"column {odd[0].name!r} holds {odd[0].type}; a table has plain values")
    said = "holds {}: a table has plain values, so the column is left out"
    gone = [str(f.name) for f in odd]
    doubts = [Doubt("layout", said.format(f.type), column=str(f.name), path=name) for f in odd]
    picked = [str(n) for n in schema.names if str(n) not in gone] if odd else []
    return tuple(picked), tuple(doubts)


def _stata(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    pd: Any = importlib.import_module("pandas")
    yield _framed(ReadPlan(name, "stata"), pd.read_stata(path))


def _spss(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    pd: Any = importlib.import_module("pandas")
    yield _framed(ReadPlan(name, "spss"), pd.read_spss(path))


def _framed(reading: ReadPlan, frame: Any) -> Found:
    """The table that a frame shows: columns of labels are text."""
    labelled = tuple(str(c) for c in frame.columns if str(frame[c].dtype) == "category")
    some = frame.iloc[:: max(1, len(frame) // _ROWS)]
    cells = [some.iloc[:, i].tolist() for i in range(some.shape[1])]
    return Found(replace(reading, labelled=labelled), cells)


def _duckdb(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    duckdb: Any = importlib.import_module("duckdb")
    listed = "select table_name from duckdb_tables() where not internal and schema_name = 'main'"
    with duckdb.connect(str(path), read_only=True) as db:
        names = sorted(str(row[0]) for row in db.execute(listed).fetchall())
        if not names:
            raise Unreadable("a DuckDB file without tables")
        for table in names:
            quoted = table.replace('"', '""')
            about = db.execute(f'describe "{quoted}"').fetchall()
            odd = next((r for r in about if re.search(r"\[|STRUCT|MAP|UNION|BLOB|BIT", r[1])), None)
            if odd is not None:
                why = f"column {odd[0]!r} holds {odd[1]}; a table has plain values"
                yield Skipped(name, why, table)
                continue
            frame = db.execute(f'select * from "{quoted}" limit {_ROWS}').df()
            yield _framed(ReadPlan(name, "duckdb", table), frame)


def connect(path: Path) -> sqlite3.Connection:
    """A SQLite file, for reading only."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _sqlite(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    query = "select name from sqlite_master where type='table' order by name"
    with contextlib.closing(connect(path)) as db:
        names = [str(row[0]) for row in db.execute(query) if not row[0].startswith("sqlite_")]
        if not names:
            raise Unreadable("a SQLite file without tables")
        for table in names:
            quoted = table.replace('"', '""')
            rows = db.execute(f'select * from "{quoted}" limit {_ROWS}').fetchall()
            cells = list(zip(*rows, strict=True))
            blob = any(isinstance(v, bytes) for column in cells for v in column)
            if blob:
                yield Skipped(name, "a column holds bytes; a table has plain values", table)
            else:
                yield Found(ReadPlan(name, "sqlite", table), cells)


def _html(path: Path, name: str, rules: TableSettings) -> Iterator[Found | Skipped]:
    pd: Any = importlib.import_module("pandas")
    text = read_text(path, rules.of(name).encoding or _charset(path))
    try:
        frames = pd.read_html(
            path, flavor="lxml", encoding=text.encoding, thousands=None, keep_default_na=False
        )
    except ValueError as error:
        if "No tables" in str(error):
            raise Unreadable("no tables in the page") from None
        raise
    for number, frame in enumerate(frames):
        plain = all(not isinstance(c, tuple) for c in frame.columns)
        if not plain or frame.shape[0] < 1 or frame.shape[1] < 1:
            yield Skipped(name, "the names stand in several rows, or there are none", str(number))
            continue
        yield _page_table(ReadPlan(name, "html", str(number), encoding=text.encoding), path)


def _page_table(reading: ReadPlan, path: Path) -> Found:
    """A table of a page with every cell as text; its first row holds the names."""
    pd: Any = importlib.import_module("pandas")
    frames = pd.read_html(path, flavor="lxml", encoding=reading.encoding, header=0, thousands=None)
    wide = frames[int(reading.part)]
    reading = replace(reading, columns=tuple(map(str, wide.columns)))
    frame: Any = source(reading, str(path)).value(namespace())
    return Found(reading, [frame.iloc[:, i].tolist() for i in range(frame.shape[1])])


def _charset(path: Path) -> str:
    with open(path, "rb") as file:
        found = re.search(rb"charset=[\"']?([\w-]+)", file.read(4096))
    return found[1].decode().lower() if found else ""


_READERS = {
    "excel": sheets,
    "json": _json,
    "lines": _lines,
    "parquet": _parquet,
    "feather": _feather,
    "stata": _stata,
    "spss": _spss,
    "duckdb": _duckdb,
    "sqlite": _sqlite,
    "html": _html,
    "fixed": _fixed,
}
