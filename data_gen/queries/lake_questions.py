"""The kinds of questions asked over the tables of a lake, and one drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from data_gen.queries import ops
from data_gen.queries.lake_steps import (
    NAMES_LEAST,
    Builder,
    NoQuestion,
    enough,
    one_order,
)
from data_gen.queries.ops import Sign, Summary
from data_gen.queries.pipeline import Question
from data_gen.queries.tables import Links, Table, links_of

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
