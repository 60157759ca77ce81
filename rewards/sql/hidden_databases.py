"""Hidden databases: others of the same schema (twins), on which a query is run again.

A twin keeps what the schema declares (types, NOT NULL, UNIQUE, REFERENCES) and changes the rest:
how many rows there are, which values there are and which meet in a row, how often each occurs, the
numbers themselves. A column of one value has a second one, so that no column is a constant.
Where the data have missing values, a twin has them too; where a question compares with a value
(`focus`), some rows of a twin hold exactly that value. A query that answers the question answers it
on every twin; constants, and queries that are right by chance, do not.

A twin depends on the database, the focus and a seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any

from assay.seeds import derive_seed
from rewards.sql.compare import Cell, Row
from rewards.sql.data import Column, Database, Table

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
        made[table.name] = _table(table, values, made, number, rng)
    return Database(tuple(made.values()))


def _table(
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
        cells = _column(column, pool, focus.get(column.name, ()), size, rng)
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


def _column(
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
