"""Text-to-SQL tasks over a small database made here."""

from __future__ import annotations

from random import Random
from typing import Any

from places import tables

from assay.task import Task
from rewards.sql.data import Column, Database, Table, packed


def cars(rows: int = 120) -> Database:
    """One table of cars and one of their makers; some prices are missing."""
    rng = Random(4)
    makers = tuple((f"maker {i}", rng.choice(("north", "south", "east"))) for i in range(8))

    def car(i: int) -> tuple[Any, ...]:
        maker = rng.choice(makers)[0]
        price = None if rng.random() < 0.1 else round(rng.uniform(5, 90), 1)
        return f"car {i}", maker, price, rng.randint(1, 60)

    cells = tuple(map(car, range(rows)))
    named = (Column("maker", "TEXT", True, True), Column("region", "TEXT", True))
    columns = (
        Column("name", "TEXT", True, True),
        Column("maker", "TEXT", True, refers=("makers", "maker")),
        Column("price", "REAL"),
        Column("stock", "INTEGER", True),
    )
    return Database((Table("makers", named, makers), Table("cars", columns, cells)))


QUERIES: dict[str, tuple[str, list[Any]]] = tables("sql_queries")


def sql_task(name: str = "count", **gold: Any) -> Task:
    sql, focus = QUERIES[name]
    made = {
        "sql": sql,
        "ordered": "ORDER BY" in sql,
        "database": packed(cars()),
        "focus": focus,
        "seed": 5,
    }
    asked = [{"role": "user", "content": f"cars and makers: {name} of price, stock, region?"}]
    return Task(f"sql-{name}", "sql", f"sql-{name}", "train", asked, {**made, **gold})


def sql_tasks() -> list[Task]:
    return [sql_task(name) for name in QUERIES]
