"""Text-to-SQL: one query of SQLite for a question, scored by what it returns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from assay.family import SOURCE, Cheat, Family
from assay.fingerprints import TableMarks, marks_of_frame
from assay.task import Task
from rewards.sql.compare import Cell
from rewards.sql.data import quoted, unpacked
from rewards.sql.run import RunnerLost
from rewards.sql.score import SqlReward, case_of, fenced, read_gold, score_sql


def first_table(task: Task) -> str:
    """Return the name of the first table of a task's database, as SQL writes it."""
    return quoted(read_gold(task.gold).database.tables[0].name)


def literal(cell: Cell) -> str:
    """Write a value as SQL does."""
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    if isinstance(cell, str):
        return "'" + cell.replace("'", "''") + "'"
    return {"inf": "9e999", "-inf": "-9e999"}.get(repr(cell), repr(cell))


def hard_coded(task: Task) -> str:
    """Write gold's rows down as a query: right on the task's database, wrong on its twins."""
    try:
        rows = case_of(read_gold(task.gold), None).rows[:40]
    except RunnerLost:
        return fenced("SELECT 1")
    said = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    return fenced(f"VALUES {said}" if rows else "SELECT 1 WHERE 0")


def constant_column(task: Task) -> str:
    """Gold with one value of its result in place of the first column: a query that computes all but
    that column. Right on the task's database where the column holds one value, and on no twin."""
    gold = read_gold(task.gold)
    try:
        rows = case_of(gold, None).rows
    except RunnerLost:
        return fenced("SELECT 1")
    if not rows:
        return fenced(f"SELECT * FROM ({gold.sql}) WHERE 0")
    names = [f"c{at}" for at in range(len(rows[0]))]
    said = ", ".join([literal(rows[0][0]), *names[1:]])
    return fenced(f"WITH gold({', '.join(names)}) AS ({gold.sql}) SELECT {said} FROM gold")


def _slices(task: Task) -> dict[str, str]:
    source = task.meta.get("database") or task.meta.get("source") or task.id
    # splits are drawn by the tables of the question; a folder holds many
    found = {"track": task.track, SOURCE: str(source)}
    for name in ("kind", "tables_asked", "difficulty"):
        value = task.meta.get(name)
        if isinstance(value, str) and value:
            found[name.replace("_", " ")] = value
    return found


def _content(task: Task) -> Iterable[str | TableMarks]:
    """The question, what its builder noted of the tables, and the tables themselves."""
    asked = [str(m.get("content") or "") for m in task.prompt if m.get("role") == "user"]
    noted: list[str] = task.meta.get("tables") or []
    carried = task.gold.get("database")
    return [*asked, *map(str, noted), *(marks_of(carried) if isinstance(carried, str) else ())]


@lru_cache(maxsize=256)
def marks_of(database: str) -> tuple[TableMarks, ...]:
    """Compute the marks of the tables of a packed database (`assay.fingerprints`). Raises
    `TaskError`."""
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

    found = [
        marks_of_frame(pd.DataFrame(t.rows, columns=[c.name for c in t.columns]))
        for t in unpacked(database).tables
    ]
    return tuple(marks for marks in found if marks)


SQL = Family(
    name="sql",
    score=score_sql,
    gold=lambda task: fenced(str(task.gold.get("sql") or "")),
    weights=SqlReward,
    cheats={
        "everything": Cheat(lambda task: fenced(f"SELECT * FROM {first_table(task)}"), admits=0.05),
        "count of rows": Cheat(
            lambda task: fenced(f"SELECT COUNT(*) FROM {first_table(task)}"), admits=0.05
        ),
        "gold's rows written down": Cheat(hard_coded, admits=1.0),
        "a constant in place of a column": Cheat(constant_column, admits=1.0),
    },
    slices=_slices,
    content=_content,
    audit="rewards.sql.audit:SQL_AUDIT",
)
