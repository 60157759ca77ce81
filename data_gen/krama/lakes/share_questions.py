"""Questions about parts of a whole, distances between groups, and changes between two years."""

from __future__ import annotations

from data_gen.krama.lakes.grouping import grouped
from data_gen.krama.lakes.number_questions import digits_of, rounding
from data_gen.krama.lakes.ops import AboveOwn, Change, Nth, Share, Spread
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.steps import Builder, NoQuestion
from data_gen.krama.lakes.words import GAP, NAMES_LEAST, PLACES, WORDS, decimals

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
