"""Queries that a model might write, for fuzzing: real gold over a small database."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.fuzz_read import Read, scored
from rewards.sql.data import Column, Database, Table, packed
from rewards.sql.score import SqlReward, score_query

_QUERIES = (
    ("SELECT COUNT(*) FROM cars WHERE price >= 40", False),
    ("SELECT maker, AVG(price) FROM cars GROUP BY maker", False),
    ("SELECT name FROM cars WHERE price IS NOT NULL ORDER BY price DESC, name LIMIT 3", True),
)


@cache
def _database() -> str:
    rows = tuple((f"car {i}", f"m{i * 7 % 4}", None if i % 9 == 8 else i * 2.5) for i in range(40))
    columns = (
        Column("name", "TEXT", required=True, unique=True),
        Column("maker", "TEXT"),
        Column("price", "REAL"),
    )
    return packed(Database((Table("cars", columns, rows),)))


def _task(pick: int) -> dict[str, Any]:
    sql, ordered = _QUERIES[pick % len(_QUERIES)]
    return {"sql": sql, "database": _database(), "ordered": ordered, "focus": []}


def sql_gold(pick: int) -> str:
    return f"```sql\n{_task(pick)['sql']}\n```"


def sql_read(pick: int, text: str) -> Read:
    """A whole output; every second one stands in a block, so that more of them are run."""
    gold = _task(pick)
    said = f"```sql\n{text}\n```" if pick % 2 else text
    right = score_query(gold, sql_gold(pick), False, SqlReward())
    return scored(score_query(gold, said, pick % 17 == 16, SqlReward()), right)
