"""Whether a question has one gold: the two ways agree, and no other reading of its words differs.

Everything is tried on the data and on `WIDE` twins of them. A task keeps the first of these as the
hidden databases that training is scored on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from data_gen.proof.original import NotProvable
from data_gen.queries.database import Unit
from data_gen.queries.sql_pandas import Second, values
from data_gen.queries.sql_plans import Plan
from data_gen.queries.sql_write import Other, Written, written
from data_gen.tally import DIFFERS, UNPROVABLE, Refused
from rewards.sql.compare import Cell, Row, equal
from rewards.sql.data import Database, quoted
from rewards.sql.hidden_databases import Focus, hidden_database
from rewards.sql.run import Failed, run
from rewards.sql.score import TWINS, constants

WIDE = 6  # twins on which readings are told apart
MOST_ROWS = 40  # of a result


def focus_of(plan: Plan, unit: Unit) -> tuple[Focus, ...]:
    """The values that the question compares with."""
    table = unit.made[1 if plan.kind == "join_filter" else 0].table.name
    return tuple((table, f.field.name, f.value) for f in plan.filters)


def twins(base: Database, focus: tuple[Focus, ...], seed: int, places: range) -> list[Database]:
    """The twins of these numbers."""
    return [hidden_database(base, focus, seed, number) for number in places]


def gold_rows(plan: Plan, unit: Unit, one: Written) -> list[Row]:
    """What the query gives over the data. Raises `Refused`."""
    found = run(unit.database, one.sql)
    if isinstance(found, Failed):
        raise Refused("the query does not run", f"{one.sql} ({found.why})")
    _usable(plan, found)
    return found


def clauses_needed(
    plan: Plan, unit: Unit, one: Written, text: str, gold: list[Row], seed: int
) -> tuple[str, ...]:
    """The clauses that the question needs, so that no other reading of it fits. Raises `Refused`
    where none helps, and where a constant or a listing of everything is right."""
    focus = focus_of(plan, unit)
    tried = [unit.database, *twins(unit.database, focus, seed, range(TWINS))]
    golds = [gold, *(_rows(d, one.sql) for d in tried[1:])]
    _telling(golds, one)
    wide = twins(unit.database, focus, seed, range(TWINS, WIDE))
    tried += wide
    golds += [_rows(d, one.sql) for d in wide]
    if same := constants(golds):
        raise Refused(
            "a constant could stand for a column", f"{one.sql} ({sorted(map(str, same))})"
        )
    clauses = told_apart(one, text, tried, golds)
    _no_shortcut(plan, unit, one, tried, golds)
    return clauses


def _rows(database: Database, sql: str) -> list[Row]:
    found = run(database, sql)
    if isinstance(found, Failed):
        raise Refused("the query does not run on a twin", f"{sql} ({found.why})")
    return found


def _usable(plan: Plan, rows: Sequence[Row]) -> None:
    if not rows or len(rows) > MOST_ROWS:
        raise Refused("an empty result" if not rows else "too many rows")
    if any(cell is None for row in rows for cell in row):
        raise Refused("a missing value in the result")
    if plan.kind in ("top", "best_group") and len(rows) < plan.limit:
        raise Refused("fewer rows than are asked for")
    several = plan.kind in ("group", "having", "join", "date_part") or (
        plan.kind == "distinct" and not plan.limit
    )
    if several and len(rows) == 1:
        raise Refused("one group only")
    if plan.kind in ("group", "join", "date_part") and len({row[-1] for row in rows}) == 1:
        raise Refused("one figure for all groups")
    if rows[0] in ((0,), (1,)) or (plan.kind == "share" and rows[0] in ((100.0,), (0.0,))):
        raise Refused("a trivial result")


def agreed(
    plan: Plan, unit: Unit, found: list[Row], one: Written, second: Second, rows: int
) -> str:
    """The verdict where both ways give the same rows. Raises `Refused`."""
    try:
        again = values(plan, *frames(plan, unit, second, rows))
    except NotProvable as error:
        raise Refused(UNPROVABLE, str(error)) from None
    except (TypeError, ValueError, KeyError) as error:
        raise Refused(UNPROVABLE, f"{type(error).__name__}: {error}") from None
    if not equal(found, [tuple(map(_cell, row)) for row in again], one.ordered):
        raise Refused(DIFFERS, f"{one.sql} is {found[:3]}, by pandas {again[:3]}")
    return second.agreed(made.described for made in unit.made)


def frames(plan: Plan, unit: Unit, second: Second, rows: int) -> list[object]:
    """The tables of a plan as the second way reads them."""
    first, *rest = unit.made
    # by place, never by name: both tables may have a column of one name
    theirs = [f for f in (plan.theirs, plan.group if plan.kind == "join" else None) if f]
    whole = replace(plan, group=None) if rest else plan
    if plan.kind == "join_filter":
        theirs += [f.field for f in plan.filters]
        whole = replace(whole, filters=())
    mine = [*whole.columns, *([plan.mine] if plan.mine else [])]
    made: list[object] = [second.frame(first.described, mine, rows)]
    if rest:
        made.append(second.frame(rest[0].described, theirs, rows))
    return made


def _cell(value: object) -> Cell:
    """A value of pandas as SQLite would give it."""
    if value is None or isinstance(value, str):
        return value
    number = float(value)  # pyright: ignore[reportArgumentType]
    if math.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def _telling(golds: Sequence[list[Row]], one: Written) -> None:
    """The twins that score have results, and other ones than the data."""
    scored = golds[1 : TWINS + 1]
    if sum(bool(rows) for rows in scored) < TWINS - 1:
        raise Refused("empty on the twins")
    if any(equal(golds[0], rows, one.ordered) for rows in scored):
        raise Refused("the values do not matter")


def told_apart(
    one: Written, text: str, tried: Sequence[Database], golds: Sequence[list[Row]]
) -> tuple[str, ...]:
    """The clauses that say which reading is meant. Raises `Refused` where a reading differs, on the
    data or on a twin, and nothing in the question tells it from gold."""
    clauses: list[str] = []
    for other in one.others:
        if not differs(other, one, tried, golds):
            continue
        if other.said and other.said in text:
            continue
        if not other.clause:
            raise Refused(f"ambiguous: {other.label}", f"{text} ({other.sql})")
        clauses.append(other.clause)
    return tuple(dict.fromkeys(clauses))


def differs(
    other: Other, one: Written, tried: Sequence[Database], golds: Sequence[list[Row]]
) -> bool:
    """Whether another reading gives other rows anywhere."""
    for database, gold in zip(tried, golds, strict=True):
        rows = run(database, other.sql)
        if isinstance(rows, Failed) or not equal(gold, rows, one.ordered):
            return True
    return False


def _no_shortcut(
    plan: Plan, unit: Unit, one: Written, tried: Sequence[Database], golds: Sequence[list[Row]]
) -> None:
    """No listing of everything is right on data and twins alike, and every condition matters."""
    if plan.kind not in ("share", "absent"):
        for at in range(len(plan.filters)):
            left = replace(plan, filters=plan.filters[:at] + plan.filters[at + 1 :])
            if equal(golds[0], _rows(tried[0], written(left, unit).sql), one.ordered):
                raise Refused("a condition changes nothing")
    if plan.kind in ("top", "top_each", "best_group"):
        turned = written(replace(plan, down=not plan.down), unit)
        if equal(golds[0], _rows(tried[0], turned.sql), one.ordered):
            raise Refused("all that is ranked is equal")
    if plan.kind == "top" and plan.measure is not None:
        more = replace(plan, shown=(plan.measure,), limit=plan.limit + 1)
        if len({row[0] for row in _rows(tried[0], written(more, unit).sql)}) == 1:
            raise Refused("all that is ranked is equal")
    if plan.kind == "having":
        every = one.sql.partition(" HAVING ")[0]
        if equal(golds[0], _rows(tried[0], every), one.ordered):
            raise Refused("a condition changes nothing")
    for sql in _listings(unit, len(golds[0])):
        pairs = zip(tried[: TWINS + 1], golds, strict=False)
        if all(_right(database, sql, gold, one.ordered) for database, gold in pairs):
            raise Refused("listing everything is right", sql)


def _listings(unit: Unit, rows: int) -> Iterator[str]:
    """Queries that list everything, of those that can give so many rows."""
    for made in unit.made:
        table = quoted(made.table.name)
        if rows == 1:
            yield f"SELECT COUNT(*) FROM {table}"
        if rows == len(made.table.rows):
            yield f"SELECT * FROM {table}"
        for field in made.fields:
            column = quoted(field.name)
            if rows == len(made.table.rows):
                yield f"SELECT {column} FROM {table}"
            if rows == len(set(made.table.values(field.name))):
                yield f"SELECT DISTINCT {column} FROM {table}"


def _right(database: Database, sql: str, gold: list[Row], ordered: bool) -> bool:
    rows = run(database, sql)
    return not isinstance(rows, Failed) and equal(gold, rows, ordered)
