"""Looking at one file of a lake once: what kind it is, its columns with types, what is odd in it.

A sample of first rows hides what comes later (a marker such as `M` deep in a file); so every cell
within the reading bound is looked at, and cells that do not fit their column's type are kept with
their line.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from rollouts.krama.columns import Column, column_of, kind_of

READ_MOST = 4 << 20  # bytes of one file that are looked at
ROWS_KEPT = 12
_TABLES = (".csv", ".tsv", ".dat", ".lst", ".tab")
_TEXTS = (
    ".txt",
    ".html",
    ".json",
    ".jsonl",
    ".xml",
    ".md",
    ".text",
    ".tle",
    ".sp3",
    ".log",
    ".yaml",
)


@dataclass(frozen=True)
class FileNote:
    """What one file holds. `rows` counts data rows (None where it is no table or was cut);
    `header` is the line of the column names, from 1; `head` sample rows or first lines."""

    size: int
    kind: str  # table, records (JSON), parquet, workbook, text, binary
    columns: tuple[Column, ...] = ()
    rows: int | None = None
    header: int = 0
    delimiter: str = ""
    encoding: str = ""
    head: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # sheets of a workbook

    def to_json(self) -> dict[str, Any]:
        row = dict(vars(self))
        return row | {"columns": [list(vars(c).values()) for c in self.columns]}

    @staticmethod
    def from_json(row: dict[str, Any]) -> FileNote:
        found: dict[str, Any] = dict(row)
        found["columns"] = tuple(
            Column(name, kind, missing, tuple(odd), note)
            for name, kind, missing, odd, note in row["columns"]
        )
        found["head"], found["parts"] = tuple(row["head"]), tuple(row["parts"])
        return FileNote(**found)


def scan(path: Path) -> FileNote:
    """Read one file, at most `READ_MOST` bytes of it. Raises OSError only."""
    size = path.stat().st_size
    suffix = path.suffix.lower()
    if suffix in (".xlsx", ".xlsm"):
        return _workbook(path, size)
    if suffix == ".parquet":
        return _parquet(path, size)
    with open(path, "rb") as file:
        data = file.read(READ_MOST)
    cut = len(data) < size
    if suffix not in (*_TABLES, *_TEXTS) and b"\0" in data[:4096]:
        return FileNote(size, "binary")
    text, encoding = _decode(data)
    if cut:
        text = text[: text.rfind("\n") + 1]
    if suffix in _TABLES:
        note = _table(text, size, encoding, cut)
        if note is not None:
            return note
    if suffix in (".json", ".jsonl") and not cut:
        note = _records(text, size, encoding, suffix)
        if note is not None:
            return note
    lines = text.split("\n", ROWS_KEPT)[:ROWS_KEPT]
    return FileNote(size, "text", encoding=encoding, head=tuple(line[:200] for line in lines))


def _decode(data: bytes) -> tuple[str, str]:
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding), encoding.removesuffix("-sig")
        except UnicodeDecodeError as error:
            if encoding == "utf-8-sig" and error.start > len(data) - 4:  # a cut character
                return data[: error.start].decode(encoding), "utf-8"
    return data.decode("latin-1"), "latin-1"


def _delimiter(text: str) -> str:
    """The separator that cuts the first lines into the most even number of fields."""
    lines = [line for line in text[:20_000].splitlines() if line.strip()][:60]
    best, most = "", 0.0
    for mark in (",", "\t", ";", "|"):
        counts = Counter(line.count(mark) for line in lines)
        counts.pop(0, None)
        if counts:
            count, share = counts.most_common(1)[0]
            score = share * min(count, 5)
            if score > most:
                best, most = mark, score
    return best


def rows_of(text: str, delimiter: str) -> Iterator[list[str]]:
    """The records of delimited text (white space when `delimiter` is empty)."""
    if not delimiter:
        yield from (line.split() for line in text.splitlines())
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue


def header_row(rows: Sequence[Sequence[str]]) -> int | None:
    """Index of the row of column names: the first that is nearly as wide as most rows are."""
    filled = [sum(1 for cell in row if cell.strip()) for row in rows]
    wide = Counter(n for n in filled if n >= 2)
    if not wide:
        return None
    usual = wide.most_common(1)[0][0]
    return next((i for i, n in enumerate(filled) if n >= max(2, 0.6 * usual)), None)


def _heading(records: Sequence[Sequence[str]]) -> tuple[int, list[str]] | None:
    """Index of the row of column names (-1: the first row is data) and the names."""
    top = header_row(records[:60])
    if top is None:
        return None
    names = [name.strip() for name in records[top]]
    if all(kind_of(n) in ("integer", "number") for n in names):  # data from the first line on
        return top - 1, [f"field {i + 1}" for i in range(len(names))]
    return top, names


@dataclass(frozen=True)
class Shape:
    """How delimited text is laid out; `header` lines as in `FileNote`."""

    names: list[str]
    header: int
    delimiter: str
    encoding: str


def shape_of(path: Path) -> Shape | None:
    """The layout of a delimited file by its first lines; None when it is no table."""
    with open(path, "rb") as file:
        text, encoding = _decode(file.read(READ_MOST))
    delimiter = _delimiter(text)
    found = _heading(list(islice(rows_of(text, delimiter), 60)))
    return found and Shape(found[1], found[0] + 1, delimiter, encoding)


def _table(text: str, size: int, encoding: str, cut: bool) -> FileNote | None:
    delimiter = _delimiter(text)
    records = list(rows_of(text, delimiter))
    found = _heading(records)
    if found is None:
        return None
    top, names = found
    data = [row for row in records[top + 1 :] if row]
    columns = tuple(
        column_of(name, [row[i] if i < len(row) else "" for row in data], top + 2)
        for i, name in enumerate(names[:400])
    )
    step = max(1, len(data) // ROWS_KEPT)
    chosen = [*data[: ROWS_KEPT // 2], *data[ROWS_KEPT // 2 :: step][: ROWS_KEPT // 2]]
    head = tuple((delimiter or " ").join(cell[:60] for cell in row[:60]) for row in chosen)
    rows = None if cut else len(data)
    return FileNote(size, "table", columns, rows, top + 1, delimiter, encoding, head)


def _workbook(path: Path, size: int) -> FileNote:
    """Sheet names, and the texts that a workbook shares; no spreadsheet library is needed."""
    try:
        with zipfile.ZipFile(path) as book:
            tree = ElementTree.fromstring(book.read("xl/workbook.xml"))
            sheets = [e.attrib["name"] for e in tree.iter() if e.tag.endswith("}sheet")]
            texts: list[str] = []
            if "xl/sharedStrings.xml" in book.namelist():
                with book.open("xl/sharedStrings.xml") as shared:
                    start = shared.read(200_000).decode("utf-8", "replace")
                texts = re.findall(r"<t(?: [^>]*)?>([^<]+)</t>", start)[:40]
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError, RuntimeError):
        return FileNote(size, "binary")
    head = ("texts: " + "; ".join(t[:40] for t in texts),) if texts else ()
    return FileNote(size, "workbook", head=head, parts=tuple(sheets))


def _records(text: str, size: int, encoding: str, suffix: str) -> FileNote | None:
    """JSON that is a table: an array of flat objects, or one object a line."""
    try:
        lines = [line for line in text.splitlines() if line.strip()]
        found: Any = (
            [json.loads(line) for line in lines] if suffix == ".jsonl" else json.loads(text)
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not found:
        return None
    names: dict[str, None] = {}
    for row in cast("list[Any]", found):
        if not isinstance(row, dict) or any(
            isinstance(v, dict | list) for v in cast("dict[str, Any]", row).values()
        ):
            return None
        names |= dict.fromkeys(str(k) for k in cast("dict[str, Any]", row))
    rows = cast("list[dict[str, Any]]", found)
    columns = tuple(
        column_of(n, [_shown(row.get(n)) for row in rows], 1) for n in list(names)[:400]
    )
    head = tuple(json.dumps(row, ensure_ascii=False)[:400] for row in rows[:ROWS_KEPT])
    return FileNote(size, "records", columns, len(rows), 0, "", encoding, head)


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _parquet(path: Path, size: int) -> FileNote:
    """Columns and first rows, where pyarrow is installed."""
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")  # heavy, and without types
        file: Any = parquet.ParquetFile(path)
        batch = next(file.iter_batches(batch_size=500), None)
        rows: list[dict[str, Any]] = [] if batch is None else batch.to_pylist()
        names = [str(n) for n in file.schema_arrow.names]
        count = int(file.metadata.num_rows)
    except Exception:  # not installed, or no such file: whatever the library calls it
        return FileNote(size, "binary")
    columns = tuple(column_of(n, [_shown(row.get(n)) for row in rows], 1) for n in names[:400])
    head = tuple(
        ", ".join(f"{k}={_shown(v)[:60]}" for k, v in list(row.items())[:60])
        for row in rows[:ROWS_KEPT]
    )
    return FileNote(size, "parquet", columns, count, head=head)
