"""Files of a lake as tables of text in DuckDB: the reader of the second way.

It shares nothing with the reader that gold pipelines use, and is told nothing of what that one
decided: separators, encodings, rows above the names and the way numbers are written are found here
again, from the names of the columns that a question uses. Where that is not certain, it refuses.
"""

# duckdb, openpyxl and bs4 ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import csv
import importlib
import re
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from assay.extras import install_extra
from data_gen.krama.lakes.ops import Source
from data_gen.krama.lakes.reread_words import blocks, listed
from data_gen.krama.lakes.unproved import NotProvable
from rewards.syntax import python_literal
from rewards.task import TaskError

_TOP = 80  # lines or rows among which the names of the columns must stand
_SEPS = (",", ";", "\t", "|")
_BLANKS = {"  ": re.compile(r"\s{2,}"), " ": re.compile(r"\s+")}
_FULL = 4_000_000  # characters of one object in JSON
Rows = list[list[str | None]]


@dataclass(frozen=True)
class Held:
    """A table in DuckDB whose cells are all text, or NULL."""

    name: str
    columns: tuple[str, ...]
    typed: bool  # the file itself told numbers from text
    sep: str = ""  # between the cells of a text file
    decimal: str = ""  # as the user says in tables.yaml
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def ident(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


class Shelf:
    """A lake's tables in one DuckDB, each read once. Close it after use.

    What the user says in `tables.yaml` of decimal marks and missing values holds for both ways.
    """

    def __init__(self, folder: Path) -> None:
        try:
            duckdb: Any = importlib.import_module("duckdb")
        except ModuleNotFoundError:
            raise TaskError(f"gold is proved with duckdb: {install_extra('build')}") from None
        self.folder = folder
        self.con: Any = duckdb.connect(":memory:", config={"threads": 1})
        self._said = _stated(folder / "tables.yaml")
        self._held: dict[tuple[str, str], list[Held]] = {}
        self.marks: dict[str, str] = {}  # decimal mark by table, asked once (numerals.py)
        self.numbers: dict[tuple[str, str], str] = {}  # SQL of a number by table and column
        self.listed: dict[str, list[Any]] = {}  # distinct values by query (listings.py)

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def table(self, source: Source) -> Held:
        """The table that has the columns. Raises `NotProvable`."""
        known = self._held.setdefault((source.path, source.part), [])
        for held in known:
            if set(source.columns) <= set(held.columns):
                return held
        path = self.folder / source.path
        name = f"raw{sum(map(len, self._held.values()))}"
        try:
            held = self._read(name, path, source)
        except NotProvable:
            raise
        except Exception as error:  # whatever a library says of a file it cannot read
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise NotProvable(f"{source.path}: the second reader failed: {said[:120]}") from None
        for pattern, stated in self._said.items():
            if fnmatchcase(source.path, pattern):
                missing = {str(c): _texts(v) for c, v in (stated.get("missing") or {}).items()}
                held = replace(held, decimal=str(stated.get("decimal") or ""), missing=missing)
        known.append(held)
        return held

    def _read(self, name: str, path: Path, source: Source) -> Held:
        match path.suffix.lower():
            case ".csv" | ".tsv" | ".dat":
                return self._text(name, path, source)
            case ".txt":
                self._store(name, *blocks(_decoded(path.read_bytes(), source.path), source))
                return Held(name, self._columns(name), False)
            case ".parquet":
                said = f"read_parquet({literal(str(path))})"
                self.con.execute(f"CREATE TABLE {name} AS SELECT {_TEXTS} FROM {said}")
            case ".json" | ".jsonl":
                self._json(name, path)
            case ".xlsx" | ".xlsm":
                self._store(name, *_sheet(path, source))
            case ".html" | ".htm":
                self._store(name, *_html(path, source))
                return Held(name, self._columns(name), False, "html")
            case ".npz":
                self._store(name, *_arrays(path))
            case ".sqlite" | ".db" | ".sqlite3":
                self._store(name, *_sqlite(path, source))
            case other:
                raise NotProvable(f"{source.path}: no second reader for {other or 'such'} files")
        held = Held(name, self._columns(name), True)
        if absent := sorted(set(source.columns) - set(held.columns)):
            raise NotProvable(f"{source.path}: the second reader finds no column {absent[0]!r}")
        return held

    def _columns(self, name: str) -> tuple[str, ...]:
        return tuple(row[0] for row in self.con.execute(f"DESCRIBE {name}").fetchall())

    def _store(self, name: str, columns: Sequence[str], rows: Rows) -> None:
        arrow: Any = importlib.import_module("pyarrow")
        if len(set(columns)) < len(columns):
            raise NotProvable("two columns have one name")
        cells = [arrow.array(list(c), arrow.string()) for c in zip(*rows, strict=True)]
        self.con.register("given", arrow.Table.from_arrays(cells, names=list(columns)))
        self.con.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        self.con.unregister("given")

    def _json(self, name: str, path: Path) -> None:
        form = "array" if path.suffix.lower() == ".json" else "newline_delimited"
        how = f"format='{form}', maximum_object_size={_FULL}"
        place = literal(str(path))
        keys = self.con.execute(
            f"SELECT DISTINCT unnest(json_keys(json)) FROM read_json_objects({place}, {how})"
        ).fetchall()
        fields = ", ".join(f"{literal(k)}: 'VARCHAR'" for (k,) in sorted(keys))
        self.con.execute(
            f"CREATE TABLE {name} AS SELECT * FROM read_json({place}, columns={{{fields}}}, {how})"
        )

    def _text(self, name: str, path: Path, source: Source) -> Held:
        text = _decoded(path.read_bytes(), source.path).replace("\r\n", "\n").replace("\r", "\n")
        at, sep, names = _names(text, source)
        body = "\n".join(text.split("\n")[at + 1 :])
        if sep in _BLANKS:
            parted = _BLANKS[sep]
            cells = [parted.split(line.strip()) for line in body.split("\n") if line.strip()]
            if any(len(row) != len(names) for row in cells):
                raise NotProvable(f"{source.path}: rows of different widths")
            self._store(name, names, [list(row) for row in cells])
            return Held(name, tuple(names), False, sep)
        fields = ", ".join(f"{literal(c)}: 'VARCHAR'" for c in names)
        with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8", newline="") as file:
            file.write(body)
            file.flush()
            self.con.execute(
                f"CREATE TABLE {name} AS SELECT * FROM read_csv({literal(file.name)}, "
                f"columns={{{fields}}}, auto_detect=false, header=false, delim={literal(sep)}, "
                "quote='\"', escape='\"', null_padding=true, parallel=false)"
            )
        return Held(name, tuple(names), False, sep)


def _stated(path: Path) -> dict[str, dict[str, Any]]:
    """The user's own file, whose form the first reader has checked."""
    found: Any = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
    return {str(k): v for k, v in (found or {}).items() if isinstance(v, dict)}


def _texts(value: Any) -> list[str]:
    return [str(v) for v in (value if isinstance(value, list) else [value])]


_TEXTS = "CAST(COLUMNS(*) AS VARCHAR)"


def _decoded(data: bytes, path: str) -> str:
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise NotProvable(f"{path}: the second reader does not know its encoding")


def _names(text: str, source: Source) -> tuple[int, str, list[str]]:
    """(line, separator, names) of the first line that holds all wanted names as cells."""
    wanted = set(source.columns)
    for at, line in enumerate(text.split("\n", _TOP)[:_TOP]):
        for sep in _SEPS:
            cells = next(csv.reader([line], delimiter=sep), [])
            if len(cells) > 1 and wanted <= set(cells):
                filled = [c or f"column {n}" for n, c in enumerate(cells)]
                if len(set(filled)) < len(filled):
                    raise NotProvable(f"{source.path}: two columns have one name")
                return at, sep, filled
        for blanks, parted in _BLANKS.items():
            cells = parted.split(line.strip())
            if len(cells) > 1 and wanted <= set(cells) and len(set(cells)) == len(cells):
                return at, blanks, cells
    raise NotProvable(f"{source.path}: the second reader finds no row with the names of columns")


def _cell(value: Any) -> str | None:
    return None if value is None else str(value)


def _below(rows: Iterator[Sequence[Any]], source: Source) -> tuple[list[str], Rows]:
    """(names, rows) below the first row that holds all wanted names."""
    wanted = set(source.columns)
    for _, row in zip(range(_TOP), rows, strict=False):
        if wanted <= {str(c) for c in row if c is not None}:
            names = [str(c) if c is not None else f"column {n}" for n, c in enumerate(row)]
            body = [[_cell(c) for c in (*row, *[None] * len(names))[: len(names)]] for row in rows]
            while body and not any(c is not None for c in body[-1]):
                body.pop()
            return names, body
    raise NotProvable(f"{source.path}: the second reader finds no row with the names of columns")


def _sheet(path: Path, source: Source) -> tuple[list[str], Rows]:
    openpyxl = importlib.import_module("openpyxl")
    with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
        sheet = book[source.part] if source.part else book.worksheets[0]
        return _below(iter(sheet.iter_rows(values_only=True)), source)


def _html(path: Path, source: Source) -> tuple[list[str], Rows]:
    soup = importlib.import_module("bs4").BeautifulSoup(path.read_bytes(), "html.parser")
    for table in soup.find_all("table"):
        if table.find("table") or table.find(attrs={"colspan": True}):
            continue
        rows = [
            [cell.get_text().strip() or None for cell in row.find_all(["th", "td"])]
            for row in table.find_all("tr")
        ]
        try:
            return _below(iter(rows), source)
        except NotProvable:
            continue
    return listed(soup, source)


def _sqlite(path: Path, source: Source) -> tuple[list[str], Rows]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as con:
        found = con.execute(f"SELECT * FROM {ident(source.part)}")
        names = [str(column[0]) for column in found.description]
        return names, [[_cell(c) for c in row] for row in found]


def _arrays(path: Path) -> tuple[list[str], Rows]:
    """The arrays of an NPZ archive as columns, without NumPy."""
    columns: dict[str, list[str | None]] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            columns[member.removesuffix(".npy")] = _array(archive.read(member))
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _array(data: bytes) -> list[str | None]:
    if data[:6] != b"\x93NUMPY" or data[6] not in (1, 2):
        raise NotProvable("an array in a form that the second reader does not know")
    size, start = (2, 10) if data[6] == 1 else (4, 12)
    length = int.from_bytes(data[8 : 8 + size], "little")
    head: Any = python_literal(data[start : start + length].decode("latin-1"))
    (count,), kind, body = head["shape"], str(head["descr"]), data[start + length :]
    if kind.startswith("<U"):
        width = 4 * int(kind[2:])
        cells = [body[i * width : (i + 1) * width].decode("utf-32-le") for i in range(count)]
        return [c.rstrip("\0") or None for c in cells]
    code = {"<f8": "d", "<f4": "f", "<i8": "q", "<i4": "i", "|b1": "?"}.get(kind)
    if code is None:
        raise NotProvable(f"an array of {kind}, which the second reader does not know")
    values = struct.unpack(f"<{count}{code}", body[: count * struct.calcsize(code)])
    return [None if v != v else repr(v) for v in values]
