# duckdb and pyarrow ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Original files of every form, put into DuckDB.

What text files hold stays text: `marks` and `times` say what a cell means. No decision of the first
reader comes in, and where the file does not tell, nothing is proved.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import sqlite3
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from assay.errors import TaskError
from data_gen.proof.lines import NUMBER, Area, Grid, decoded, grid, sheet, text_rows, within
from data_gen.proof.original import (
    NotProvable,
    Opened,
    Original,
    Said,
    connect,
    from_columns,
    ident,
    literal,
    named,
    plain_rows,
    said_of,
)

_TABLES = "select name from sqlite_master where type = 'table' and name not glob 'sqlite_*'"
_MOST_TITLES = 40  # rows above the names of a sheet


def opened(original: Original, db: Any = None, table: str = "o") -> Opened:
    """The original as a table of `db`, or of a database of its own. Raises `NotProvable`."""
    db = db if db is not None else connect()
    path = original.path
    try:
        found = _read(original, db, table)
        return found if found.said is _TRUSTED else plain_rows(found)
    except NotProvable as error:
        raise NotProvable(f"{path.name}: {error}") from None
    except (TaskError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a library says of a file it cannot read
        said = " ".join(str(error).split()) or type(error).__name__
        raise NotProvable(f"{path.name}: the second reader failed: {said[:120]}") from None


def _read(original: Original, db: Any, table: str) -> Opened:
    path, name = original.path, original.path.name.lower()
    if name.endswith(".pkl.compress"):
        return _pickle(path, db, table)
    packed = Path(name).suffix in _PACKED
    suffix = Path(Path(name).stem if packed else name).suffix
    if packed and not suffix and name.endswith(".zip"):
        suffix = ".csv"
    reader = _READERS.get(suffix)
    if reader is None or (packed and reader not in (_text_file, _json)):
        raise NotProvable("there is no second reader of such files")
    return reader(original, db, table)


def _bytes(original: Original) -> bytes:
    path = original.path
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.namelist() if not m.endswith("/")]
            member = original.part or (members[0] if len(members) == 1 else "")
            if member not in members:
                raise NotProvable("which of its files is meant is not known")
            return archive.read(member)
    unpack = _PACKED.get(suffix)
    data = path.read_bytes()
    return unpack(data) if unpack is not None else data


def _zst(data: bytes) -> bytes:
    zstandard: Any = importlib.import_module("zstandard")
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as whole:
        return whole.read()


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": _zst,
    ".zip": bytes,
}


def _said(original: Original, part: str = "") -> Said:
    return said_of(original.path, original.root, part or original.part)


def _text_file(original: Original, db: Any, table: str) -> Opened:
    said, data = _said(original), _bytes(original)
    rows = text_rows(data, said)
    cells = [[value or None for value in column] for column in zip(*rows.cells, strict=True)]
    from_columns(db, table, cells, rows.numbers)
    return named(db, table, rows.names, said)


def _plain_columns(
    db: Any, table: str, names: Sequence[str], rows: Sequence[Sequence[Any]], said: Said
) -> Opened:
    if not rows:
        raise NotProvable("the original holds no rows")
    from_columns(db, table, [list(column) for column in zip(*rows, strict=True)])
    return named(db, table, names, said)


def _queried(original: Original, db: Any, table: str, query: str) -> Opened:
    """What DuckDB itself reads, its types kept; lists and structures stay out."""
    described = db.execute(f"describe {query}").fetchall()
    names = [str(row[0]) for row in described]
    odd = {
        f"c{i}": "it holds lists or structures"
        for i, row in enumerate(described)
        if str(row[1]).endswith("]") or str(row[1]).startswith(("STRUCT", "MAP", "UNION", "BLOB"))
    }
    columns = ", ".join(
        f"{_typed(ident(str(row[0])), str(row[1]))} as c{i}" for i, row in enumerate(described)
    )
    db.execute(
        f"create or replace table {table} as select row_number() over () rn, {columns} "
        f"from ({query})"
    )
    return named(db, table, names, _said(original), odd)


