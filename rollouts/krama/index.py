"""An index of a whole lake, kept by content, and a snippet of it that fits a token budget.

Tables are described as the one reader (`assay.tables`) plans them, with its doubts; a table that it
refuses is described as text. Files are looked at once; what was found is stored under the content's
hash, and a file whose size, time and inode are unchanged is not even read again. Many files that
are alike (a year or a station each) are shown as one group, so that a lake of thousands still fits.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import glob
import hashlib
import importlib
import io
import json
import os
import re
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from assay.files import cache_folder
from assay.tables.formats import form_of, read_text, unpacked
from assay.tables.layout import records_of
from assay.tables.load import load_file
from assay.tables.plan import Frame, ReadPlan, Skipped
from assay.tables.settings import FILE, Doubt, TableSettings, read_settings

VERSION = 5  # of what is found in files; another number makes every note anew
CHARS_A_TOKEN = 3.5  # a cautious mean over tables; budgets are upper bounds in this measure
ROWS_KEPT = 12
TABLES_MOST = 8  # of one file that are described
COLUMNS_MOST = 400
ODD_MOST = 4  # odd cells kept a column
SAID_MOST = 3  # sentences about a file that a snippet shows
_KINDS = {
    "csv": "table",
    "excel": "workbook",
    "json": "records",
    "lines": "records",
    "sqlite": "database",
    "html": "page",
}
_MOST = 64 << 20  # bytes of a file whose tables and encoding are looked for
_CLIPPED = 240  # characters of why a file is no table
_OF_ROWS = {"total_rows", "notes", "repeated_header"}  # doubts that leave columns clear


@dataclass(frozen=True)
class Column:
    """One column: its type, how many values are missing, up to `ODD_MOST` values that are no
    numbers among many that are (of delimited text "line: value"), and what is to be known of it."""

    name: str
    kind: str  # integer, number, date, truth, text, empty, in doubt
    missing: int = 0
    odd: list[str] = field(default_factory=list[str])
    note: str = ""


@dataclass(frozen=True)
class TableNote:
    """One table. `header` is the line of the column names, from 1, and 0 where there is none;
    `head` are sample rows."""

    part: str  # sheet, table of a database, number of a table of a page
    columns: list[Column]
    rows: int
    head: list[str]
    header: int = 0
    delimiter: str = ""  # of delimited text; "" stands for blanks


@dataclass(frozen=True)
class FileNote:
    """What one file holds: tables, or where there is none that can be used the first lines of its
    text. `said`: doubts of columns, and why tables are refused."""

    size: int
    kind: str  # table, records (JSON), parquet, workbook, database, page, text, binary, …
    encoding: str = ""
    tables: list[TableNote] = field(default_factory=list[TableNote])
    lines: list[str] = field(default_factory=list[str])
    said: list[str] = field(default_factory=list[str])

    @property
    def columns(self) -> list[Column]:
        return [c for table in self.tables for c in table.columns]

    @property
    def rows(self) -> int | None:
        """Data rows of the file's only table."""
        return self.tables[0].rows if len(self.tables) == 1 else None

    @property
    def parts(self) -> list[str]:
        return [table.part for table in self.tables if table.part]

    @property
    def head(self) -> list[str]:
        """Sample rows; of several tables in turn, with the part before each."""
        if len(self.tables) < 2:
            return self.tables[0].head if self.tables else self.lines
        turns = range(max(len(t.head) for t in self.tables))
        return [f"[{t.part}] {t.head[i]}" for i in turns for t in self.tables if i < len(t.head)]

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> FileNote:
        """The note of which this is `asdict`."""
        whole: dict[str, Any] = {**row, "tables": []}
        for table in row["tables"]:
            given: dict[str, Any] = {**table, "columns": [Column(**c) for c in table["columns"]]}
            whole["tables"].append(TableNote(**given))
        return FileNote(**whole)


# ---- what one file holds


