"""The kinds of questions asked over the tables of a lake, and one drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from data_gen.queries.lake_steps import (
    GAP,
    NAMES_LEAST,
    PAIRED,
    PLACES,
    WORDS,
    Builder,
    NoQuestion,
    decimals,
    enough,
    grouped,
    one_order,
)
from data_gen.queries.links import Links, links_of
from data_gen.queries.ops import (
    Above,
    AboveOwn,
    Best,
    Change,
    Correlate,
    Difference,
    Each,
    Figure,
    Fit,
    Interpolate,
    Nth,
    Portion,
    Share,
    Spread,
    Summary,
    Top,
)
from data_gen.queries.pipeline import Question
from data_gen.queries.tables import Table

_ORDINALS = ("last", "second to last", "third to last", "fourth to last")


def rounding(digits: int) -> str:
    """How far the unrounded value is from where rounding turns, in units of the last digit."""
    return f"abs((raw * 10 ** {digits}) % 1 - 0.5)"


def digits_of(b: Builder, number: str, how: Summary) -> int:
    """Digits that the answer can have."""
    whole = any(number in t.whole for t in (b.table, *b.tables) if number in t.numbers)
    if whole and how in ("total", "median"):
        return 0 if how == "total" else 1
    return b.rng.choice((1, 2, 2, 3))


def one_number(b: Builder) -> Question:
    """A mean, median, spread or total, rounded: numeric_exact."""
    b.load()
    b.maybe_join()
    number = b.number()
    if b.brings("group"):  # a column of another table to select rows by
        name = b.group(least=2)
        b.keep(name, b.rng.choice(list(b.sizes[name])))
    else:
        b.maybe_filter(0.9)
    how = b.summary(number, ("mean", "median", "std", "total", "total"))
    digits = digits_of(b, number, how)
    text = f"What is the {WORDS[how]} of {b.the(number)} in {b.where()}, {decimals(digits)}?"
    b.add(
        Figure(number, how, digits),
        f"Compute the {WORDS[how]} of {b.the(number)}, {decimals(digits)}",
        text,
        "numeric_exact",
    )
    return b.asked(f"{text} {b.skips()}", f"number {how}", rounding(digits))


def difference(b: Builder) -> Question:
    """How much two groups differ in the mean or median: numeric_exact."""
    b.load()
    b.maybe_join()
    number, by = b.number(), b.group()
    one, other = b.rng.sample(list(b.sizes[by]), 2)
    b.maybe_filter(0.4)
    how = b.summary(number, ("mean", "median"))
    digits = digits_of(b, number, how)
    text = (
        f"By how much does the {WORDS[how]} of {b.the(number)} where {b.the(by)} is {one!r} exceed "
        f"that where it is {other!r} in {b.where()}, {decimals(digits)} (negative if it is lower)?"
    )
    b.add(
        Difference(by, one, other, number, how, digits),
        f"Subtract the {WORDS[how]} of {b.the(number)} for {other!r} from that for {one!r}",
        text,
        "numeric_exact",
    )
    margin = f"{rounding(digits)} if min(len(first), len(second)) > 1 else -1.0"
    return b.asked(f"{text} {b.skips()}", f"difference {how}", margin)


def portion(b: Builder) -> Question:
    """The percentage of rows beyond a limit: numeric_exact."""
    b.load()
    b.maybe_join("number")
    if link := b.brings("number"):
        limits = list(b.tables[link.other].levels.get(link.brings, ()))
        number = b.number()
    else:
        number = b.number()
        limits = list(b.table.levels[number])
    if not limits:
        raise NoQuestion
    limit = b.rng.choice(limits)
    b.maybe_filter(0.8)
    high = b.rng.random() < 0.5
    digits = b.rng.choice((1, 1, 2))
    words = f"{b.the(number)} {'above' if high else 'below'} {limit:g}"
    text = f"What percentage of the rows in {b.where()} have {words}, {decimals(digits)}?"
    b.add(
        Portion(number, ">" if high else "<", limit, digits),
        f"Compute the percentage of rows with {words}, {decimals(digits)}",
        text,
        "numeric_exact",
    )
    return b.asked(
        f"{text} {b.skips()} Give the number without a percent sign.",
        "portion",
        f"{rounding(digits)} if 1 < raw < 99 else 0.0",
    )


def line(b: Builder) -> Question:
    """Slope, correlation or both of two measured columns: numeric_ or list_approximate."""
    b.load()
    b.maybe_join("number")
    second = b.number() if b.brought else ""
    first = b.number(taken=[second])
    second = second or b.number(taken=[first])
    b.maybe_filter()
    kind = b.rng.choice(("slope", "correlation", "both"))
    both = "both numbers"
    if kind == "correlation":
        text = f"What is the Pearson correlation of {b.the(first)} and {b.the(second)} in"
        text += f" {b.where()}?"
        b.add(
            Correlate(first, second),
            f"Correlate {b.the(first)} with {b.the(second)}",
            text,
            "numeric_approximate",
        )
        margin = "abs(r) - 0.05 if abs(r) < 0.995 else 0.0"
        return b.asked(f"{text} {b.skips(both)}", "correlation", margin)
    fitted = f"Regress {b.the(second)} on {b.the(first)} in {b.where()} by ordinary least squares."
    ask = "What are the slope and the intercept?" if kind == "both" else "What is the slope?"
    b.add(
        Fit(first, second, kind == "both"),
        f"Fit {b.the(second)} on {b.the(first)} with an intercept by least squares",
        f"{fitted} {ask}",
        "list_approximate" if kind == "both" else "numeric_approximate",
    )
    r = f'abs(t["{first}"].astype(float).corr(t["{second}"].astype(float)))'
    margin = f"({r} - 0.05) if {r} < 0.995 else 0.0"
    end = " Answer with a list: slope, intercept." if kind == "both" else ""
    return b.asked(f"{fitted} {ask} {b.skips(both)}{end}", f"fit {kind}", margin)


def between_years(b: Builder) -> Question:
    """A yearly series interpolated at a point between two years: numeric_approximate."""
    b.load()
    b.maybe_join("number")
    number, year = b.number(), b.year()
    b.maybe_filter()
    how = b.summary(number, ("mean", "median", "total"))
    if year in b.table.single_years and not b.said:
        raise NoQuestion  # a summary of one row a year
    grouped(b, [year], number, how)
    share = b.rng.choice((0.25, 0.5, 0.75))
    at = b.rng.choice((1, 2, 3))
    before, after = _ORDINALS[at], _ORDINALS[at - 1]
    text = (
        f"Take the {WORDS[how]} of {b.the(number)} per {b.col(year)} in {b.where()}. What is it, "
        f"linearly interpolated at {share:g} of the way from the {before} to the {after} "
        f"{b.col(year)}?"
    )
    b.add(
        Interpolate(share, at),
        f"Interpolate linearly between the {before} and the {after} {b.col(year)}",
        text,
        "numeric_approximate",
    )
    return b.asked(f"{text} {b.skips()}", f"between {how}", "abs(seen)")


_BARE = "Give the number without a percent sign."


def share(b: Builder) -> Question:
    """The percentage of a total that belongs to one group: numeric_exact."""
    b.load()
    b.maybe_join("group")
    number = b.number(amount=True)
    name = b.group(most=12, least=3)
    value = b.rng.choice(list(b.sizes[name]))
    b.maybe_filter(0.5)
    digits = b.rng.choice((1, 1, 2))
    text = (
        f"What percentage of the total of {b.the(number)} in {b.where()} belongs to the rows where "
        f"{b.the(name)} is {value!r}, {decimals(digits)}?"
    )
    b.add(
        Share(name, value, number, digits),
        f"Divide the total of {b.the(number)} where {b.the(name)} is {value!r} by the whole total",
        text,
        "numeric_exact",
    )
    margin = f"{rounding(digits)} if 1 < raw < 99 and len(part) > 1 else -1.0"
    return b.asked(f"{text} {b.skips()} {_BARE}", "share", margin)


def spread(b: Builder) -> Question:
    """How far the highest group is from the lowest: numeric_exact."""
    b.load()
    b.maybe_join()
    number, name = b.number(), b.group(years=True)
    b.maybe_filter()
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [name], number, how)
    digits = digits_of(b, number, how)
    text = (
        f"Take the {WORDS[how]} of {b.the(number)} for each {b.col(name)} in {b.where()}. By how "
        f"much does the highest of them exceed the lowest, {decimals(digits)}?"
    )
    b.add(
        Spread(digits),
        "Subtract the lowest value of all groups from the highest",
        text,
        "numeric_exact",
    )
    return b.asked(f"{text} {b.skips()}", f"spread {how}", rounding(digits))


def change(b: Builder) -> Question:
    """By how many per cent a yearly figure changed between two years: numeric_exact."""
    b.load()
    b.maybe_join("number")
    number, year = b.number(), b.year()
    span = list(b.table.spans[year])
    if len(span) < 4:
        raise NoQuestion("by: wanted 4 years or more")
    one, other = sorted(b.rng.sample(span, 2))
    b.maybe_filter()
    how = b.summary(number, ("mean", "median", "total"))
    if year in b.table.single_years and not b.said:
        raise NoQuestion("a summary of one row a year")
    grouped(b, [year], number, how)
    digits = b.rng.choice((1, 1, 2))
    text = (
        f"Take the {WORDS[how]} of {b.the(number)} per {b.col(year)} in {b.where()}. By what "
        f"percentage of its former value did it change from {one} to {other}, {decimals(digits)} "
        "(negative if it fell)?"
    )
    b.add(
        Change(one, other, digits),
        f"Compute the change from {one} to {other} in per cent of the value of {one}",
        text,
        "numeric_exact",
    )
    margin = f"{rounding(digits)} if 1 < abs(raw) < 1000 and g.loc[{one}] > 0 else 0.0"
    return b.asked(f"{text} {b.skips()} {_BARE}", f"change {how}", margin)


def above_own(b: Builder) -> Question:
    """How many rows lie above the mean of their own group: numeric_exact."""
    b.load()
    b.maybe_join()
    number, name = b.number(), b.group()
    b.maybe_filter()
    text = (
        f"How many of the rows in {b.where()} have a value of {b.the(number)} above the mean of "
        f"{b.the(number)} over those of these rows that have the same {b.col(name)}?"
    )
    b.add(
        AboveOwn(name, number),
        f"Count the rows above the mean of {b.the(number)} of their own {b.the(name)}",
        text,
        "numeric_exact",
    )
    # a row at its mean but for the last bit could be counted in one way and not in the other
    margin = f'1.0 if (t["{number}"] - line).abs().min() > 1e-9 * line.abs().max() else 0.0'
    return b.asked(f"{text} {b.skips()}", "above own", margin)


def nth_group(b: Builder) -> Question:
    """The group with the second or third highest or lowest summary: string_exact."""
    b.load()
    b.maybe_join()
    number, name = b.number(), b.group(least=NAMES_LEAST, years=True)
    b.maybe_filter()
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [name], number, how)
    place = b.rng.choice((2, 3))
    high = b.rng.random() < 0.6
    order = f"{PLACES[place]} {'highest' if high else 'lowest'}"
    text = f"Which {b.col(name)} has the {order} {WORDS[how]} of {b.the(number)} in {b.where()}?"
    b.add(Nth(place, high), f"Sort and take the name with the {order} value", text, "string_exact")
    return b.asked(
        f"{text} {b.skips()} Answer with the name only, as the file writes it.",
        f"nth {how}",
        f"min({', '.join(GAP.format(k=k) for k in range(1, place + 1))})",  # no tie above it
    )


_K = (2, 3, 3, 4, 5)


def _start(b: Builder, most: int = 60, least: int = 3, years: bool = True) -> tuple[str, str]:
    """(column of numbers, column of groups), with the steps that lead to them."""
    b.load()
    b.maybe_join()
    number = b.number()
    group = b.group(most, least, years)
    b.maybe_filter()
    return number, group


def count_groups(b: Builder) -> Question:
    """How many groups lie above the overall mean: numeric_exact."""
    number, name = _start(b, least=NAMES_LEAST)
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [name], number, how)
    text = (
        f"For how many values of {b.the(name)} in {b.where()} is the {WORDS[how]} of "
        f"{b.the(number)} above the mean of these per-value figures?"
    )
    b.add(Above(), "Count the groups above the mean of all groups", text, "numeric_exact")
    return b.asked(
        f"{text} {b.skips()}",
        f"above {how}",
        "float((g - line).abs().min() / max(abs(line), 1e-9))",
    )


def best_group(b: Builder) -> Question:
    """The group with the highest or lowest summary: string_exact."""
    number, name = _start(b, least=NAMES_LEAST)
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [name], number, how)
    high = b.rng.random() < 0.6
    order = "highest" if high else "lowest"
    text = f"Which {b.col(name)} has the {order} {WORDS[how]} of {b.the(number)} in {b.where()}?"
    b.add(Best(high), f"Sort and take the name with the {order} value", text, "string_exact")
    return b.asked(
        f"{text} {b.skips()} Answer with the name only, as the file writes it.",
        f"best {how}",
        GAP.format(k=1),
    )


def top_groups(b: Builder) -> Question:
    """The k best groups: list_exact."""
    number, name = _start(b, least=NAMES_LEAST)
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [name], number, how)
    size = len(b.sizes[name])
    k = b.rng.choice([k for k in _K if enough(size, k)] or [2])
    high = b.rng.random() < 0.7
    order = "highest" if high else "lowest"
    text = (
        f"Which {k} values of {b.the(name)} have the {order} {WORDS[how]} of {b.the(number)} in "
        f"{b.where()}?"
    )
    b.add(Top(k, high), f"Sort and take the {k} names with the {order} values", text, "list_exact")
    return b.asked(
        f"{text} {b.skips()} Answer with a list of names, as the file writes them.",
        f"top {how}",
        GAP.format(k=k),
    )


def group_values(b: Builder) -> Question:
    """One summary per group in alphabetical order: list_approximate."""
    number, name = _start(b, most=10, years=False)
    if not one_order(b.sizes[name]):
        raise NoQuestion("by: its values have more than one alphabetical order")
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [name], number, how)
    text = f"What is the {WORDS[how]} of {b.the(number)} for each {b.col(name)} in {b.where()}?"
    order = f"List them in alphabetical order of {b.the(name)}."
    b.add(
        Each(),
        f"List the {WORDS[how]} of {b.the(number)} in alphabetical order of {b.the(name)}",
        f"{text} {order}",
        "list_approximate",
    )
    return b.asked(f"{text} {order} {b.skips()} Answer with a list of numbers.", f"each {how}")


def pair(b: Builder) -> Question:
    """The pair of two groups with the highest summary: string_approximate."""
    b.load()
    b.maybe_join()
    number, first = b.number(), b.group()
    second = b.year() if b.table.years and b.rng.random() < 0.6 else b.group()
    if any("," in value for name in (first, second) for value in b.sizes[name]):
        raise NoQuestion("by: its values have commas, which part the two")
    b.maybe_filter(0.4)
    how = b.summary(number, ("mean", "median", "total"))
    grouped(b, [first, second], number, how)
    high = b.rng.random() < 0.7
    order = "highest" if high else "lowest"
    text = (
        f"Which pair of {b.the(first)} and {b.the(second)} has the {order} {WORDS[how]} of "
        f"{b.the(number)} in {b.where()}?"
    )
    b.add(Best(high), f"Sort and take the pair with the {order} value", text, "string_approximate")
    return b.asked(
        f"{text} {b.skips()} Answer with both, in this order, separated by a comma.",
        f"pair {how}",
        PAIRED.format(gap=GAP.format(k=1)),
    )


# kinds of questions; a new kind adds one function and one entry
KINDS: dict[str, Callable[[Builder], Question]] = {
    "one_number": one_number,
    "difference": difference,
    "portion": portion,
    "count_groups": count_groups,
    "best_group": best_group,
    "top_groups": top_groups,
    "group_values": group_values,
    "line": line,
    "between_years": between_years,
    "pair": pair,
    "share": share,
    "spread": spread,
    "change": change,
    "above_own": above_own,
    "nth_group": nth_group,
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
