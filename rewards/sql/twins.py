"""Hidden twins: other databases of the same schema, on which a query is run again.

A twin keeps what the schema declares (types, NOT NULL, UNIQUE, REFERENCES) and changes the rest:
how many rows there are, which values meet in a row, how often each occurs, the numbers themselves.
Where the data have missing values, a twin has them too; where a question compares with a value
(`focus`), some rows of a twin hold exactly that value. A query that answers the question answers it
on every twin; constants, and queries that are right by chance, do not.

A twin depends on the database, the focus and a seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache
from random import Random
from typing import Any

from rewards.seeds import derive_seed
from rewards.sql.compare import Cell, Row
from rewards.sql.data import Column, Database, Table

ROWS = 160  # of a twin's table, at most
FEWEST = 12
_FEW = 12  # distinct numbers up to which they are codes, and stay
_MISSING = 0.12  # of the cells, at least, where some are missing
_FOCUSED = 0.15  # of the cells, where the question compares with a value
_AGAIN = 0.08  # of the rows: a copy of another, where the schema lets rows repeat

Focus = tuple[str, str, Cell]  # table, column, a value that the question compares with


@lru_cache(maxsize=64)
def twin(database: Database, focus: tuple[Focus, ...], seed: int, number: int) -> Database:
    """The twin of that number."""
    made: dict[str, Table] = {}
    for table in database.tables:
        rng = Random(derive_seed(seed, "sql-twin", number, table.name))
        values: dict[str, list[Cell]] = {}
        for name, column, value in focus:
            if name == table.name:
                values.setdefault(column, []).append(value)
        made[table.name] = _table(table, values, made, rng)
    return Database(tuple(made.values()))


def _table(
    table: Table, focus: Mapping[str, Sequence[Cell]], made: Mapping[str, Table], rng: Random
) -> Table:
    size = max(FEWEST, min(len(table.rows), ROWS))
    size = max(FEWEST, round(size * rng.uniform(0.75, 1.0)))
    pools = {c.name: _pool(table, c, made) for c in table.columns}
    for column in table.columns:
        if column.unique:
            size = min(size, len(pools[column.name]))
    columns: list[list[Cell]] = []
    for column in table.columns:
        pool = pools[column.name]
        cells = _column(column, pool, focus.get(column.name, ()), size, rng)
        missing = table.values(column.name).count(None) / max(1, len(table.rows))
        columns.append(_with_gaps(column, cells, missing, rng))
    rows: list[Row] = list(zip(*columns, strict=True))
    if not any(c.unique for c in table.columns):
        for at in range(len(rows)):
            if rng.random() < _AGAIN:
                rows[at] = rng.choice(rows)
    return Table(table.name, table.columns, tuple(rows))


def _pool(table: Table, column: Column, made: Mapping[str, Table]) -> list[Cell]:
    """The values that a column of a twin may have, before they are changed."""
    if column.refers:
        other, name = column.refers
        return [v for v in made[other].values(name) if v is not None]
    return sorted(set(table.values(column.name)) - {None}, key=_order)


def _order(cell: Any) -> tuple[int, Any]:
    return (0, cell) if isinstance(cell, int | float) else (1, repr(cell))


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
    weights = [rng.random() ** 2 + 0.05 for _ in pool]
    return rng.choices(pool, weights, k=size)


def _change(column: Column, pool: Sequence[Cell], rng: Random) -> Callable[[Any], Cell] | None:
    """What makes another value of one; None for texts and for numbers that are codes."""
    if column.date:
        days = rng.randint(5, 60)
        return lambda cell: _moved(cell, rng.randint(-days, days))
    numbers: list[Any] = [v for v in pool if isinstance(v, int | float)]
    if len(numbers) < len(pool) or len(numbers) <= _FEW:
        return None
    low, high = min(numbers), max(numbers)
    # half of the range about the middle of the values, on either side
    reach = (numbers[3 * len(numbers) // 4] - numbers[len(numbers) // 4]) or (high - low)
    if all(isinstance(v, int) for v in numbers):
        step = max(1, round(reach / 4))
        return lambda cell: min(high, max(low, cell + rng.randint(-step, step)))
    places = min(6, max(_places(v) for v in numbers))
    return lambda cell: round(min(high, max(low, cell + rng.uniform(-1, 1) * reach / 4)), places)


def _places(value: float) -> int:
    text = repr(value)
    return 6 if "e" in text or "n" in text else len(text.partition(".")[2].rstrip("0"))


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
