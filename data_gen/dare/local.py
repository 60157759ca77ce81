# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Tables as people keep them: csv of any dialect, tsv, parquet, every table of a SQLite file."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from data_gen.dare.layout import Frame, read_table

_DATABASES = (".sqlite", ".sqlite3", ".db")
_COMMA = re.compile(r"^-?\d+,\d+$")


Loader = Callable[[], Frame]


def tables_in(path: Path) -> Iterator[tuple[str, Loader]]:
    """(name, how to load it) of each table of a file; nothing for what is no table. A file that
    cannot be read raises when it is loaded, not here."""
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        yield path.stem, lambda: read_csv(path)
    elif kind == ".parquet":
        yield path.stem, lambda: read_table(path)
    elif kind in _DATABASES:
        names = _tables(path)
        for name in names:
            title = path.stem if len(names) == 1 else f"{path.stem} {name}"
            yield title, lambda name=name: _query(path, name)


def local_tables(top: Path) -> Iterator[tuple[Path, str, Loader]]:
    """(file, name of the table, how to load it) below a folder, in the order of names."""
    for path in sorted(top.rglob("*")):
        for title, load in tables_in(path):
            yield path, title, load


def read_csv(path: Path) -> Frame:
    """A csv file of whatever dialect: UTF-8 or Windows-1252; comma, semicolon, tab or bar between
    fields; a decimal comma where the comma does not separate. Raises `ValueError` for an empty
    one."""
    import pandas as pd

    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    if not text.strip():
        raise ValueError("the file is empty")
    start = text[:20_000].rpartition("\n")[0] or text
    try:
        mark = csv.Sniffer().sniff(start, ",;\t|").delimiter
    except csv.Error:  # one column, or too odd to tell
        mark = "\t" if path.suffix.lower() == ".tsv" else ","
    fields = [field for line in start.splitlines()[1:50] for field in line.split(mark)]
    decimal = "," if mark != "," and any(_COMMA.match(field) for field in fields) else "."
    return pd.read_csv(io.StringIO(text), sep=mark, decimal=decimal, low_memory=False)


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def _tables(path: Path) -> list[str]:
    """Names of a SQLite file's tables; one odd name for what is no such file, so that loading it
    says what is wrong."""
    query = "select name from sqlite_master where type='table' order by name"
    try:
        with _open(path) as db:
            return [str(row[0]) for row in db.execute(query) if not row[0].startswith("sqlite_")]
    except sqlite3.Error:
        return [path.stem]


def _query(path: Path, name: str) -> Frame:
    import pandas as pd

    with _open(path) as db:
        quoted = name.replace('"', '""')
        return pd.read_sql(f'select * from "{quoted}"', db)
