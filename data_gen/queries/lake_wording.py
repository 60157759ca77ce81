"""Lake questions reworded by an endpoint: what each must keep, and the tasks with their words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from assay.console import Progress
from assay.seeds import derive_seed
from assay.task import Task
from data_gen.queries import ops
from data_gen.queries.lake_steps import SIGNS
from data_gen.queries.ops import Op, sources_of
from data_gen.queries.pipeline import Question
from data_gen.queries.tables import Table
from data_gen.rewording import Endpoint, Facts, job_of, report, reword_all

# sentences that say how to count and how to answer
_FIXED = re.compile(
    r"(?:Skip rows|Some cells hold|Consider only|Answer with|List them|Give the number)"
    r".*?\.(?= [A-Z]|$)"
)
_PHRASES = re.compile(
    r"rounded to (?:a whole number|\d+ decimals?)|\(negative if it is lower\)"
    r"|(?:before|after) the last comma|in brackets at the end|per-value figures"
    r"|[\d.]+ of the way from the [a-z ]+ to the [a-z ]*last|linearly interpolated"
    r"|(?:second|third) (?:highest|lowest)|percentage of its former value|\(negative if it fell\)"
    r"|percentage of the total|highest of them exceed the lowest"
    r"|over those of these rows that have the same"
    r"|by ordinary least squares|Pearson correlation|standard deviation \(n - 1\)"
)


def facts_of(question: Question, tables: Sequence[Table], answer: Any) -> Facts:
    """What a rewording of the question must keep, from its typed steps."""
    steps = question.ops or ()
    said = [words for t in tables for words in (t.about.title, *t.about.columns.values()) if words]
    literals = [*_FIXED.findall(question.text), *_PHRASES.findall(question.text)]
    literals += [source.path for source in sources_of(steps)] + [f"({words})" for words in said]
    together = [pair for op in steps if (pair := _together(op))]
    in_order = [pair for op in steps if (pair := _in_order(op, steps))]
    answers: list[Any] = cast("list[Any]", answer) if isinstance(answer, list) else [answer]
    return Facts(
        tuple(dict.fromkeys(part for part in literals if part in question.text)),
        tuple(together),
        tuple(in_order),
        tuple(a if isinstance(a, str) else repr(a) for a in answers),
    )


def _together(op: Op) -> tuple[str, ...]:
    match op:
        case ops.Keep(column, value):
            return (f"'{column}'", repr(value))
        case ops.Limit(column, sign, limit):
            return (f"'{column}'", SIGNS[sign], f"{limit:g}")
        case ops.Portion(column, sign, limit):
            return (f"'{column}'", SIGNS[sign], f"{limit:g}")
        case ops.Share(by, value):
            return (f"'{by}'", repr(value))
        case _:
            return ()


def _in_order(op: Op, steps: Sequence[Op]) -> tuple[str, ...]:
    """What would ask something else the other way round."""
    match op:
        case ops.Difference(_, one, other):
            return (repr(one), repr(other))
        case ops.Change(one, other):
            return (str(one), str(other))
        case ops.Fit(x, y):
            return (f"'{y}'", f"'{x}'")
        case ops.Best():
            keys = next((o.keys for o in steps if isinstance(o, ops.Group)), ())
            cut = {o.into: o.column for o in steps if isinstance(o, ops.Split)}
            named = tuple(f"'{cut.get(k, k)}'" for k in keys)
            return named if len(named) > 1 else ()
        case ops.Interpolate():
            return ()  # its phrase stands among the literals
        case _:
            return ()


def reworded_tasks(
    parts: Mapping[str, Sequence[Task]], facts: Mapping[str, Facts], writer: Endpoint, seed: int
) -> tuple[dict[str, list[Task]], dict[str, Any]]:
    """(the tasks of each part with their accepted rewordings, what became of all). Raises
    `TaskError` when the endpoint cannot be had."""
    tasks = [task for part in parts.values() for task in part]
    jobs = [job_of(_asked(t), facts[t.id], derive_seed(seed, "rewording", t.id)) for t in tasks]
    with Progress("rewordings", "questions", len(jobs)) as bar:
        found = reword_all(jobs, writer, bar.add)
    said = {task.id: one for task, one in zip(tasks, found, strict=True)}
    made = {
        name: [_with(task, said[task.id].text) for task in part] for name, part in parts.items()
    }
    return made, {"model": writer.model, **report(said)}


def _asked(task: Task) -> str:
    return str(task.prompt[-1]["content"])


def _with(task: Task, text: str) -> Task:
    """The task in other words; `meta.template` keeps the builder's own."""
    if text == _asked(task):
        return task
    prompt = [*task.prompt[:-1], {**task.prompt[-1], "content": text}]
    return replace(task, prompt=prompt, meta={**task.meta, "template": _asked(task)})
