"""The kinds of questions asked over the tables of a lake, and one drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from data_gen.queries import ops
from data_gen.queries.lake_steps import (
    GAP,
    NAMES_LEAST,
    PAIRED,
    WORDS,
    Builder,
    NoQuestion,
    decimals,
    enough,
    one_order,
)
from data_gen.queries.ops import Summary
from data_gen.queries.pipeline import Question
from data_gen.queries.tables import Links, Table, links_of

_MEANS: tuple[Summary, ...] = ("mean", "median", "total")
_LAST = ("last", "second to last", "third to last", "fourth to last")
_PLACES = {2: "second", 3: "third"}
_BARE = "Give the number without a percent sign."
_NAME = "Answer with the name only, as the file writes it."


def _rounding(digits: int) -> str:
    """How far the unrounded value is from where rounding turns, in units of the last digit."""
    return f"abs((raw * 10 ** {digits}) % 1 - 0.5)"


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


def _per_year(b: Builder, between: bool = False) -> tuple[str, str, Summary, Sequence[int]]:
    """(column of numbers, words, summary, two of the years if asked for), with the steps to one
    figure a year."""
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
    taken = f"Take the {WORDS[how]} of {b.the(number)} per {b.col(year)} in {b.where()}."
    return b.col(year), taken, how, years


def one_number(b: Builder) -> Question:
    """A mean, median, spread or total, rounded: numeric_exact."""
    b.load()
    number = b.number()
    if b.brings("group"):  # a column of another table to select rows by
        name = b.group(least=2)
        b.keep(name, b.rng.choice(list(b.sizes[name])))
    else:
        b.maybe_filter(0.9)
    how = b.summary(number, ("mean", "median", "std", "total", "total"))
    digits = _digits(b, number, how)
    words = f"the {WORDS[how]} of {b.the(number)}"
    return b.asked(
        ops.Figure(number, how, digits),
        f"Compute {words}, {decimals(digits)}",
        f"What is {words} in {b.where()}, {decimals(digits)}?",
        "numeric_exact",
        f"number {how}",
        _rounding(digits),
    )


def difference(b: Builder) -> Question:
    """How much two groups differ in the mean or median: numeric_exact."""
    b.load()
    number, by = b.number(), b.group()
    one, other = b.rng.sample(list(b.sizes[by]), 2)
    b.maybe_filter(0.4)
    how = b.summary(number, ("mean", "median"))
    digits = _digits(b, number, how)
    words = f"the {WORDS[how]} of {b.the(number)}"
    return b.asked(
        ops.Difference(by, one, other, number, how, digits),
        f"Subtract {words} for {other!r} from that for {one!r}",
        f"By how much does {words} where {b.the(by)} is {one!r} exceed that where it is {other!r} "
        f"in {b.where()}, {decimals(digits)} (negative if it is lower)?",
        "numeric_exact",
        f"difference {how}",
        f"{_rounding(digits)} if min(len(first), len(second)) > 1 else -1.0",
    )


def portion(b: Builder) -> Question:
    """The percentage of rows beyond a limit: numeric_exact."""
    b.load("number")
    link = b.brings("number")
    number = b.number()
    limits = (b.tables[link.other] if link else b.table).levels.get(number, ())
    if not limits:
        raise NoQuestion
    limit = b.rng.choice(list(limits))
    b.maybe_filter(0.8)
    high = b.rng.random() < 0.5
    digits = b.rng.choice((1, 1, 2))
    words = f"{b.the(number)} {'above' if high else 'below'} {limit:g}"
    return b.asked(
        ops.Portion(number, ">" if high else "<", limit, digits),
        f"Compute the percentage of rows with {words}, {decimals(digits)}",
        f"What percentage of the rows in {b.where()} have {words}, {decimals(digits)}?",
        "numeric_exact",
        "portion",
        f"{_rounding(digits)} if 1 < raw < 99 else 0.0",
        end=_BARE,
    )


def line(b: Builder) -> Question:
    """Slope, correlation or both of two measured columns: numeric_ or list_approximate."""
    b.load("number")
    second = b.number() if b.brought else ""
    first = b.number(taken=[second])
    second = second or b.number(taken=[first])
    b.maybe_filter()
    kind = b.rng.choice(("slope", "correlation", "both"))
    x, y = b.the(first), b.the(second)
    if kind == "correlation":
        return b.asked(
            ops.Correlate(first, second),
            f"Correlate {x} with {y}",
            f"What is the Pearson correlation of {x} and {y} in {b.where()}?",
            "numeric_approximate",
            kind,
            "abs(r) - 0.05 if abs(r) < 0.995 else 0.0",
            what="both numbers",
        )
    ask = "What are the slope and the intercept?" if kind == "both" else "What is the slope?"
    r = f'abs(t["{first}"].astype(float).corr(t["{second}"].astype(float)))'
    return b.asked(
        ops.Fit(first, second, kind == "both"),
        f"Fit {y} on {x} with an intercept by least squares",
        f"Regress {y} on {x} in {b.where()} by ordinary least squares. {ask}",
        "list_approximate" if kind == "both" else "numeric_approximate",
        f"fit {kind}",
        f"({r} - 0.05) if {r} < 0.995 else 0.0",
        what="both numbers",
        end="Answer with a list: slope, intercept." if kind == "both" else "",
    )


def between_years(b: Builder) -> Question:
    """A yearly series interpolated at a point between two years: numeric_approximate."""
    year, taken, how, _ = _per_year(b)
    share = b.rng.choice((0.25, 0.5, 0.75))
    at = b.rng.choice((1, 2, 3))
    return b.asked(
        ops.Interpolate(share, at),
        f"Interpolate linearly between the {_LAST[at]} and the {_LAST[at - 1]} {year}",
        f"{taken} What is it, linearly interpolated at {share:g} of the way from the {_LAST[at]} "
        f"to the {_LAST[at - 1]} {year}?",
        "numeric_approximate",
        f"between {how}",
        "abs(seen)",
    )


def change(b: Builder) -> Question:
    """By how many per cent a yearly figure changed between two years: numeric_exact."""
    _, taken, how, (one, other) = _per_year(b, between=True)
    digits = b.rng.choice((1, 1, 2))
    return b.asked(
        ops.Change(one, other, digits),
        f"Compute the change from {one} to {other} in per cent of the value of {one}",
        f"{taken} By what percentage of its former value did it change from {one} to {other}, "
        f"{decimals(digits)} (negative if it fell)?",
        "numeric_exact",
        f"change {how}",
        f"{_rounding(digits)} if 1 < abs(raw) < 1000 and g.loc[{one}] > 0 else 0.0",
        end=_BARE,
    )


def share(b: Builder) -> Question:
    """The percentage of a total that belongs to one group: numeric_exact."""
    b.load("group")
    number, name = b.number(amount=True), b.group(most=12, least=3)
    value = b.rng.choice(list(b.sizes[name]))
    b.maybe_filter(0.5)
    digits = b.rng.choice((1, 1, 2))
    total, rows = f"the total of {b.the(number)}", f"where {b.the(name)} is {value!r}"
    return b.asked(
        ops.Share(name, value, number, digits),
        f"Divide {total} {rows} by the whole total",
        f"What percentage of {total} in {b.where()} belongs to the rows {rows}, "
        f"{decimals(digits)}?",
        "numeric_exact",
        "share",
        f"{_rounding(digits)} if 1 < raw < 99 and len(part) > 1 else -1.0",
        end=_BARE,
    )


def above_own(b: Builder) -> Question:
    """How many rows lie above the mean of their own group: numeric_exact."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    return b.asked(
        ops.AboveOwn(name, number),
        f"Count the rows above the mean of {b.the(number)} of their own {b.the(name)}",
        f"How many of the rows in {b.where()} have a value of {b.the(number)} above the mean of "
        f"{b.the(number)} over those of these rows that have the same {b.col(name)}?",
        "numeric_exact",
        "above own",
        # a row at its mean but for the last bit could be counted in one way and not in the other
        f'1.0 if (t["{number}"] - line).abs().min() > 1e-9 * line.abs().max() else 0.0',
    )


