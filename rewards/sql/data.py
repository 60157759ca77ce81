"""A small database as plain data: its tables, their declared constraints, and how a row carries it.

A task carries its database in `gold`, packed as text, so that it can be scored wherever it goes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

from assay.task import TaskError
from rewards.sql.compare import Cell, Row, Stored, stored

Type = Literal["INTEGER", "REAL", "TEXT", "BLOB"]
TYPES = ("INTEGER", "REAL", "TEXT", "BLOB")
_PLAIN = (int, float, str, type(None))
MOST_BYTES = 64 << 20  # of a database that is unpacked


@dataclass(frozen=True)
class Column:
    """`date`: texts of the form YYYY-MM-DD. `refers`: (table, column) whose values it has."""

    name: str
    type: Type
    required: bool = False  # NOT NULL
    unique: bool = False
    date: bool = False
    refers: tuple[str, str] | None = None

    def declared(self) -> str:
        """Write the column as `CREATE TABLE` declares it."""
        words = [quoted(self.name), self.type]
        words += ["NOT NULL"] if self.required else []
        words += ["UNIQUE"] if self.unique else []
        if self.refers:
            words.append(f"REFERENCES {quoted(self.refers[0])} ({quoted(self.refers[1])})")
        return " ".join(words)


@dataclass(frozen=True)
class Table:
    """Columns and rows; a row has a cell for every column."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def ddl(self) -> str:
        """Write the statement that makes the table."""
        inner = ", ".join(c.declared() for c in self.columns)
        return f"CREATE TABLE {quoted(self.name)} ({inner})"

    @property
    def insert(self) -> str:
        """Write the statement that inserts one row, with a `?` a cell."""
        marks = ", ".join("?" for _ in self.columns)
        return f"INSERT INTO {quoted(self.name)} VALUES ({marks})"

    def values(self, column: str) -> tuple[Cell, ...]:
        """Return the cells of a column, in the order of the rows."""
        return self._columns[column]

    def distinct(self, column: str) -> list[Any]:
        """List the different values of a column, without a missing one: numbers before texts."""
        if column not in self._distinct:
            self._distinct[column] = sorted({*self.values(column)} - {None}, key=_order)
        return [*self._distinct[column]]

    def missing(self, column: str) -> int:
        """Count the rows in which a column has no value."""
        return self.values(column).count(None)

    @cached_property
    def _columns(self) -> dict[str, tuple[Cell, ...]]:
        cells = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return dict(zip((c.name for c in self.columns), cells, strict=True))

    @cached_property
    def _distinct(self) -> dict[str, list[Any]]:
        return {}


def _order(cell: Any) -> tuple[int, Any]:
    return (0, cell) if isinstance(cell, int | float) else (1, repr(cell))


