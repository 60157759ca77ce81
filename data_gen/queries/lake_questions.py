"""The kinds of questions asked over the tables of a lake, one drawn from a seed; and those that an
endpoint rewords: what each must keep, and the tasks with their words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

from assay.console import Progress
from assay.seeds import derive_seed
from assay.task import Task
from data_gen.queries import ops
from data_gen.queries.lake_steps import NAMES_LEAST, SIGNS, Builder, NoQuestion, enough, one_order
from data_gen.queries.ops import Op, Sign, Summary, sources_of
from data_gen.queries.pipeline import Question
from data_gen.queries.tables import Links, Table, links_of
from data_gen.rewording import Endpoint, Facts, job_of, report, reword_all

_MEANS: tuple[Summary, ...] = ("mean", "median", "total")


def _digits(b: Builder, number: str, how: Summary) -> int:
    """Digits that the answer can have."""
    whole = any(number in t.whole for t in b.tables if number in t.numbers)
    if whole and how in ("total", "median"):
        return 0 if how == "total" else 1
    return b.rng.choice((1, 2, 2, 3))


def _per_group(
    b: Builder, most: int = 60, least: int = NAMES_LEAST, years: bool = True
) -> tuple[str, str, Summary]:
    """(column of numbers, column of groups, summary), with the steps to one figure a group."""
    b.load()
    number, group = b.number(), b.group(most, least, years)
    b.maybe_filter()
    how = b.summary(number, _MEANS)
    b.grouped([group], number, how)
    return number, group, how


def _per_year(b: Builder, between: bool = False) -> Sequence[int]:
    """The steps to one figure a year; two of the years if asked for."""
    b.load("number")
    number, year = b.number(), b.year()
    span = list(b.table.spans[year])
    if between and len(span) < 4:
        raise NoQuestion
    years = sorted(b.rng.sample(span, 2)) if between else []
    b.maybe_filter()
    how = b.summary(number, _MEANS)
    if year in b.table.single_years and not b.said:
        raise NoQuestion  # a summary of one row a year
    b.grouped([year], number, how)
    return years


def one_number(b: Builder) -> Question:
    """A mean, median, spread or total, rounded."""
    b.load()
    number = b.number()
    if b.brings("group"):  # a column of another table to select rows by
        name = b.group(least=2)
        b.keep(name, b.rng.choice(list(b.sizes[name])))
    else:
        b.maybe_filter(0.9)
    how = b.summary(number, ("mean", "median", "std", "total", "total"))
    return b.asked("one_number", ops.Figure(number, how, _digits(b, number, how)))


def difference(b: Builder) -> Question:
    """How much two groups differ in the mean or median."""
    b.load()
    number, by = b.number(), b.group()
    one, other = b.rng.sample(list(b.sizes[by]), 2)
    b.maybe_filter(0.4)
    how = b.summary(number, ("mean", "median"))
    digits = _digits(b, number, how)
    return b.asked("difference", ops.Difference(by, one, other, number, how, digits))


def portion(b: Builder) -> Question:
    """The percentage of rows beyond a limit."""
    b.load("number")
    link = b.brings("number")
    number = b.number()
    limits = (b.tables[link.other] if link else b.table).levels.get(number, ())
    if not limits:
        raise NoQuestion
    limit = b.rng.choice(list(limits))
    b.maybe_filter(0.8)
    sign: Sign = ">" if b.rng.random() < 0.5 else "<"
    return b.asked("portion", ops.Portion(number, sign, limit, b.rng.choice((1, 1, 2))))


def line(b: Builder) -> Question:
    """Slope, correlation or both of two measured columns."""
    b.load("number")
    second = b.number() if b.brought else ""
    first = b.number(taken=[second])
    second = second or b.number(taken=[first])
    b.maybe_filter()
    kind = b.rng.choice(("slope", "correlation", "both"))
    if kind == "correlation":
        return b.asked(kind, ops.Correlate(first, second))
    return b.asked(kind, ops.Fit(first, second, kind == "both"))


def between_years(b: Builder) -> Question:
    """A yearly series interpolated at a point between two years."""
    _per_year(b)
    share = b.rng.choice((0.25, 0.5, 0.75))
    return b.asked("between_years", ops.Interpolate(share, b.rng.choice((1, 2, 3))))


def change(b: Builder) -> Question:
    """By how many per cent a yearly figure changed between two years."""
    one, other = _per_year(b, between=True)
    return b.asked("change", ops.Change(one, other, b.rng.choice((1, 1, 2))))


def share(b: Builder) -> Question:
    """The percentage of a total that belongs to one group."""
    b.load("group")
    number, name = b.number(amount=True), b.group(most=12, least=3)
    value = b.rng.choice(list(b.sizes[name]))
    b.maybe_filter(0.5)
    return b.asked("share", ops.Share(name, value, number, b.rng.choice((1, 1, 2))))


def above_own(b: Builder) -> Question:
    """How many rows lie above the mean of their own group."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    return b.asked("above_own", ops.AboveOwn(name, number))