def _typed(cell: str, kind: str) -> str:
    """SQL for a typed cell: categories are text, and so are truth values."""
    if kind.startswith("ENUM"):
        return f"{cell}::varchar"
    return f"case when {cell} then 'True' else 'False' end" if kind == "BOOLEAN" else cell


def _parquet(original: Original, db: Any, table: str) -> Opened:
    query = f"select * from read_parquet({literal(str(original.path))})"
    return _queried(original, db, table, query)


def _duckdb(original: Original, db: Any, table: str) -> Opened:
    db.execute(f"attach {literal(str(original.path))} as given (read_only)")
    try:
        listed = db.execute(
            "select schema_name, table_name from duckdb_tables() where database_name = 'given'"
        ).fetchall()
        meant = [t for t in listed if original.part in ("", t[1], f"{t[0]}.{t[1]}")]
        if len(meant) != 1:
            raise NotProvable("which of its tables is meant is not known")
        query = f"select * from given.{ident(meant[0][0])}.{ident(meant[0][1])}"
        return _queried(original, db, table, query)
    finally:
        db.execute("detach given")


def _feather(original: Original, db: Any, table: str) -> Opened:
    db.register("held", importlib.import_module("pyarrow.feather").read_table(original.path))
    try:
        return _queried(original, db, table, "select * from held")
    finally:
        db.unregister("held")


def _statistics(original: Original, db: Any, table: str) -> Opened:
    """A file of Stata or SPSS, labels in place of their codes."""
    pyreadstat: Any = importlib.import_module("pyreadstat")
    stata = original.path.suffix.lower() == ".dta"
    read = pyreadstat.read_dta if stata else pyreadstat.read_sav
    frame: Any = read(str(original.path), apply_value_formats=True)[0]
    return _frame(frame, db, table, _said(original))


class _Written(str):
    """A number as JSON writes it."""

    __slots__ = ()


def _json(original: Original, db: Any, table: str) -> Opened:
    """Records of one flat JSON array, alone or under one name, or of JSON lines."""
    said = _said(original)
    text = decoded(_bytes(original), said)
    parsed = _lines_or_whole(text)
    if isinstance(parsed, list) and len(parsed) == 1 and isinstance(parsed[0], list | dict):
        parsed = parsed[0]
    if isinstance(parsed, dict):
        lists = [v for v in parsed.values() if isinstance(v, list)]
        parsed = lists[0] if len(lists) == 1 else None
    if not isinstance(parsed, list) or not all(isinstance(row, dict) for row in parsed):
        raise NotProvable("the second reader knows JSON arrays of records only")
    names = list(dict.fromkeys(str(key) for row in parsed for key in row))
    columns = [[_exact(row.get(name)) for row in parsed] for name in names]
    odd = {
        f"c{i}": "it holds lists or structures"
        for i, column in enumerate(columns)
        if any(isinstance(v, list | dict) for v in column)
    }
    from_columns(db, table, columns)
    return named(db, table, names, said, odd)


def _lines_or_whole(text: str) -> Any:
    def read(part: str) -> Any:
        return json.loads(part, parse_int=_Written, parse_float=_Written)

    try:
        return [read(line) for line in text.split("\n") if line.strip()]
    except ValueError:
        return read(text)


def _exact(value: Any) -> Any:
    """A number that no reading rounds; nothing for NaN; else the value."""
    if isinstance(value, _Written):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    return None if isinstance(value, float) and value != value else value


def _sqlite(original: Original, db: Any, table: str) -> Opened:
    with closing(sqlite3.connect(f"file:{original.path}?mode=ro", uri=True)) as file:
        listed = [str(r[0]) for r in file.execute(_TABLES)]
        name = original.part or (listed[0] if len(listed) == 1 else "")
        if name not in listed:
            raise NotProvable("which of its tables is meant is not known")
        rows = file.execute(f"select * from {ident(name)}")
        names = [str(item[0]) for item in rows.description]
        return _plain_columns(db, table, names, rows.fetchall(), _said(original, name))