def spread(b: Builder) -> Question:
    """How far the highest group is from the lowest: numeric_exact."""
    number, name, how = _per_group(b, least=3)
    digits = _digits(b, number, how)
    return b.asked(
        ops.Spread(digits),
        "Subtract the lowest value of all groups from the highest",
        f"Take the {WORDS[how]} of {b.the(number)} for each {b.col(name)} in {b.where()}. By how "
        f"much does the highest of them exceed the lowest, {decimals(digits)}?",
        "numeric_exact",
        f"spread {how}",
        _rounding(digits),
    )


def count_groups(b: Builder) -> Question:
    """How many groups lie above the overall mean: numeric_exact."""
    number, name, how = _per_group(b)
    return b.asked(
        ops.Above(),
        "Count the groups above the mean of all groups",
        f"For how many values of {b.the(name)} in {b.where()} is the {WORDS[how]} of "
        f"{b.the(number)} above the mean of these per-value figures?",
        "numeric_exact",
        f"above {how}",
        "float((g - line).abs().min() / max(abs(line), 1e-9))",
    )


def best_group(b: Builder) -> Question:
    """The group with the highest or lowest summary: string_exact."""
    number, name, how = _per_group(b)
    high = b.rng.random() < 0.6
    order = "highest" if high else "lowest"
    return b.asked(
        ops.Best(high),
        f"Sort and take the name with the {order} value",
        f"Which {b.col(name)} has the {order} {WORDS[how]} of {b.the(number)} in {b.where()}?",
        "string_exact",
        f"best {how}",
        GAP.format(k=1),
        end=_NAME,
    )


