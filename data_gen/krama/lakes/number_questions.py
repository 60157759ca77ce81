"""Questions about measured columns: one figure, a fitted line, a value between two years."""

from __future__ import annotations

from data_gen.krama.lakes.grouping import grouped
from data_gen.krama.lakes.ops import (
    Correlate,
    Difference,
    Figure,
    Fit,
    Interpolate,
    Portion,
    Summary,
)
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.steps import Builder, NoQuestion
from data_gen.krama.lakes.words import WORDS, decimals

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
