"""Text-to-SQL: one query of SQLite for a question, scored by what it returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random

from assay.family import SOURCE, Answer, Audit, Cheat, Family, Floor
from assay.fingerprints import TableMarks, marks_of_frame
from assay.task import Task, TaskError, derive_seed
from rewards.sql.data import Cell, Database, hidden_database, packed, quoted, renamed, unpacked
from rewards.sql.run import RunnerLost
from rewards.sql.score import case_of, fenced, read_gold, score_sql
from rewards.weights import SqlReward


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


# ---- what the audit is told
# What `assay audit` is told of text-to-SQL: respellings of the query, twins over a database with
# other rows and names, how a text is handed in, floors.


_NAME = re.compile(r"'(?:[^']|'')*'|\"((?:[^\"]|\"\")*)\"|\b[A-Za-z_]\w*\b")


def _exchanged(sql: str, names: Mapping[str, str]) -> str:
    """A query with other names of tables and columns; texts in it stay as they are."""

    def one(found: re.Match[str]) -> str:
        word = found.group(0)
        if word.startswith("'"):
            return word
        inner = found.group(1)
        name = inner.replace('""', '"') if inner is not None else word
        return quoted(names[name]) if name in names else word

    return _NAME.sub(one, sql)


def query_twin(task: Task, seed: int) -> Task | None:
    """Ask the same question over a twin of the database whose tables and columns have other
    names: neither a remembered result nor a remembered query is right there. None for gold that
    cannot be read."""
    try:
        gold = read_gold(task.gold)
        base: Database = hidden_database(gold.database, gold.focus, derive_seed(seed, task.id), 0)
    except TaskError:
        return None
    rng = Random(derive_seed(seed, "sql-names", task.id))
    old = [n for t in base.tables for n in (t.name, *(c.name for c in t.columns))]
    names = {name: f"{name}_{rng.randrange(10, 99)}" for name in dict.fromkeys(old)}
    focus = [[names[t], names[c], v] for t, c, v in gold.focus if t in names and c in names]
    changed = {
        **task.gold,
        "sql": _exchanged(gold.sql, names),
        "database": packed(renamed(base, names)),
        "focus": focus,
        "result": None,
    }
    prompt = [{**m, "content": _exchanged_text(m["content"], names)} for m in task.prompt]
    meta = {**task.meta, "plain": task.id}
    return replace(task, id=f"{task.id}-twin", gold=changed, prompt=prompt, files={}, meta=meta)


def _exchanged_text(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: names.get(m.group(0), m.group(0)), text)


def spellings(task: Task) -> dict[str, str]:
    """Hand in the gold query in other frames and forms."""
    sql = str(task.gold.get("sql") or "")
    return {
        "with a semicolon": fenced(f"{sql};"),
        "no label": f"```\n{sql}\n```",
        "SQLITE as label": f"```SQLite\n{sql}\n```",
        "after another block": f"First:\n```sql\nSELECT 1\n```\nBetter:\n{fenced(sql)}",
        "chatter around": f"The query follows.\n\n{fenced(sql)}\n\nIt answers the question.",
        "a comment inside": fenced(f"-- the answer\n{sql}"),
        "as a subquery": fenced(f"SELECT * FROM ({sql})"),
        "in a CTE": fenced(f"WITH answer AS ({sql}) SELECT * FROM answer"),
        "one line": fenced(" ".join(sql.split())),
        "no block": sql,
    }


def benchmark(task: Task, answer: Answer) -> float | None:
    """Compute the outcome with values compared exactly, as Spider's own script does."""
    score = score_sql(task, answer, SqlReward())
    return None if score.outcome is None else score.parts["published"]


SQL_AUDIT = Audit(
    floors={"": Floor(outcome=0.05, reward=0.05, beyond=0.05)},
    forms={
        "query": lambda task, text: fenced(text),
        "number": lambda task, text: fenced(f"SELECT {text}"),
        "text": lambda task, text: fenced(f"SELECT {literal(text[:1000])}"),
        "column": lambda task, text: fenced(
            f"SELECT {quoted(text[:100])} FROM {first_table(task)}"
        ),
    },
    twin=query_twin,
    spellings=spellings,
    benchmark=benchmark,
)
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
    audit=SQL_AUDIT,
)
