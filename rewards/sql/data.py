"""A small database as plain data: its tables, their declared constraints, and how a row carries it.

A task carries its database in `gold`, packed as text, so that it can be scored wherever it goes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Literal, cast

from assay.task import TaskError, derive_seed

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]

ROUNDING = 1e-12  # relative: what the order of a few hundred additions may change
_LEAST = 1e-9  # absolute, about zero: sums of numbers that cancel


@dataclass(frozen=True)
class Stored:
    """The fractions that stand in a database, which are no results of computing; `least`: the
    absolute tolerance about zero among numbers of their size."""

    fractions: frozenset[float] = frozenset()
    least: float = _LEAST


def stored(cells: Iterable[Cell]) -> Stored:
    """Collect what is stored, of all the cells of a database."""
    found = frozenset(c for c in cells if isinstance(c, float) and math.isfinite(c))
    most = max(map(abs, found), default=1.0)
    return Stored(found, min(_LEAST, ROUNDING * most) if most else _LEAST)


Type = Literal["INTEGER", "REAL", "TEXT", "BLOB"]
TYPES = ("INTEGER", "REAL", "TEXT", "BLOB")
_PLAIN = (int, float, str, type(None))
MOST_BYTES = 64 << 20  # of a database that is unpacked


@dataclass(frozen=True)
class Column:
    """A column as its table declares it. `type` is SQLite's; `date`: its texts have the form
    YYYY-MM-DD; `refers`: the (table, column) whose values it has, a foreign key."""

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


# ---- hidden databases
# Hidden databases: others of the same schema (twins), on which a query is run again.
#
# A twin keeps what the schema declares (types, NOT NULL, UNIQUE, REFERENCES) and changes the rest:
# how many rows there are, which values there are and which meet in a row, how often each occurs,
# the numbers themselves. A column of one value has a second one, so that no column is a constant.
# Where the data have missing values, a twin has them too; where a question compares with a value
# (`focus`), some rows of a twin hold exactly that value. A query that answers the question answers
# it on every twin; constants, and queries that are right by chance, do not.
#
# A twin depends on the database, the focus and a seed alone.


ROWS = 160  # of a twin's table, at most
FEWEST = 12
_FEW = 12  # distinct numbers up to which they are codes, and stay
_MISSING = 0.12  # of the cells, at least, where some are missing
_FOCUSED = 0.15  # of the cells, where the question compares with a value
_POOL = 5  # distinct values from which a share of them is left out in a twin:
_LEFT_OUT = 0.25
_LARGEST = (1 << 63) - 1  # of SQLite's whole numbers
_AGAIN = 0.08  # of the rows: a copy of another, where the schema lets rows repeat

Focus = tuple[str, str, Cell]  # table, column, a value that the question compares with


@lru_cache(maxsize=64)
def hidden_database(
    database: Database, focus: tuple[Focus, ...], seed: int, number: int
) -> Database:
    """Make the hidden database of that number, from 0 on. The same database, focus, seed and
    number give the same cells."""
    made: dict[str, Table] = {}
    for table in database.tables:
        rng = Random(derive_seed(seed, "sql-twin", number, table.name))
        values: dict[str, list[Cell]] = {}
        for name, column, value in focus:
            if name == table.name:
                values.setdefault(column, []).append(value)
        made[table.name] = _twin_table(table, values, made, number, rng)
    return Database(tuple(made.values()))


def _twin_table(
    table: Table,
    focus: Mapping[str, Sequence[Cell]],
    made: Mapping[str, Table],
    number: int,
    rng: Random,
) -> Table:
    size = max(FEWEST, min(len(table.rows), ROWS))
    size = round(size * rng.uniform(0.75, 1.0))  # also of the smallest: their number is no constant
    pools = {
        c.name: _pool(table, c, focus.get(c.name, ()), made, number, rng) for c in table.columns
    }
    for column in table.columns:
        if column.unique:
            size = min(size, len(pools[column.name]))
    columns: list[list[Cell]] = []
    for column in table.columns:
        pool = pools[column.name]
        cells = _twin_column(column, pool, focus.get(column.name, ()), size, rng)
        missing = table.missing(column.name) / max(1, len(table.rows))
        columns.append(_with_gaps(column, cells, missing, rng))
    rows: list[Row] = list(zip(*columns, strict=True))
    if not any(c.unique for c in table.columns):
        for at in range(len(rows)):
            if rng.random() < _AGAIN:
                rows[at] = rng.choice(rows)
    return Table(table.name, table.columns, tuple(rows))


def _pool(
    table: Table,
    column: Column,
    focus: Sequence[Cell],
    made: Mapping[str, Table],
    number: int,
    rng: Random,
) -> list[Cell]:
    """The values that a column of a twin may have, before they are changed: most of those that it
    has, and those that the question compares with."""
    if column.refers:
        other, name = column.refers
        return [v for v in made[other].values(name) if v is not None]
    pool = table.distinct(column.name)
    if len(pool) == 1:
        pool.append(_another(column, pool[0]))
    # of three twins in a row one has the least value and the largest, one lacks either
    turn = (number + len(column.name)) % 3
    kept = pool[turn == 1 : -1 if turn == 2 else None]
    if len(pool) >= _POOL:
        draw, asked = rng.random, frozenset(focus)
        if not asked:  # of most columns
            kept = [value for value in kept if draw() >= _LEFT_OUT]
        else:
            kept = [value for value in kept if value in asked or draw() >= _LEFT_OUT]
    first = [v for v in pool[:1] if turn == 1 and v in focus]
    last = [v for v in pool[-1:] if turn == 2 and v in focus]
    return [*first, *kept, *last] or pool


def _another(column: Column, value: Any) -> Cell:
    """Another value of the kind of the only one."""
    if isinstance(value, str):
        later = _moved(value, 31) if column.date else value
        return f"{value} 2" if later == value else later
    if isinstance(value, bytes):
        return value + b"2"
    return value + 1 if abs(value) < 1e15 else value // 2


def _twin_column(
    column: Column, pool: Sequence[Cell], focus: Sequence[Cell], size: int, rng: Random
) -> list[Cell]:
    if not pool:
        return [None] * size
    if column.unique:
        chosen = rng.sample(pool, size)
        lacking = [v for v in focus if v in set(pool) and v not in set(chosen)]
        return [*lacking[:size], *chosen[len(lacking[:size]) :]] if lacking else chosen
    cells = _drawn(pool, size, rng)
    if not column.refers and (change := _change(column, pool, rng)) is not None:
        cells = [change(cell) for cell in cells]
    if column.refers:
        focus = [v for v in focus if v in set(pool)]
    if not focus:
        return cells
    return [rng.choice(focus) if rng.random() < _FOCUSED else cell for cell in cells]


def _drawn(pool: Sequence[Cell], size: int, rng: Random) -> list[Cell]:
    """Values of the pool, some often and some seldom."""
    draw = rng.random
    weights = [draw() ** 2 + 0.05 for _ in pool]
    return rng.choices(pool, weights, k=size)


def _change(column: Column, pool: Sequence[Cell], rng: Random) -> Callable[[Any], Cell] | None:
    """What makes another value of one; None for texts and for numbers that are codes."""
    if column.date:
        days = rng.randint(5, 60)
        return lambda cell: _moved(cell, rng.randint(-days, days))
    numbers: Sequence[Any] = pool  # these stand before texts
    if len(pool) <= _FEW or not isinstance(pool[-1], int | float):
        return None
    low, high = numbers[0], numbers[-1]
    # half of the range about the middle of the values, on either side
    reach = (numbers[3 * len(numbers) // 4] - numbers[len(numbers) // 4]) or (high - low)
    if set(map(type, numbers)) == {int}:
        step = max(1, round(reach / 4))
        return lambda cell: _within(low, cell + rng.randint(-step, step))
    if not math.isfinite(reach):
        return None
    places = min(12, max(map(_places, numbers)))
    return lambda cell: round(_within(low, cell + rng.uniform(-1, 1) * reach / 4), places)


def _within(low: float, value: Any) -> Any:
    """A changed number kept within its column: never negative where the smallest is 0 or more, and
    never 0 where the smallest is above 0."""
    if low >= 0:
        value = abs(value) or low
    return max(-_LARGEST, min(_LARGEST, value)) if isinstance(value, int) else value


@lru_cache(maxsize=1 << 16)
def _places(value: float) -> int:
    """Digits behind the point."""
    text = repr(float(value))
    if "e" not in text and "n" not in text:
        return len(text.partition(".")[2].rstrip("0"))
    parts = Decimal(text).normalize().as_tuple()
    return max(0, -parts.exponent) if isinstance(parts.exponent, int) else 0


def _moved(cell: Any, days: int) -> Cell:
    try:
        return (date.fromisoformat(cell) + timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return cell


def _with_gaps(column: Column, cells: list[Cell], missing: float, rng: Random) -> list[Cell]:
    """With missing values, where the data have some."""
    if column.required or not missing:
        return cells
    share = min(0.5, max(missing, _MISSING))
    return [None if rng.random() < share else cell for cell in cells]
