"""What every recipe does to every document that supports it, as a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_gen.cdr.library import SLOTS, LibraryRecipe, OrderFamily
from data_gen.cdr.records import Replays
from data_gen.cdr.stages.arrays import Array
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS, DOMAINS, Facts, mask_of

FAILED, CHANGED, FAMILY = 1, 2, 4  # bits of a trace; FAMILY << i: texts of family i are all equal


@dataclass(frozen=True)
class Wanted:
    """What is looked at along a recipe. `columns`: (filter, step) with a step after the input;
    `inner`: the middle step of each order family."""

    entry: LibraryRecipe
    mask: int
    domain: int
    columns: tuple[tuple[str, int], ...]
    inner: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """One recipe over the documents of a part: places of its k supporters, bits, and statistics
    (k, columns); NaN where a filter fails."""

    places: Array
    bits: Array
    stats: Array


def wanted(entry: LibraryRecipe) -> Wanted:
    points: set[tuple[str, int]] = set()
    for variant in entry.variants:
        if variant.filter is not None:
            points.add((variant.filter, variant.sequence.index(variant.filter)))
    for family in entry.families:
        points |= {(family.filter, step) for step in steps_of(family)}
    return Wanted(
        entry,
        mask_of(entry.recipe.operators),
        DOMAINS.index(entry.domain),
        tuple(sorted(point for point in points if point[1])),
        tuple(family.slots["middle"].step for family in entry.families),
    )


def steps_of(family: OrderFamily) -> tuple[int, int, int]:
    """After how many mappers the filter stands in front, in the middle, at the end."""
    front, middle, end = (family.slots[slot].step for slot in SLOTS)
    return front, middle, end


def trace_text(text: str, recipe: Wanted, replays: Replays) -> tuple[int, list[float]]:
    """(bits, statistics) of one recipe on one text."""
    try:
        states = replays.states(text, recipe.entry.recipe.ordered)
    except (ValueError, RecursionError):
        return FAILED, [np.nan] * len(recipe.columns)
    bits = CHANGED if states[-1] != text else 0
    for place, step in enumerate(recipe.inner):
        if text == states[step] == states[-1]:
            bits |= FAMILY << place
    return bits, [replays.statistic_or_nan(name, states[step]) for name, step in recipe.columns]


def trace_part(
    facts: Facts,
    texts: Sequence[str | None],
    recipes: Sequence[Wanted],
    first: int = 0,
) -> list[Trace]:
    """All recipes over the documents at places `first`, `first + 1`, …, in the order of `recipes`.

    `facts.read` says which are usable. Recipes share prefixes, so what mappers and filters do to
    one document is remembered while its recipes run, and forgotten after it.
    """
    places: list[list[int]] = [[] for _ in recipes]
    bits: list[list[int]] = [[] for _ in recipes]
    stats: list[list[list[float]]] = [[] for _ in recipes]
    for place, text in enumerate(texts, first):
        if text is None or not facts.read[place]:
            continue
        memory = Replays()
        active, domain = int(facts.active[place]), int(facts.domain[place])
        for number, recipe in enumerate(recipes):
            if recipe.domain == domain and active & recipe.mask == recipe.mask:
                found, values = trace_text(text, recipe, memory)
                places[number].append(place)
                bits[number].append(found)
                stats[number].append(values)
    return [
        Trace(
            np.array(places[number], np.int32),
            np.array(bits[number], np.uint32),
            np.array(stats[number], np.float64).reshape(len(places[number]), len(recipe.columns)),
        )
        for number, recipe in enumerate(recipes)
    ]


def column(trace: Trace, recipe: Wanted, facts: Facts, name: str, step: int) -> Array:
    """The statistic of a filter after `step` mappers, for the trace's documents."""
    if step == 0:
        return facts.stats[trace.places, CALIBRATED_FILTERS.index(name)]
    return trace.stats[:, recipe.columns.index((name, step))]
