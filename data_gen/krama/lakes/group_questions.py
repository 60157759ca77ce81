"""Questions about groups of rows: how many, which, the best, and a value for each."""

from __future__ import annotations

from data_gen.krama.lakes.grouping import grouped
from data_gen.krama.lakes.ops import Above, Best, Each, Top
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.steps import Builder, NoQuestion
from data_gen.krama.lakes.words import GAP, NAMES_LEAST, PAIRED, WORDS, enough, one_order

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