def look(path: Path, root: Path, rows: int = ROWS_KEPT) -> FileNote:
    """One file of a lake whose folder is `root`, with `rows` sample rows a table. Raises OSError
    only."""
    size = path.stat().st_size
    odd_rows: list[Doubt] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries, about features of a file
            found, odd_rows = _tables(path, root)
    except Exception as error:  # whatever a library says of a broken file
        found = [Skipped(path.name, f"cannot be read ({type(error).__name__}: {error})"[:200])]
    read = [one for one in found if not isinstance(one, Skipped) and not _prose(path, one[0])]
    refused = [one for one in found if isinstance(one, Skipped)]
    said = [_doubt(d) for doubts in (odd_rows, *(p.doubts for p, _ in read)) for d in doubts]
    said += map(_refused, refused)
    if read:
        plan = read[0][0]
        encoding = plan.encoding.removesuffix("-sig") if plan.form in ("csv", "html") else ""
        tables = [_table(path, *one, rows) for one in read]
        return FileNote(size, _KINDS.get(plan.form, plan.form), encoding, tables, said=said)
    if any(one.part for one in refused):
        return FileNote(size, _KINDS.get(form_of(path), form_of(path)), said=said)
    lines, encoding = _start_of(path, size)
    shown = [line[:200] for line in lines[:rows]]
    return FileNote(size, "text" if encoding else "binary", encoding, lines=shown, said=said)


def _prose(path: Path, plan: ReadPlan) -> bool:
    """Whether delimited text without a delimiter is rather lines to read: notes.txt."""
    return plan.form == "csv" and len(plan.columns) < 2 and path.suffix.lower() == ".txt"


def _tables(path: Path, root: Path) -> tuple[list[tuple[ReadPlan, Frame] | Skipped], list[Doubt]]:
    """(the tables of a file, doubts about their rows). A table refused for its rows alone is
    described with all of them: an agent decides what they are."""
    if path.stat().st_size > _MOST:
        return [Skipped(path.name, f"larger than {_MOST >> 20} MiB")], []
    rules = read_settings(root)
    found = load_file(path, root, rules, most=TABLES_MOST)
    odd = [d for one in found if isinstance(one, Skipped) for d in one.doubts]
    if not odd or not {d.code for d in odd} <= _OF_ROWS:
        return found, []
    name = glob.escape(path.relative_to(root).as_posix())
    whole = TableSettings((*rules.rules, (name, {"drop_rows": ()})))
    again = load_file(path, root, whole, most=TABLES_MOST)
    return (found, []) if any(isinstance(one, Skipped) for one in again) else (again, odd)


def _refused(one: Skipped) -> str:
    where = f" [{one.part}]" if one.part else ""
    why = re.sub(r"; set[^;]* tables\.yaml.*", "", one.why)  # what the user of a lake may do
    return _clipped(f"not read as a table{where}: {why}")


def _doubt(doubt: Doubt) -> str:
    """A doubt as the reader says it, without what to write in `tables.yaml`."""
    return _clipped(f"in doubt {replace(doubt, settle='').line()}")


def _clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _CLIPPED else f"{text[: _CLIPPED - 1]}…"


def _start_of(path: Path, size: int) -> tuple[list[str], str]:
    """(the lines at the start of a file, its encoding); none, and "" for what is no text."""
    data = b""
    if form_of(path) not in ("", "csv", "json", "lines", "html"):
        return [], ""
    try:
        with unpacked(path) as file:
            data = file.read(1 << 18)
        encoding = read_text(path).encoding if size <= _MOST else "utf-8"
    except Exception:  # refused by the reader, or a broken archive
        encoding = "" if b"\0" in data[:4096] or (size and not data) else "utf-8"
    encoding = encoding.removesuffix("-sig")
    text = data.decode(encoding, "replace").removeprefix("\ufeff") if encoding else ""
    return text.split("\n") if encoding else [], encoding


