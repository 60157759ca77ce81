# duckdb and pyarrow ship partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""An original table in DuckDB: its names, its cells, what of it cannot be proved; and what the user
says of its file in `tables.yaml`, the only settings that the second reader takes.
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import yaml

from assay.errors import TaskError, install_extra

FILE = "tables.yaml"


@dataclass(frozen=True)
class Said:
    """The keys that hold for one table of a file, as they are written; empty where nothing is
    said. The first reader refuses a file of keys that cannot be meant."""

    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def text(self, key: str) -> str:
        return str(self.given.get(key) or "")

    def number(self, key: str) -> int:
        return int(self.given.get(key) or 0)

    def words(self, key: str) -> list[str]:
        return _words(self.given.get(key))

    def of(self, key: str) -> dict[str, Any]:
        """A key that says something column by column."""
        return _mapping(self.given.get(key))

    def decimal(self, column: str) -> str:
        """The decimal mark of a column: said of it, of all others, or of the table."""
        if not isinstance(self.given.get("decimal"), dict):
            return self.text("decimal")
        by_column = self.of("decimal")
        return str(by_column.get(column, by_column.get("*", "")))

    def missing(self, column: str) -> list[str] | None:
        """The words that mean no value in a column, without blanks around them; None where nothing
        is said."""
        by_column = self.of("missing")
        if column not in by_column and "*" not in by_column:
            return None
        return [word.strip() for word in _words(by_column.get(column, by_column.get("*")))]

    def dropped(self) -> set[int] | None:
        """The numbers of lines or rows that are no rows; None where nothing is said."""
        if self.given.get("drop_rows") is None:
            return None
        found: set[int] = set()
        for span in self.words("drop_rows"):
            first, _, last = span.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
        return found


def said_of(path: Path, root: Path | None = None, part: str = "") -> Said:
    """What `tables.yaml` of the root folder, or else the nearest above the file, says of a part of
    a file: of several patterns that match, the later wins, key by key."""
    whole = path.resolve()
    for folder in [root.resolve()] if root else whole.parents:
        if (folder / FILE).is_file():
            return Said(_matching(folder / FILE, whole.relative_to(folder).as_posix(), part))
    return Said()


def _matching(rules: Path, name: str, part: str) -> dict[str, Any]:
    try:
        loaded: Any = yaml.safe_load(rules.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # the first reader says what is wrong with it
    found: dict[str, Any] = {}
    for pattern, given in _mapping(loaded).items():
        if fnmatch.fnmatchcase(name, pattern) or (part and pattern == f"{name} [{part}]"):
            found |= _mapping(given)
    return found


def _mapping(value: Any) -> dict[str, Any]:
    pairs = cast("dict[Any, Any]", value if isinstance(value, dict) else {})
    return {str(key): held for key, held in pairs.items()}


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(one) for one in cast("list[Any]", value if isinstance(value, list) else [value])]


# --- the table ---

_ONCE = (".pkl.compress", ".sav", ".feather", ".arrow", ".duckdb")
_EXACT = 2**53  # whole numbers up to here are their own doubles


class NotProvable(ValueError):
    """The second reader cannot read this, or not with certainty; the message says why."""


@dataclass(frozen=True)
class Original:
    """A file, which of its tables is meant (a sheet, a SQLite table, a number), and the folder
    whose `tables.yaml` counts; without one, the nearest above the file."""

    path: Path
    part: str = ""
    root: Path | None = None

    @property
    def once(self) -> bool:
        """Whether one library alone reads such files here, or no text stands behind the frame: the
        computation is done twice, the reading once."""
        return self.path.name.lower().endswith(_ONCE)


