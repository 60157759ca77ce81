"""Rows that two computations gave, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CLOSE = 1e-12  # relative; readers of text may differ in a number's last bit


class Differs(ValueError):
    """The second computation gives something else."""


@dataclass(frozen=True)
class Column:
    """A column of the comparison: its name, and SQL for its cells on both sides. Cells are numbers,
    or words."""

    name: str
    numeric: bool
    second: str
    first: str


def same(one: str, other: str, numeric: bool) -> str:
    """SQL: whether two cells hold the same."""
    if not numeric:
        return f"({one} is not distinct from {other})"
    near = f"abs({one} - {other}) <= {CLOSE} * abs({other})"
    return f"(({one} is null and {other} is null) or coalesce({near}, false))"


def all_same(columns: Sequence[tuple[int, Column]], one: str, other: str) -> str:
    """SQL: whether all these columns, `v0` to `vN` of two tables, hold the same."""
    parts = [same(f"{one}.v{i}", f"{other}.v{i}", c.numeric) for i, c in columns]
    return " and ".join(parts) or "true"


def row_hash(columns: Sequence[tuple[int, Column]], exact: bool = False) -> str:
    """SQL: a number that equal rows share. Unless `exact`, numbers are cut to single precision, so
    that a last bit does not part them."""
    cells = [
        f"(v{i} + 0.0){'' if exact else '::float'}" if c.numeric else f"v{i}" for i, c in columns
    ]
    return f"hash({', '.join(cells)})" if cells else "0::ubigint"


def shown(value: Any) -> str:
    """A cell, for a message."""
    if value is None:
        return "nothing"
    return f"{value:.15g}" if isinstance(value, float) else repr(value)


def difference(second: Any, what: str, first: Any) -> Differs:
    return Differs(
        f"the second computation gives {shown(second)} for {what}, the task has {shown(first)}"
    )


def by_place(db: Any, columns: Sequence[Column], second: str, first: str, what: str) -> None:
    """Raise `Differs` unless two tables (`pos` and `v0` to `vN` each) hold the same rows in the
    same order."""
    counts = [int(db.execute(f"select count(*) from {t}").fetchone()[0]) for t in (second, first)]
    if counts[0] != counts[1]:
        raise difference(counts[0], f"the number of rows of {what}", counts[1])
    listed = list(enumerate(columns))
    row = db.execute(
        f"select a.pos, {', '.join(f'a.v{i}, b.v{i}' for i, _ in listed)} "
        f"from {second} a join {first} b using (pos) "
        f"where not ({all_same(listed, 'a', 'b')}) order by a.pos limit 1"
    ).fetchone()
    if row is None:
        return
    for i, column in listed:
        one, other = row[1 + 2 * i], row[2 + 2 * i]
        if not _equal(one, other):
            raise difference(one, f"{column.name!r} in row {row[0]} of {what}", other)
    raise Differs(f"the second computation gives another row {row[0]} of {what}")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= CLOSE * abs(other)
    return one == other