@dataclass(frozen=True, eq=False)
class Database:
    """Tables in an order in which they can be made: those that others refer to first. Equal by what
    they hold: of large ones the rows are written down once, and never compared one by one."""

    tables: tuple[Table, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Database) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[str, tuple[tuple[Column, ...], ...]]:
        return self.digest, tuple(t.columns for t in self.tables)

    @cached_property
    def text(self) -> str:
        """What the process that runs queries is sent, as JSON; bytes are written by `in_digits`."""
        plain = [{"ddl": t.ddl, "insert": t.insert, "rows": t.rows} for t in self.tables]
        return json.dumps(plain, default=in_digits)

    @cached_property
    def digest(self) -> str:
        """The same for the same schema and rows."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @cached_property
    def stored(self) -> Stored:
        """The numbers that stand in it, for comparing results."""
        return stored(cell for t in self.tables for row in t.rows for cell in row)

    def table(self, name: str) -> Table:
        """Return the table of that name."""
        return next(t for t in self.tables if t.name == name)


def quoted(name: str) -> str:
    """Write a name as SQL does, in quotation marks where it needs them."""
    simple = name.isascii() and name.isidentifier() and name == name.lower()
    return name if simple and name.upper() not in RESERVED else '"' + name.replace('"', '""') + '"'


def packed(database: Database) -> str:
    """Write a database as text; `unpacked(packed(d)) == d`, and the same database gives the same
    text."""
    body = [
        {
            "name": t.name,
            "columns": [_column_row(c) for c in t.columns],
            "rows": t.rows,
        }
        for t in database.tables
    ]
    text = json.dumps(body, separators=(",", ":"), default=in_digits)
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def _column_row(column: Column) -> list[Any]:
    flags = [column.required, column.unique, column.date]
    return [column.name, column.type, *map(int, flags), list(column.refers or ())]


@lru_cache(maxsize=64)
def unpacked(text: str) -> Database:
    """Read a database from the text that `packed` wrote. Raises `TaskError` for another text."""
    try:
        reader = zlib.decompressobj()
        body = reader.decompress(base64.b85decode(text), MOST_BYTES)
        if not reader.eof:
            raise ValueError("too large")
        return read_tables(json.loads(body))
    except (ValueError, zlib.error, RecursionError) as error:
        raise TaskError(f"gold field 'database' cannot be unpacked ({error})") from None


def read_tables(found: Any) -> Database:
    """Read a database from plain data: `[{"name", "columns": [[name, type, …]], "rows"}]`.
    Raises `TaskError` naming the table that cannot be used."""
    if not isinstance(found, list) or not found:
        raise TaskError("gold: the database has no tables; give a list of them")
    return Database(tuple(_table(one) for one in cast("list[Any]", found)))


def _table(one: Any) -> Table:
    if not isinstance(one, Mapping):
        raise TaskError("gold: a table is no object with name, columns and rows")
    row = cast("Mapping[str, Any]", one)
    name = row.get("name")
    try:
        columns = tuple(_column(c) for c in row["columns"])
        rows = tuple(
            tuple([c if type(c) in _PLAIN else cell_of(c) for c in cells]) for cells in row["rows"]
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TaskError(f"gold: table {name!r} cannot be read ({error})") from None
    if not isinstance(name, str) or not columns or any(len(r) != len(columns) for r in rows):
        raise TaskError(f"gold: table {name!r}: every row needs a cell for every column")
    return Table(name, columns, rows)


def _column(found: Sequence[Any]) -> Column:
    name, kind, *more = found
    if kind not in TYPES or not isinstance(name, str):
        raise ValueError(f"column {name!r} is of type {kind!r}, wanted one of {', '.join(TYPES)}")
    required, unique, date = (bool(flag) for flag in (*more[:3], 0, 0, 0)[:3])
    refers: tuple[str, str] | None = None
    if len(more) > 3 and more[3]:
        table, other = more[3]
        refers = (str(table), str(other))
    return Column(name, kind, required, unique, date, refers)


def in_digits(cell: Any) -> dict[str, str]:
    """Write bytes, which JSON does not know, as hexadecimal digits (`json.dumps(…,
    default=in_digits)`)."""
    return {"hex": cell.hex()}


def cell_of(cell: Any) -> Cell:
    """Read a cell from plain data: bytes are `{"hex": …}`. Raises ValueError for what is no
    cell."""
    if isinstance(cell, dict):
        return bytes.fromhex(str(cast("dict[str, Any]", cell)["hex"]))
    if isinstance(cell, bool) or not isinstance(cell, None | int | float | str):
        raise ValueError(f"a cell is {type(cell).__name__}")
    return cell


def renamed(database: Database, names: Mapping[str, str]) -> Database:
    """Give the tables and columns of a database other names."""

    def column(one: Column) -> Column:
        refers = one.refers and (names[one.refers[0]], names[one.refers[1]])
        return replace(one, name=names[one.name], refers=refers)

    return Database(
        tuple(Table(names[t.name], tuple(map(column, t.columns)), t.rows) for t in database.tables)
    )


RESERVED = frozenset(
    """
    ABORT ACTION ADD AFTER ALL ALTER ALWAYS ANALYZE AND AS ASC ATTACH AUTOINCREMENT BEFORE BEGIN
    BETWEEN BY CASCADE CASE CAST CHECK COLLATE COLUMN COMMIT CONFLICT CONSTRAINT CREATE CROSS
    CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DATABASE DEFAULT DEFERRABLE DEFERRED DELETE
    DESC DETACH DISTINCT DO DROP EACH ELSE END ESCAPE EXCEPT EXCLUDE EXCLUSIVE EXISTS EXPLAIN FAIL
    FILTER FIRST FOLLOWING FOR FOREIGN FROM FULL GENERATED GLOB GROUP GROUPS HAVING IF IGNORE
    IMMEDIATE IN INDEX INDEXED INITIALLY INNER INSERT INSTEAD INTERSECT INTO IS ISNULL JOIN KEY LAST
    LEFT LIKE LIMIT MATCH MATERIALIZED NATURAL NO NOT NOTHING NOTNULL NULL NULLS OF OFFSET ON OR
    ORDER OTHERS OUTER OVER PARTITION PLAN PRAGMA PRECEDING PRIMARY QUERY RAISE RANGE RECURSIVE
    REFERENCES REGEXP REINDEX RELEASE RENAME REPLACE RESTRICT RETURNING RIGHT ROLLBACK ROW ROWS
    SAVEPOINT SELECT SET TABLE TEMP TEMPORARY THEN TIES TO TRANSACTION TRIGGER TRUE FALSE UNBOUNDED
    UNION UNIQUE UPDATE USING VACUUM VALUES VIEW VIRTUAL WHEN WHERE WINDOW WITH WITHOUT ROWID
    """.split()  # noqa: SIM905 - a list of 150 words in lines of one each reads worse
)