@dataclass
class Opened:
    """A table of `db`: `rn`, the row's number in the file, and columns `c0` to `cN`. `ids` says
    which is called what, `types` what DuckDB holds there; `doubted` are columns that allow two
    readings, and why; `decided` keeps what was found of a column."""

    db: Any
    table: str
    ids: dict[str, str]
    types: dict[str, str]
    said: Said = field(default_factory=Said)
    doubted: dict[str, str] = field(default_factory=dict[str, str])
    decided: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def column(self, name: str) -> str:
        """The column of a name. Raises `NotProvable`."""
        cell = self.ids.get(name)
        if cell is None:  # names are compared without line breaks and doubled blanks
            alike = [c for n, c in self.ids.items() if n.split() == name.split()]
            if len(alike) != 1:
                raise NotProvable(f"the second reader finds no column {name!r}")
            cell = alike[0]
        if cell in self.doubted:
            raise NotProvable(f"{name!r}: {self.doubted[cell]}")
        return cell

    def one(self, query: str) -> tuple[Any, ...]:
        return self.db.execute(query).fetchall()[0]

    def all(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.execute(query).fetchall()

    def texts(self) -> list[str]:
        """The columns that hold text."""
        return [cell for cell, kind in self.types.items() if kind == "VARCHAR"]


def connect() -> Any:
    """An empty database in memory, one thread. Raises `TaskError` where DuckDB is missing."""
    try:
        duckdb = importlib.import_module("duckdb")
    except ModuleNotFoundError:
        raise TaskError(
            f"gold is proved with DuckDB, which is not installed: {install_extra('build')}"
        ) from None
    return duckdb.connect(config={"threads": 1})


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def ident(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def named(
    db: Any, table: str, names: Sequence[str], said: Said, doubted: Mapping[str, str] | None = None
) -> Opened:
    """A table whose columns get their names: those that the user gives, or those of the file.
    Names that are equal, or differ by case and blanks alone, name no column."""
    own = said.words("names")
    if own and len(own) != len(names):
        raise NotProvable(f"tables.yaml gives {len(own)} names to {len(names)} columns")
    listed = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(own or names)]
    folded = [" ".join(name.split()).casefold() for name in listed]
    found = dict(doubted or {})
    for place, name in enumerate(folded):
        if folded.count(name) > 1 and (not own or listed.count(listed[place]) > 1):
            found[f"c{place}"] = "names of two columns differ by case or blanks alone, or not"
    ids = {name: f"c{place}" for place, name in enumerate(listed)}
    described = db.execute(f"describe {table}").fetchall()
    types = {str(row[0]): str(row[1]) for row in described if row[0] != "rn"}
    return Opened(db, table, ids, types, said, found)


def from_columns(
    db: Any, table: str, columns: Sequence[Sequence[Any]], rows: Sequence[int] | None = None
) -> None:
    """Make a table of Python values; `rows` are the rows' numbers in the file."""
    made = python_columns(columns, "c")
    if made.num_rows == 0:
        raise NotProvable("the original holds no rows")
    arrow = importlib.import_module("pyarrow")
    numbers = list(rows) if rows is not None else list(range(1, made.num_rows + 1))
    db.register("given", made.add_column(0, "rn", arrow.array(numbers, arrow.int64())))
    db.execute(f"create or replace table {table} as select * from given")
    db.unregister("given")


def python_columns(columns: Sequence[Sequence[Any]], letter: str) -> Any:
    """An Arrow table of Python values, its columns called by a letter and their place."""
    arrow = importlib.import_module("pyarrow")
    return arrow.table({f"{letter}{i}": _column(arrow, c) for i, c in enumerate(columns)})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column(arrow: Any, values: Sequence[Any]) -> Any:
    """A column of numbers alone, or of times alone, stays one; all else is text."""
    known = [v for v in values if v is not None]
    if known and all(map(_is_number, known)):
        whole = all(isinstance(v, int) for v in known)
        if whole and all(-(2**63) <= v < 2**63 for v in known):
            return arrow.array(values, arrow.int64())
        if all(isinstance(v, float) or abs(v) <= _EXACT for v in known):
            return arrow.array([None if v is None else float(v) for v in values], arrow.float64())
    elif known and all(isinstance(v, date) and not getattr(v, "tzinfo", None) for v in known):
        return arrow.array(values, arrow.timestamp("us"))
    return arrow.array([_word(v) for v in values], arrow.string())


def _word(value: Any) -> str | None:
    """A value beside others of another kind, as text. A number is written with an exponent, so that
    its point cannot be taken for a thousands mark."""
    if value is None:
        return None
    if isinstance(value, float):
        return f"{value:.17e}"
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