def _excel(original: Original, db: Any, table: str) -> Opened:
    found = sheet(original.path, original.part)
    said = _said(original, found.part)
    areas = said.words("ranges")
    if areas and "!" not in original.part:
        if len(areas) > 1:
            raise NotProvable("which of its areas is meant is not known")
        found = Grid(found.part, within(found.rows, areas[0]), found.merged, found.unstored)
    return _of_grid(found, said, db, table)


def _html(original: Original, db: Any, table: str) -> Opened:
    said = _said(original)
    page = decoded(_bytes(original), said)
    rows = grid(page, original.part)
    if rows is None:
        raise NotProvable("which of its tables is meant is not known")
    wide = max(map(len, rows))
    if any(len(row) != wide for row in rows):
        raise NotProvable("rows of different widths")
    return _of_grid(Grid(original.part, rows), said, db, table)


def _of_grid(given: Grid, said: Said, db: Any, table: str) -> Opened:
    """A grid of cells: titles, then a row of names, then the rows."""
    width = max((len(row) for row in given.rows), default=0)
    rows = [[*row, *[None] * (width - len(row))] for row in given.rows]
    gone, skip = said.dropped() or set(), said.number("skip")
    for number, row in enumerate(rows, 1):
        if number <= skip or number in gone:
            row[:] = [None] * width
    top = _names_row(rows, said)
    used = [i for i in range(width) if any(row[i] is not None for row in rows[top:])]
    if not said.words("ranges") and used and used != list(range(used[0], used[-1] + 1)):
        raise NotProvable("an empty column stands between two tables")
    header = said.given.get("header") is not False
    doubted = _doubted(rows, given, said, top + header, used)
    body = [(n, r) for n, r in enumerate(rows[top + header :], top + header + 1) if any_filled(r)]
    names = ["" if rows[top][i] is None else _name(rows[top][i]) for i in used]
    if not header:
        names = [f"column {n}" for n in range(1, len(used) + 1)]
    if not body:
        raise NotProvable("the original holds no rows")
    if said.dropped() is None and not said.words("ranges"):
        _one_table(body)
    from_columns(db, table, [[r[i] for _, r in body] for i in used], [n for n, _ in body])
    return named(db, table, names, said, doubted)


def _one_table(body: Sequence[tuple[int, Sequence[Any]]]) -> None:
    """Raise `NotProvable` where rows go on after an empty one with words alone: another table."""
    for (before, row), (number, after) in pairwise(body):
        words = all(v is None or isinstance(v, str) for v in after)
        if number > before + 1 and words and any(isinstance(v, int | float) for v in row):
            raise NotProvable(f"another table may begin in row {number}")


def any_filled(row: Sequence[Any]) -> bool:
    return any(value is not None for value in row)