def spread(b: Builder) -> Question:
    """How far the highest group is from the lowest."""
    number, _, how = _per_group(b, least=3)
    return b.asked("spread", ops.Spread(_digits(b, number, how)))


def count_groups(b: Builder) -> Question:
    """How many groups lie above the overall mean."""
    _per_group(b)
    return b.asked("count_groups", ops.Above())


def best_group(b: Builder) -> Question:
    """The group with the highest or lowest summary."""
    _per_group(b)
    return b.asked("best_group", ops.Best(b.rng.random() < 0.6))


def nth_group(b: Builder) -> Question:
    """The group with the second or third highest or lowest summary."""
    _per_group(b)
    return b.asked("nth_group", ops.Nth(b.rng.choice((2, 3)), b.rng.random() < 0.6))


def top_groups(b: Builder) -> Question:
    """The k best groups."""
    _, name, _ = _per_group(b)
    size = len(b.sizes[name])
    k = b.rng.choice([k for k in (2, 3, 3, 4, 5) if enough(size, k)] or [2])
    return b.asked("top_groups", ops.Top(k, b.rng.random() < 0.7))


def group_values(b: Builder) -> Question:
    """One summary per group in alphabetical order."""
    _, name, _ = _per_group(b, most=10, least=3, years=False)
    if not one_order(b.sizes[name]):
        raise NoQuestion
    return b.asked("group_values", ops.Each())


def pair(b: Builder) -> Question:
    """The pair of two groups with the highest summary."""
    b.load()
    number, first = b.number(), b.group()
    second = b.year() if b.table.years and b.rng.random() < 0.6 else b.group()
    if any("," in value for name in (first, second) for value in b.sizes[name]):
        raise NoQuestion  # a comma parts the two
    b.maybe_filter(0.4)
    b.grouped([first, second], number, b.summary(number, _MEANS))
    return b.asked("pair", ops.Best(b.rng.random() < 0.7))


# kinds of questions; a new kind adds one function, one entry, and its words in
# `lake_questions.yaml`
KINDS: dict[str, Callable[[Builder], Question]] = {
    ask.__name__: ask
    for ask in (
        *(one_number, difference, portion, count_groups, best_group, top_groups, group_values),
        *(line, between_years, pair, share, spread, change, above_own, nth_group),
    )
}
_LINKED = 0.75  # of the draws are about a table that shares a key with another, where there is one


def question_for(
    tables: Sequence[Table], kind: str, seed: int, links: Links | None = None
) -> Question:
    """One question of a kind. Raises `NoQuestion` where the drawn table does not fit."""
    rng = Random(seed)
    links = links_of(tables) if links is None else links
    linked = [place for place, own in enumerate(links) if own]
    chosen = linked if linked and rng.random() < _LINKED else range(len(tables))
    place = rng.choice(chosen)
    try:
        return KINDS[kind](Builder(rng, tables[place], tables, links[place]))
    except NoQuestion as error:
        error.tables = (tables[place].key,)
        raise


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