def lines_of(path: Path, note: FileNote, first: int, count: int) -> list[str]:
    """Some lines of a file of text, unpacked, from line `first` (from 1)."""
    encoding = note.encoding or "utf-8"
    with unpacked(path) as file, io.TextIOWrapper(file, encoding, "replace") as text:
        return list(islice(text, first - 1, first - 1 + count))


def _table(path: Path, plan: ReadPlan, frame: Frame, rows: int) -> TableNote:
    doubted = {d.column: d for d in plan.doubts}
    columns = [
        Column(name, "in doubt", note=f"[{doubted[name].code}]")
        if name in doubted
        else _column(name, plan, frame)
        for name in plan.columns[:COLUMNS_MOST]
    ]
    if plan.form != "csv":
        return TableNote(plan.part, columns, len(frame), _rows_shown(plan.form, frame, rows))
    mark = "" if plan.sep == r"\s+" else plan.sep
    data = list(_records(path, plan))
    half, step = ROWS_KEPT // 2, max(1, len(data) // ROWS_KEPT)
    if rows > ROWS_KEPT or len(data) <= ROWS_KEPT:
        data = data[:rows]
    else:
        data = [*data[:half], *data[half::step][:half]]
    head = [(mark or " ").join(cell[:60] for cell in row[:60]) for row in data]
    header = plan.skip + 1 if plan.header else 0
    return TableNote(plan.part, columns, len(frame), head, header, mark)


def _column(name: str, plan: ReadPlan, frame: Frame) -> Column:
    notes = [f"as {plan.dates[name]}"] if name in plan.dates else []
    if plan.missing.get(name):
        notes.append(f"{', '.join(map(repr, plan.missing[name]))}: no value")
    if name in plan.marked:
        notes.append("written like 1,234 or $5 or 40%")
    elif name in plan.numbers and plan.decimal_of(name) == ",":
        notes.append("decimal commas")
    note = "; ".join(notes)
    cells = frame[name]
    filled = cells.dropna()
    missing = len(cells) - len(filled)
    if not len(filled):
        return Column(name, "empty", missing, note=note)
    kinds = {"i": "integer", "u": "integer", "M": "date", "b": "truth"}
    kind = kinds.get(cells.dtype.kind, "text")
    if cells.dtype.kind == "f":
        whole = missing and bool((filled == filled.round()).all())
        kind = "integer" if whole else "number"
    odd = _odd(filled, plan) if kind == "text" else []
    return Column(name, "number" if odd else kind, missing, odd, note)


def _odd(filled: Any, plan: ReadPlan) -> list[str]:
    """Values that are no numbers, of a text column most of whose values are; none for another. Of
    delimited text with the line of the first of each, counted as if no cell had two lines."""
    pd: Any = importlib.import_module("pandas")
    texts = filled.astype(str).str.strip()
    plain = texts[~texts.str.match(r"0\d")]  # codes with leading zeros are no numbers
    numbers = pd.to_numeric(plain, errors="coerce")
    others = plain[numbers.isna()]
    if not 0 < len(others) <= 0.4 * len(texts) or len(plain) < len(texts):
        return []
    first = others.drop_duplicates()[:ODD_MOST].items()
    if plan.form != "csv" or plan.drop_rows or plan.drop_where or plan.drop_duplicates:
        return [str(value)[:40] for _, value in first]
    top = plan.skip + int(plan.header) + 1
    return [f"line {top + int(row)}: {str(value)[:40]}" for row, value in first]


def _rows_shown(form: str, frame: Frame, count: int) -> list[str]:
    """The first rows of a table that is no delimited text."""
    rows = [
        {str(k): None if v is None or v != v else v for k, v in row.items()}
        for row in frame.head(count).to_dict("records")
    ]
    if form in ("json", "lines"):
        return [json.dumps(row, ensure_ascii=False, default=str)[:400] for row in rows]
    return [
        ", ".join(f"{k}={'' if v is None else str(v)[:60]}" for k, v in list(row.items())[:60])
        for row in rows
    ]