def nth_group(b: Builder) -> Question:
    """The group with the second or third highest or lowest summary: string_exact."""
    number, name, how = _per_group(b)
    place = b.rng.choice((2, 3))
    high = b.rng.random() < 0.6
    order = f"{_PLACES[place]} {'highest' if high else 'lowest'}"
    return b.asked(
        ops.Nth(place, high),
        f"Sort and take the name with the {order} value",
        f"Which {b.col(name)} has the {order} {WORDS[how]} of {b.the(number)} in {b.where()}?",
        "string_exact",
        f"nth {how}",
        f"min({', '.join(GAP.format(k=k) for k in range(1, place + 1))})",  # no tie above it
        end=_NAME,
    )


def top_groups(b: Builder) -> Question:
    """The k best groups: list_exact."""
    number, name, how = _per_group(b)
    size = len(b.sizes[name])
    k = b.rng.choice([k for k in (2, 3, 3, 4, 5) if enough(size, k)] or [2])
    high = b.rng.random() < 0.7
    order = "highest" if high else "lowest"
    return b.asked(
        ops.Top(k, high),
        f"Sort and take the {k} names with the {order} values",
        f"Which {k} values of {b.the(name)} have the {order} {WORDS[how]} of {b.the(number)} in "
        f"{b.where()}?",
        "list_exact",
        f"top {how}",
        GAP.format(k=k),
        end="Answer with a list of names, as the file writes them.",
    )


def group_values(b: Builder) -> Question:
    """One summary per group in alphabetical order: list_approximate."""
    number, name, how = _per_group(b, most=10, least=3, years=False)
    if not one_order(b.sizes[name]):
        raise NoQuestion
    words = f"the {WORDS[how]} of {b.the(number)}"
    return b.asked(
        ops.Each(),
        f"List {words} in alphabetical order of {b.the(name)}",
        f"What is {words} for each {b.col(name)} in {b.where()}? List them in alphabetical order "
        f"of {b.the(name)}.",
        "list_approximate",
        f"each {how}",
        end="Answer with a list of numbers.",
    )


def pair(b: Builder) -> Question:
    """The pair of two groups with the highest summary: string_approximate."""
    b.load()
    number, first = b.number(), b.group()
    second = b.year() if b.table.years and b.rng.random() < 0.6 else b.group()
    if any("," in value for name in (first, second) for value in b.sizes[name]):
        raise NoQuestion  # a comma parts the two
    b.maybe_filter(0.4)
    how = b.summary(number, _MEANS)
    b.grouped([first, second], number, how)
    high = b.rng.random() < 0.7
    order = "highest" if high else "lowest"
    return b.asked(
        ops.Best(high),
        f"Sort and take the pair with the {order} value",
        f"Which pair of {b.the(first)} and {b.the(second)} has the {order} {WORDS[how]} of "
        f"{b.the(number)} in {b.where()}?",
        "string_approximate",
        f"pair {how}",
        PAIRED.format(gap=GAP.format(k=1)),
        end="Answer with both, in this order, separated by a comma.",
    )


# kinds of questions; a new kind adds one function and one entry
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
