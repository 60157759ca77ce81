"""Where a query leaves gold: the two queries side by side, and how their results differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from assay.task import Answer, Task
from rewards.sql.data import Row
from rewards.sql.run import Failed, RunnerLost, run
from rewards.sql.score import Gold, case_of, count_hidden, equal, extract, read_gold, right_on
from train.view.explain import Explanation, Finding, Work, align, plain_spine

_SHOWN = 200  # characters of a row


def explain(task: Task, answer: Answer) -> Explanation:
    """Gold's query against the answer's, and the rows that are missing or too many. Never raises
    on what a model wrote."""
    gold = read_gold(task.gold)
    work = Work("", gold.sql, unknown="A query has no steps that could be named.")
    said = extract(answer.text)
    text = said.sql or answer.text
    segments = align(plain_spine("", gold.sql), "", gold.sql, text)
    why = _said(gold, said.sql) if said.sql else f"No query: {said.why}."
    return Explanation(work, Finding(text, "", segments, said=why))


def _said(gold: Gold, sql: str) -> str:
    try:
        case = case_of(gold, None)
        rows = run(case.database, sql)
        if isinstance(rows, Failed):
            return f"The query returns nothing ({rows.error}): {rows.why}."
        if not equal(case.rows, rows, gold.ordered, known=case.database.stored):
            return _differing(case.rows, rows, gold.ordered)
        for number in range(count_hidden(gold)):
            if not right_on(case_of(gold, number), sql, gold.ordered):
                return (
                    "The result is right on this database and wrong on another of the same schema: "
                    "the query is right by chance, or its result is written down."
                )
    except RunnerLost as lost:
        return f"The queries could not be run: {lost}."
    return "The query is right on this database and on its twins."


def _differing(gold: Sequence[Row], said: Sequence[Row], ordered: bool) -> str:
    if gold and said and len(gold[0]) != len(said[0]):
        return f"The result has {len(said[0])} columns, gold has {len(gold[0])}."
    if ordered and equal(gold, said, False):
        return "The rows are right and their order is not."
    missing, extra = Counter(gold) - Counter(said), Counter(said) - Counter(gold)
    words = [f"{len(said)} rows, gold has {len(gold)}"]
    for name, rows in (("missing", missing), ("too many", extra)):
        if rows:
            first = str(next(iter(rows)))[:_SHOWN]
            words.append(f"{rows.total()} {name}, such as {first}")
    return "; ".join(words) + "."