def _records(path: Path, plan: ReadPlan) -> Iterator[list[str]]:
    """The rows of delimited text below the column names, as they stand in the file."""
    with (
        unpacked(path, plan.part) as file,
        io.TextIOWrapper(file, plan.encoding, "replace", newline="") as text,
    ):
        lines = islice(text, plan.skip, None)
        cut = records_of(lines, plan.sep, plan.quote, plan.escape, plan.blanks)
        yield from islice((row for _, row in cut), int(plan.header), None)


# ---- the index


LakeIndex = dict[str, FileNote]  # every file of a lake, sorted by path


def index_lake(folder: Path, cache: Path | None = None, rows: int = ROWS_KEPT) -> LakeIndex:
    """Look at every file below `folder`, as `tables.yaml` there says where it is. Of more than
    `ROWS_KEPT` rows the first of each table are kept: the release shows the first 100 rows of every
    CSV (paper, Tables 6 and 12). Raises OSError for a folder that cannot be read."""
    root = Path(os.path.realpath(folder))
    rules = (root / FILE).read_bytes() if (root / FILE).is_file() else b""
    how = f"{VERSION} {max(rows, ROWS_KEPT)} {hashlib.sha1(rules).hexdigest()}"
    files: LakeIndex = {}
    with closing(_store(cache or cache_folder())) as store, store:
        for path in sorted(Path(at, name) for at, _, names in os.walk(root) for name in names):
            info, name = path.stat(), path.relative_to(root).as_posix()
            seen = f"{how} {info.st_size} {info.st_mtime_ns} {info.st_ino} {path}"
            note = _kept(store, _kept(store, seen))
            if not note:
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "blake2b").hexdigest()[:40]
                # the settings go by the path below the lake; without any a copy is the same file
                place = name if rules else "".join(path.suffixes[-2:]).lower()
                digest = f"{how} {place} {content}"
                note = _kept(store, digest)
                note = note or json.dumps(asdict(look(path, root, max(rows, ROWS_KEPT))))
                pairs = [(digest, note), (seen, digest)]
                store.executemany("INSERT OR REPLACE INTO found VALUES (?, ?)", pairs)
            files[name] = FileNote.from_json(json.loads(note))
    return files


def _store(folder: Path) -> sqlite3.Connection:
    """The cache: a file's place, size and times → the hash of its content → its note."""
    folder.mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(folder / "lakes.sqlite", timeout=60)
    with suppress(sqlite3.OperationalError):  # another process is at the same; its mode serves us
        store.execute("PRAGMA journal_mode=WAL")
    store.execute("PRAGMA synchronous=OFF")  # a cache: what is lost is found again
    store.execute("CREATE TABLE IF NOT EXISTS found (key TEXT PRIMARY KEY, value TEXT)")
    return store