def _name(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _names_row(rows: Sequence[Sequence[Any]], said: Said) -> int:
    """The place of the row of names: the first with two cells or more. Raises `NotProvable` where
    it holds other cells than words and years."""
    wide = max((sum(v is not None for v in row) for row in rows), default=0)
    for place, row in enumerate(rows[: said.number("skip") + _MOST_TITLES]):
        filled = [v for v in row if v is not None]
        if len(filled) < min(2, wide) or not filled:
            continue
        words = [v for v in filled if isinstance(v, str) and not NUMBER.fullmatch(v)]
        years = [v for v in map(_name, filled) if v.isdecimal() and 1500 <= int(v) <= 2100]
        if said.given.get("header") is False or said.words("names"):
            return place
        if words and len(words) + len(years) == len(filled) and years == sorted(set(years)):
            return place
        raise NotProvable(f"row {place + 1} is the first that is filled, and no row of names")
    raise NotProvable("no row of names is found")


def _doubted(
    rows: list[list[Any]], given: Grid, said: Said, first: int, used: Sequence[int]
) -> dict[str, str]:
    """Columns with merged cells or formulas that the user does not settle, by their place. Cells
    of a merged area get its value where the user says `fill`."""
    why: dict[int, str] = {}
    how = said.text("merged")
    for top, left, bottom, right in given.merged:
        if bottom < first and (top == bottom or bottom < first - 1):
            continue  # titles above the names
        if not how:
            where = f"a merged cell stands for rows {top + 1} to {bottom + 1}"
            why |= dict.fromkeys(range(left, right + 1), where)
        elif how == "fill":
            _fill(rows, (top, left, bottom, right))
    for column, word in given.unstored.items():
        if said.text("formulas") not in (word, "missing"):
            why[column] = "formulas whose results are not in the file"
    return {f"c{used.index(i)}": said_ for i, said_ in why.items() if i in used}


def _fill(rows: list[list[Any]], area: Area) -> None:
    top, left, bottom, right = area
    for r in range(top, min(bottom + 1, len(rows))):
        for c in range(left, right + 1):
            rows[r][c] = rows[top][left]


_TRUSTED = Said()  # of a frame, whose rows are all cases


def _pickle(path: Path, db: Any, table: str) -> Opened:
    """A table of an R package: no text stands behind it, so the frame itself is the original."""
    import pandas as pd

    return _frame(pd.read_pickle(path, compression="xz"), db, table, _TRUSTED)


def _frame(frame: Any, db: Any, table: str, said: Said) -> Opened:
    arrow = importlib.import_module("pyarrow")
    columns: Mapping[str, Any] = {"rn": arrow.array(range(1, len(frame) + 1), arrow.int64())}
    made = dict(columns)
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if column.dtype.kind in "iuf":
            cells = arrow.array(column.astype(float).to_numpy(), from_pandas=True)
        elif column.dtype.kind == "M":
            cells = arrow.array(column.dt.tz_localize(None), from_pandas=True)
        else:
            gone = column.isna()
            words = [None if g else str(v) for v, g in zip(column, gone, strict=True)]
            cells = arrow.array(words, arrow.string())
        made[f"c{place}"] = cells
    db.register("given", arrow.table(made))
    db.execute(f"create or replace table {table} as select * from given")
    db.unregister("given")
    return named(db, table, [str(name) for name in frame.columns], said)


_Reader = Callable[[Original, Any, str], Opened]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".dat", ".data", ".txt", ".fwf"), _text_file),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _sqlite),
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"), _excel),
    **dict.fromkeys((".html", ".htm"), _html),
    **dict.fromkeys((".dta", ".sav"), _statistics),
    **dict.fromkeys((".feather", ".arrow"), _feather),
    ".duckdb": _duckdb,
    ".parquet": _parquet,
}


# --- the tables of one folder ---


class Shelf:
    """The originals below a folder, whose `tables.yaml` counts. Close it after use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.con: Any = connect()
        self._held: dict[tuple[str, str], Opened | NotProvable] = {}
        # distinct values by query (`lake_proof.everything`)
        self.listed: dict[str, list[Any]] = {}
        self.once: set[str] = set()  # files that one library alone reads

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def table(self, path: str, part: str = "") -> Opened:
        """A table of a file. Raises `NotProvable`, each time."""
        key = (path, part)
        if key not in self._held:
            original = Original(self.folder / path, part, self.folder)
            if original.once:
                self.once.add(path)
            try:
                self._held[key] = opened(original, self.con, f"raw{len(self._held)}")
            except NotProvable as error:
                self._held[key] = NotProvable(str(error).replace(original.path.name, path, 1))
        found = self._held[key]
        if isinstance(found, NotProvable):
            raise found
        return found
