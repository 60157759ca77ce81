"""What `assay audit` is told of text-to-SQL: respellings of the query, twins over a database with
other rows and names, how a text is handed in, floors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from assay.family import Answer, Audit, Floor
from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rewards.sql.data import Database, packed, quoted, renamed
from rewards.sql.family import first_table, literal
from rewards.sql.hidden_databases import hidden_database
from rewards.sql.score import SqlReward, fenced, read_gold, score_sql

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