def _kept(store: sqlite3.Connection, key: str) -> str:
    row = store.execute("SELECT value FROM found WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


@dataclass(frozen=True)
class Group:
    """Files that differ by numbers in the name alone and hold the same columns."""

    pattern: str
    names: tuple[str, ...]
    note: FileNote


def groups(index: LakeIndex) -> list[Group]:
    """The lake's files in groups, in order of their first file."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, note in index.items():
        head, _, tail = name.rpartition("/")
        pattern = re.sub(r"\d+", "#", head) + "/" + re.sub(r"\d+", "#", tail)
        key = (pattern.lstrip("/"), note.kind, *(c.name for c in note.columns))
        found.setdefault(key, []).append(name)
    return [Group(key[0], tuple(names), index[names[0]]) for key, names in found.items()]


def title(group: Group) -> str:
    """One line on a group: names, kind, size, rows, and how to read it."""
    if len(group.names) == 1:
        name = f"data/{group.names[0]}"
    elif len(group.names) <= 3:
        name = ", ".join(f"data/{n}" for n in group.names)
    else:
        ends = f"data/{group.names[0]} … data/{group.names[-1]}"
        name = f"{len(group.names)} files data/{group.pattern} ({ends})"
    note = group.note
    size = f"{note.size / 1e6:.1f} MB" if note.size > 99_999 else f"{note.size / 1e3:.1f} kB"
    text = f"{name}: {note.kind}, {size}"
    if note.rows is not None:
        text += f", {note.rows} rows"
    if note.kind == "table" and note.tables[0].header > 1:
        text += f", column names in line {note.tables[0].header}"
    if note.kind == "table" and note.tables[0].delimiter == "\t":
        text += ", separated by tabs"
    if note.encoding not in ("", "utf-8"):
        text += f", encoding {note.encoding}"
    names = {"workbook": "sheets", "database": "tables", "page": "tables"}.get(note.kind, "parts")
    return text + (f", {names}: {', '.join(note.parts)}" if note.parts else "")


def _schema(note: FileNote, most: int) -> str:
    """The columns of every table, and what is said of them."""
    lines: list[str] = []
    for table in note.tables:
        shown = [_shown(column) for column in table.columns[:most]]
        if len(table.columns) > most:
            shown.append(f"and {len(table.columns) - most} more columns")
        part = f" of {table.part}" if table.part and len(note.tables) > 1 else ""
        size = f" ({table.rows} rows)" if part else ""
        lines.append(f"  columns{part}{size}: " + " | ".join(shown))
    return "\n".join([*lines, *(f"  {text}" for text in note.said[:SAID_MOST])])


def _shown(column: Column) -> str:
    extra = [column.note] if column.note else []
    extra += [f"{column.missing} empty"] if column.missing else []
    extra += [f"also {', '.join(column.odd)}"] if column.odd else []
    text = f"{column.name or '(no name)'}: {column.kind}"
    return text + (f" ({'; '.join(extra)})" if extra else "")


def describe(name: str, note: FileNote) -> str:
    """Everything an index knows of one file, within a few thousand characters."""
    lines = [title(Group(name, (name,), note)), _schema(note, 80)]
    lines += [f"  {row[:300]}" for row in note.head]
    return "\n".join(line for line in lines if line)


def _words(text: str) -> set[str]:
    return {w for w in re.findall(r"[a-z]{3,}|\d{4}", text.lower()) if w not in ("the", "and")}


def snippet(index: LakeIndex, budget: int, question: str = "", rows: int = 3) -> str:
    """A description of the lake of at most `budget` tokens (about; see CHARS_A_TOKEN; 0: all).

    First every group's name, then columns with their types and odd cells, then up to `rows`
    sample rows; groups that share words with the question come first in line for the budget.
    The text is ordered by file name.
    """
    room = int((budget or 1 << 50) * CHARS_A_TOKEN) - 40  # for the line that counts what is left
    wanted, listed = _words(question), groups(index)
    alike = [len(wanted & _spoken(group)) for group in listed]
    rank = sorted(range(len(listed)), key=lambda i: (-alike[i], i))
    lines: list[list[str]] = [[] for _ in listed]

    def add(place: int, text: str) -> None:
        nonlocal room
        if text and len(text) + 1 <= room:
            lines[place].append(text)
            room -= len(text) + 1

    for place in rank:
        add(place, title(listed[place]))
    for most in (12, 60):
        for place in rank:
            note = listed[place].note
            if most == 12 or (len(note.columns) > 12 and len(lines[place]) == 2):
                text = _schema(note, most)
                if most == 60 and len(text) - len(lines[place][1]) <= room:
                    room += len(lines[place].pop()) + 1
                if lines[place]:
                    add(place, text)
    for number in range(rows):
        for place in rank:
            note = listed[place].note
            if number < len(note.head) and lines[place]:
                add(place, f"  {'row' if note.columns else 'line'}: {note.head[number][:300]}")
    shown = [line for block in lines for line in block]
    left = sum(len(g.names) for g, block in zip(listed, lines, strict=True) if not block)
    if left:
        shown.append(f"… and {left} more files")
    return "\n".join(shown)


def _spoken(group: Group) -> set[str]:
    names = [group.names[0], *(c.name for c in group.note.columns)]
    return _words(" ".join(names).replace("_", " "))
