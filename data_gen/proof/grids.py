# duckdb and openpyxl ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The second reader: original files of every form, put into DuckDB.

It decides by itself where a table begins, what separates its fields and which rows are no data, and
keeps what text files hold as text: `cells.py` and `times.py` say what a cell means. No decision
of the first reader comes in, and where the file does not tell, nothing is proved.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from assay.extras import install_extra
from data_gen.dare.second.dialect import csv_plan
from data_gen.dare.second.html_tables import SpannedCells, grid
from data_gen.dare.second.original import (
    Opened,
    Original,
    Unprovable,
    connect,
    finished,
    from_columns,
    from_grid,
)
from data_gen.dare.second.told import told
from rewards.task import TaskError

_TABLES = "select name from sqlite_master where type = 'table'"
_PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


def opened(original: Original) -> Opened:
    """The table as the second reader finds it. Raises `Unprovable` where it cannot tell."""
    path, name = original.path, original.path.name.lower()
    if name.endswith(".pkl.compress"):
        return _pickle(path)
    packed = Path(name).suffix in _PACKED
    suffix = Path(Path(name).stem if packed else name).suffix
    reader = _READERS.get(suffix)
    if reader is None or (packed and reader not in (_text_file, _json)):
        raise Unprovable(f"{path.name}: there is no second reader of such files")
    found = reader(path, original.part)
    found.said = told(path)
    return found


def _bytes(path: Path) -> bytes:
    unpack = _PACKED.get(path.suffix.lower())
    try:
        data = path.read_bytes()
        return unpack(data) if unpack is not None else data
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise Unprovable(f"{path.name}: {error}") from None


def _text_file(path: Path, _part: str) -> Opened:
    plan = csv_plan(_bytes(path), told(path))
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
    return finished(db, plan.names, sep=plan.sep)


def _parquet(path: Path, _part: str) -> Opened:
    db = connect()
    quoted = str(path).replace("'", "''")
    try:
        db.execute(f"create table raw as select * from read_parquet('{quoted}')")
    except Exception as error:
        raise Unprovable(f"{path.name}: DuckDB cannot read it: {str(error)[:120]}") from None
    return _renamed(db)


def _json(path: Path, _part: str) -> Opened:
    """Records of one flat JSON array, alone or under one name, or of JSON lines."""
    text = _bytes(path).decode("utf-8-sig", errors="replace")
    try:
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        try:
            whole = json.loads(text)
        except ValueError as error:
            raise Unprovable(f"{path.name}: no JSON ({error})") from None
    if isinstance(whole, list) and len(whole) == 1 and isinstance(whole[0], list | dict):
        whole = whole[0]
    if isinstance(whole, dict):
        lists = [v for v in whole.values() if isinstance(v, list)]
        whole = lists[0] if len(lists) == 1 else None
    if not isinstance(whole, list) or not all(isinstance(row, dict) for row in whole):
        raise Unprovable(f"{path.name}: the second reader knows JSON arrays of records only")
    names = list(dict.fromkeys(str(key) for row in whole for key in row))
    return from_columns(names, [[row.get(name) for row in whole] for name in names])


def _sqlite(path: Path, part: str) -> Opened:
    try:
        names, rows = _queried(path, part)
    except sqlite3.Error as error:
        raise Unprovable(f"{path.name}: {error}") from None
    return from_columns(names, [list(column) for column in zip(*rows, strict=True)])


def _queried(path: Path, part: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """(names, rows) of one table of a SQLite file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        listed = [str(r[0]) for r in db.execute(_TABLES)]
        listed = [name for name in listed if not name.startswith("sqlite_")]
        name = part or (listed[0] if len(listed) == 1 else "")
        if name not in listed:
            raise Unprovable(f"{path.name}: which of its tables is meant is not known")
        quoted = name.replace('"', '""')
        rows = db.execute(f'select * from "{quoted}"')
        return [str(item[0]) for item in rows.description], rows.fetchall()


def _excel(path: Path, part: str) -> Opened:
    """A sheet's cells by openpyxl; what a formula last gave counts."""
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ModuleNotFoundError:
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


def _html(path: Path, part: str) -> Opened:
    data = _bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    try:
        rows = grid(text, part)
    except SpannedCells as error:
        raise Unprovable(f"{path.name}: {error}") from None
    if rows is None:
        raise Unprovable(f"{path.name}: which of its tables is meant is not known")
    return from_grid(path.name, rows)


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
            words = [
                None if gone else str(v) for v, gone in zip(column, column.isna(), strict=True)
            ]
            columns.append(arrow.array(words, arrow.string()))
    db = connect()
    db.register("given", arrow.table({f"c{i}": column for i, column in enumerate(columns)}))
    db.execute("create table o as select row_number() over () rn, * from given")
    found = finished(db, names, tidy=False)
    found.by = "frame"
    return found


def _renamed(db: Any) -> Opened:
    names = [str(row[0]) for row in db.execute("describe raw").fetchall()]
    columns = ", ".join(f'"{n.replace(chr(34), chr(34) * 2)}" as c{i}' for i, n in enumerate(names))
    db.execute(f"create table o as select row_number() over () rn, {columns} from raw")
    db.execute("drop table raw")
    return finished(db, names, tidy=False)


_READERS: dict[str, Callable[[Path, str], Opened]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".dat", ".txt"), _text_file),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _sqlite),
    **dict.fromkeys((".xlsx", ".xlsm"), _excel),
    **dict.fromkeys((".html", ".htm"), _html),
    ".parquet": _parquet,
}
