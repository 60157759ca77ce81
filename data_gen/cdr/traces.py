"""The second map: what every recipe does to every document that supports it, as a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import nan
from pathlib import Path

from assay.workers import WorkerPool
from data_gen.cdr.facts import mask_of
from data_gen.cdr.library import SLOTS, LibraryRecipe, OrderFamily, Variant
from data_gen.cdr.records import Replays
from data_gen.cdr.work import Row, Work, packed, write_part

FAILED, CHANGED, FAMILY = 1, 2, 4  # bits of a trace; FAMILY << i: texts of family i are all equal
COLUMNS = {"recipe": "int32", "number": "int64", "bits": "uint32", "stats": "float64[]"}
Point = tuple[str, int]  # a filter, and after how many mappers it stands
Place = tuple[str, int, int, int, str, int]  # file, start, size, number, domain, active mappers


@dataclass(frozen=True)
class Wanted:
    """What is looked at along a recipe. `points` with a step after the input; `inner`: the middle
    step of each order family."""

    entry: LibraryRecipe
    mask: int
    points: tuple[Point, ...]
    inner: tuple[int, ...]


def wanted(entry: LibraryRecipe) -> Wanted:
    points = {point_of(variant) for variant in entry.variants[1:]}
    points |= {point for family in entry.families for point in points_of(family)}
    return Wanted(
        entry,
        mask_of(entry.recipe.operators),
        tuple(sorted(point for point in points if point[1])),
        tuple(family.slots["middle"].step for family in entry.families),
    )


def point_of(variant: Variant) -> Point:
    """Where the filter of a variant stands."""
    name = str(variant.filter)
    return name, variant.sequence.index(name)


def points_of(family: OrderFamily) -> list[Point]:
    """Where the filter stands in front, in the middle and at the end."""
    return [(family.filter, family.slots[slot].step) for slot in SLOTS]


def trace_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Run every recipe on the documents of a shard."""
    db = work.query(documents=work.documents)
    rows = db.execute(
        "SELECT file, start, size, number, domain, active FROM documents "
        "WHERE usable AND shard = ? ORDER BY number",
        [shard],
    ).fetchall()
    sent = work.sent()
    jobs = ((sent, list(own)) for _, own in groupby(rows, lambda row: row[0]))
    work.map("traces", shard, crew, trace_part, jobs, COLUMNS, len(rows))


def trace_part(path: Path, job: tuple[Work, list[Place]]) -> int:
    """Write the traces of some documents. Recipes share prefixes, so what mappers and filters do
    to one document is remembered while its recipes run, and forgotten after it."""
    work, places = job
    recipes = [wanted(entry) for entry in work.load("library").entries]
    write_part(path, COLUMNS, [row for place in places for row in _traced(place, recipes)])
    return len(places)


def _traced(place: Place, recipes: list[Wanted]) -> Iterator[Row]:
    file, start, size, number, domain, active = place
    text, replays = packed(file, start, size)["text"], Replays()
    for place_, recipe in enumerate(recipes):
        if recipe.entry.domain == domain and active & recipe.mask == recipe.mask:
            yield place_, number, *trace(text, recipe, replays)


def trace(text: str, recipe: Wanted, replays: Replays) -> tuple[int, list[float]]:
    """(bits, statistics) of one recipe on one text."""
    try:
        states = replays.states(text, recipe.entry.recipe.ordered)
    except (ValueError, RecursionError):
        return FAILED, [nan] * len(recipe.points)
    bits = CHANGED if states[-1] != text else 0
    for place, step in enumerate(recipe.inner):
        if text == states[step] == states[-1]:
            bits |= FAMILY << place
    return bits, [replays.statistic_or_nan(name, states[step]) for name, step in recipe.points]
