"""The recipe library: recipes mined from what records activate (frequent operator sets as anchors,
exact signatures as recipes) or made up of it where mining gives too few for training, and where
filters may stand in them (spec sections 6 and 7); then the second map, what recipes do to texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import nan
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from assay.console import Progress
from assay.task import derive_seed
from assay.workers import WorkerPool
from configs.cdr import CdrConfig, ComposeConfig, LibraryConfig, MiningConfig
from data_gen.cdr.documents import (
    Replays,
    execution_order,
    filters_of,
    mask_of,
    names_of,
    number_documents,
)
from data_gen.cdr.units import initial_threshold
from data_gen.cdr.work import Row, Work, packed, write_part

Signature = tuple[str, ...]
Array = np.ndarray[Any, np.dtype[Any]]
MOST_FALLBACKS = 12
_TRIES = 40  # draws for each recipe asked for


@dataclass(frozen=True)
class MinedRecipe:
    """`operators` alphabetically, `ordered` as they run; `support`: records with exactly these."""

    id: str
    family_id: str
    operators: Signature
    ordered: Signature
    support: int
    composed: bool = False  # made up from activated operators, not mined


@dataclass(frozen=True)
class Family:
    """An anchor and the recipes of the signatures assigned to it."""

    id: str
    anchor: Signature
    subset_support: int
    family_support: int
    recipes: tuple[MinedRecipe, ...]


@dataclass(frozen=True)
class Mined:
    """What a domain's signatures gave. `fallback`: signatures no anchor took, with their count."""

    domain: str
    records: int
    threshold: int
    families: tuple[Family, ...]
    fallback: tuple[tuple[Signature, int], ...]

    @property
    def recipes(self) -> list[MinedRecipe]:
        return [recipe for family in self.families for recipe in family.recipes]


def mine_counts(domain: str, counts: Mapping[Signature, int], config: MiningConfig) -> Mined:
    """Families and recipes of one domain (internal name).

    `counts`: how often each set of active mappers occurs among its records, in the order of first
    occurrence, each with its operators alphabetically. Those with fewer than `min_combo_len`
    operators are left out.
    """
    exact = Counter({s: n for s, n in counts.items() if len(s) >= config.min_combo_len})
    total = sum(exact.values())
    threshold = max(config.min_support, math.ceil(config.min_support_ratio * total), 1)
    coverage = _frequent(exact, threshold, config)
    anchors = _anchors(coverage, exact, config.max_families)
    assigned, left = _assign(exact, anchors, coverage)
    families: list[Family] = []
    for anchor in anchors:
        kept = [s for s in assigned[anchor] if exact[s] >= config.min_recipe_support]
        if kept:  # a family left with no recipe does not use up a number
            name = f"{domain}_family_{len(families) + 1:02d}"
            support = sum(exact[s] for s in assigned[anchor])
            recipes = tuple(
                MinedRecipe(
                    f"{domain}_recipe_{len(families) + 1:02d}_{rank:02d}",
                    name,
                    signature,
                    execution_order(domain, signature),
                    exact[signature],
                )
                for rank, signature in enumerate(kept[: config.max_recipes_per_family], 1)
            )
            families.append(Family(name, anchor, coverage[anchor], support, recipes))
    fallback = _fallback([s for s in left if exact[s] >= config.min_recipe_support], exact)
    return Mined(domain, total, threshold, tuple(families), fallback)


def _frequent(
    exact: Mapping[Signature, int], threshold: int, config: MiningConfig
) -> dict[Signature, int]:
    """Sets of operators that at least `threshold` records have, with how many do.

    A set is frequent only if it is without any one of its operators, so what is counted are the
    frequent sets and their neighbours, never all subsets of all signatures.
    """
    names = sorted({name for signature in exact for name in signature})
    has = [np.array([name in s for s in exact], np.bool_) for name in names]
    times = np.fromiter(exact.values(), np.int64, len(exact))
    found: dict[Signature, int] = {}

    def grow(subset: Signature, members: Array, first: int) -> None:
        for place in range(first, len(names)):
            more = members & has[place]
            support = int(times[more].sum())
            if support >= threshold:
                larger = (*subset, names[place])
                if len(larger) >= config.min_combo_len:
                    found[larger] = support
                if len(larger) < config.max_combo_len:
                    grow(larger, more, place + 1)

    grow((), np.ones(len(exact), np.bool_), 0)
    return found


def _anchors(
    coverage: Mapping[Signature, int], exact: Counter[Signature], most: int
) -> list[Signature]:
    """Greedily, in rank order, every set that covers a signature no earlier one covers."""
    chosen: list[Signature] = []
    covered: set[Signature] = set()
    for subset in sorted(coverage, key=lambda s: (-coverage[s], -len(s), s)):
        if len(chosen) >= most:
            break
        wanted = set(subset)
        left = [s for s in exact if s not in covered and wanted.issubset(s)]
        if not chosen or left:
            chosen.append(subset)
            covered.update(left)
    return chosen


def _assign(
    exact: Counter[Signature], anchors: list[Signature], coverage: Mapping[Signature, int]
) -> tuple[dict[Signature, list[Signature]], list[Signature]]:
    """Each signature to its best anchor, most frequent first; and those that overlap none."""
    assigned: dict[Signature, list[Signature]] = {anchor: [] for anchor in anchors}
    left: list[Signature] = []
    for signature, _ in exact.most_common():
        own = set(signature)
        best: tuple[tuple[float, ...], Signature] | None = None
        for anchor in anchors:
            shared = len(own & set(anchor))
            if not shared:
                continue
            key = (shared == len(anchor), shared / len(anchor), len(anchor), coverage[anchor])
            if best is None or key > best[0]:
                best = (key, anchor)
        if best is None:
            left.append(signature)
        else:
            assigned[best[1]].append(signature)
    counts = dict(exact)
    for members in assigned.values():
        members.sort(key=lambda s: (-counts[s], -len(s), s))
    return assigned, left


def _fallback(
    left: list[Signature], exact: Counter[Signature]
) -> tuple[tuple[Signature, int], ...]:
    """Greedily the signature with most operators not yet covered, then largest, then commonest."""
    covered: set[str] = set()
    chosen: list[tuple[Signature, int]] = []
    rest = list(left)
    while rest and len(chosen) < MOST_FALLBACKS:
        best = max(rest, key=lambda s: (len(set(s) - covered), len(s), exact[s]))
        chosen.append((best, exact[best]))
        covered |= set(best)
        rest.remove(best)
    return tuple(chosen)


def compose(
    domain: str,
    masks: Sequence[int],
    counts: Mapping[Signature, int],
    mined: Sequence[MinedRecipe],
    config: ComposeConfig,
    seed: int,
) -> list[MinedRecipe]:
    """Up to `per_domain` recipes that no mined one equals, each activated as a whole by at least
    `min_support` records. Same records and seed, same recipes; marked `composed`.

    `masks` are the active mappers of the domain's records that have at least `min_length` of
    them, alphabetically and in corpus order; `counts` says how often each signature occurs.
    """
    taken = {recipe.operators for recipe in mined}
    found: list[MinedRecipe] = []
    rng = Random(derive_seed(seed, "compose", domain))
    for _ in range(_TRIES * config.per_domain):
        if len(found) >= config.per_domain or not len(masks):
            break
        active = list(names_of(int(masks[int(rng.random() * len(masks))])))
        most = min(config.max_length, len(active))
        size = config.min_length + int(rng.random() * (most - config.min_length + 1))
        chosen: list[str] = []
        while len(chosen) < size:
            chosen.append(active.pop(int(rng.random() * len(active))))
        operators = tuple(sorted(chosen))
        support = sum(n for s, n in counts.items() if set(operators).issubset(s))
        if operators in taken or support < config.min_support:
            continue
        taken.add(operators)
        found.append(
            MinedRecipe(
                f"{domain}_composed_{len(found) + 1:03d}",
                f"{domain}_composed",
                operators,
                execution_order(domain, operators),
                support,
                composed=True,
            )
        )
    return found


# --- where filters stand

# places of the filter of an order family: the type of a recipe with one there
SLOTS = {
    "front": "filter-then-clean",
    "middle": "clean-filter-clean",
    "end": "clean-then-filter",
}
Point = tuple[str, int]  # a filter, and after how many mappers it stands


@dataclass(frozen=True)
class Checkpoint:
    """One filter before (k=0) or after the k-th mapper: what its statistic is over the support."""

    filter: str
    step: int
    count: int
    delta: float  # of the means, against the checkpoint before; 0 at the front
    relative: float | None
    params: dict[str, float]

    def rank(self) -> tuple[float, ...]:
        """More is better: support, then how much the steps before it move the statistic."""
        return (self.count, abs(self.relative or 0.0), abs(self.delta), self.step)


@dataclass(frozen=True)
class Variant:
    """A recipe with at most one filter, which stands at `point`; `params` is the library's first
    guess at its threshold."""

    id: str
    recipe_type: str
    sequence: tuple[str, ...]
    point: Point | None = None
    params: dict[str, float] | None = None


@dataclass(frozen=True)
class OrderFamily:
    """One filter at three places of one recipe."""

    id: str
    filter: str
    min_support: int
    slots: dict[str, Checkpoint]
    sequences: dict[str, tuple[str, ...]]

    @property
    def points(self) -> list[Point]:
        """Where its filter stands in front, in the middle and at the end."""
        return [(self.filter, self.slots[slot].step) for slot in SLOTS]


@dataclass(frozen=True)
class LibraryRecipe:
    """A recipe with everything that can be made of it."""

    recipe: MinedRecipe
    domain: str
    support_records: int
    variants: tuple[Variant, ...]
    families: tuple[OrderFamily, ...]

    @cached_property
    def points(self) -> list[Point]:
        """Where filters of its variants and families stand, but for those on the input itself."""
        found = {one.point for one in self.variants if one.point}
        found.update(point for family in self.families for point in family.points)
        return sorted(point for point in found if point[1])


def support_table(
    text: str, ordered: Sequence[str], filters: Sequence[str], replays: Replays
) -> list[list[float]] | None:
    """Statistics of one supporting record: a row a filter, a column a checkpoint (n + 1 of them);
    NaN where the filter fails, None when a mapper does."""
    try:
        states = replays.states(text, ordered)
    except (ValueError, RecursionError):
        return None
    return [[replays.statistic(name, state) for state in states] for name in filters]


def attach_filters(
    recipe: MinedRecipe,
    domain: str,
    tables: Sequence[Sequence[Sequence[float]] | None],
    filters: Sequence[str],
    config: LibraryConfig,
) -> LibraryRecipe:
    """Choose filters and places for a recipe from the `support_table` of each of its first
    supporting records, in corpus order."""
    runs = [table for table in tables if table is not None]
    points = [
        point
        for row, name in enumerate(filters)
        for point in _checkpoints(name, [table[row] for table in runs], len(recipe.ordered))
        if point.count >= config.min_filter_support
    ]
    last, most = len(recipe.ordered), config.max_filters_per_recipe
    variants = [Variant(f"{recipe.id}__clean_only", "clean-only", recipe.ordered)]
    for kind, step in (("filter_then_clean", 0), ("clean_then_filter", last)):
        best = sorted((p for p in points if p.step == step), key=Checkpoint.rank, reverse=True)
        variants += [
            Variant(
                f"{recipe.id}__{kind}_{number:02d}",
                kind.replace("_", "-"),
                place_filter(recipe.ordered, point.filter, step),
                (point.filter, step),
                point.params,
            )
            for number, point in enumerate(best[:most], 1)
        ]
    families = _families(recipe, points, last)[:most]
    return LibraryRecipe(recipe, domain, len(tables), tuple(variants), tuple(families))


def _checkpoints(name: str, runs: Sequence[Sequence[float]], last: int) -> list[Checkpoint]:
    points: list[Checkpoint] = []
    before: float | None = None
    for step in range(last + 1):
        values = [value for run in runs if not math.isnan(value := run[step])]
        if not values:
            before = None
            continue
        mean = round(sum(values) / len(values), 6)
        delta = 0.0 if before is None else mean - before
        relative = None if before is None or abs(before) <= 1e-12 else delta / abs(before)
        params = initial_threshold(values, name)
        points.append(Checkpoint(name, step, len(values), delta, relative, params))
        before = mean
    return points


def place_filter(mappers: tuple[str, ...], name: str, step: int) -> tuple[str, ...]:
    return (*mappers[:step], name, *mappers[step:])


def _families(recipe: MinedRecipe, points: Sequence[Checkpoint], last: int) -> list[OrderFamily]:
    """Filters that can stand in front, inside and at the end, best first.

    The inner place is the one with most support, then the largest relative change of the mean,
    then the largest absolute one, then the earliest.
    """
    found: list[tuple[tuple[float, float, str], OrderFamily]] = []
    for name in dict.fromkeys(p.filter for p in points):
        own = {p.step: p for p in points if p.filter == name}
        inner = [p for step, p in own.items() if 0 < step < last]
        if 0 not in own or last not in own or not inner:
            continue
        middle = max(inner, key=lambda p: (p.count, abs(p.relative or 0.0), abs(p.delta), -p.step))
        slots = {"front": own[0], "middle": middle, "end": own[last]}
        support = min(p.count for p in slots.values())
        change = max(
            max(abs(p.relative or 0.0), abs(p.delta)) for p in (slots["middle"], slots["end"])
        )
        family = OrderFamily(
            f"{recipe.id}__order_family__{name}",
            name,
            support,
            slots,
            {s: place_filter(recipe.ordered, name, p.step) for s, p in slots.items()},
        )
        found.append(((-support, -change, name), family))
    return [family for _, family in sorted(found, key=lambda pair: pair[0])]


# --- the library: recipes with what their first supporting documents say of filters

SUPPORTS = 16  # documents of one replaying job
Table = list[list[float]] | None


@dataclass(frozen=True)
class Library:
    """What was mined, and every recipe with what can be made of it, in the order of the tracks."""

    mined: tuple[Mined, ...]
    entries: tuple[LibraryRecipe, ...]


def merge_library(work: Work, crew: WorkerPool) -> None:
    """Number the documents, mine the recipes and attach filters to them."""
    if (work.folder / "library").is_file():
        return
    number_documents(work)
    work.save("library", build_library(work, crew))


def build_library(work: Work, crew: WorkerPool) -> Library:
    """The library of all usable documents."""
    db = work.query(crew.workers, documents=str(work.folder / "documents.parquet"))
    config = work.config
    domains = db.execute("SELECT DISTINCT domain FROM documents WHERE usable ORDER BY 1").fetchall()
    drawn = [draw(db, domain, config) for (domain,) in domains]
    recipes = [recipe for _, own in drawn for recipe in own]
    support = [
        _first_supporters(db, mined.domain, one, config) for mined, own in drawn for one in own
    ]
    wanted: dict[int, list[tuple[int, Signature]]] = {}
    for number, documents in enumerate(support):
        for document in documents:
            wanted.setdefault(document, []).append((number, recipes[number].ordered))
    tables = _replayed(db, wanted, config, crew)
    domain_of = [mined.domain for mined, own in drawn for _ in own]
    entries = [
        attach_filters(
            recipe,
            domain_of[number],
            [tables[number, document] for document in support[number]],
            filters_of(config),
            config.library,
        )
        for number, recipe in enumerate(recipes)
    ]
    return Library(tuple(mined for mined, _ in drawn), tuple(entries))


def draw(db: Any, domain: str, config: CdrConfig) -> tuple[Mined, list[MinedRecipe]]:
    """Mine and compose the recipes of a domain."""
    usable = "FROM documents WHERE usable AND domain = ?"
    query = f"SELECT active, count(*) {usable} GROUP BY 1 ORDER BY min(number)"  # first occurrence
    counts = {names_of(mask): n for mask, n in db.execute(query, [domain]).fetchall()}
    mined = mine_counts(domain, counts, config.mining)
    long = f"AND bit_count(active::BIGINT) >= {config.compose.min_length} ORDER BY number"
    masks = db.execute(f"SELECT active {usable} {long}", [domain]).fetchnumpy()["active"]
    made = compose(domain, masks, counts, mined.recipes, config.compose, config.split.seed)
    return mined, [*mined.recipes, *made]


def _first_supporters(db: Any, domain: str, recipe: MinedRecipe, config: CdrConfig) -> list[int]:
    """Numbers of the first documents that support a recipe."""
    mask = mask_of(recipe.operators)
    query = (
        f"SELECT number FROM documents WHERE usable AND domain = ? AND active & {mask} = {mask} "
        f"ORDER BY number LIMIT {config.library.max_support_records}"
    )
    return [number for (number,) in db.execute(query, [domain]).fetchall()]


Support = tuple[int, str, int, int, list[tuple[int, Signature]]]  # document, its place, recipes


def _replayed(
    db: Any, wanted: dict[int, list[tuple[int, Signature]]], config: CdrConfig, crew: WorkerPool
) -> dict[tuple[int, int], Table]:
    """The support tables of recipes by recipe and document."""
    query = (
        "SELECT number, file, start, size FROM documents WHERE number IN (SELECT unnest(?)) "
        "ORDER BY number"
    )
    rows = db.execute(query, [list(wanted)]).fetchall()
    supports: list[Support] = [(*row, wanted[row[0]]) for row in rows]
    jobs = (
        (supports[first : first + SUPPORTS], filters_of(config))
        for first in range(0, len(supports), SUPPORTS)
    )
    found: dict[tuple[int, int], Table] = {}
    with Progress("library", "documents", len(supports)) as progress:
        for tables in crew.map(_replay, jobs):
            found |= tables
            progress.add(len({document for _, document in tables}))
    return found


def _replay(job: tuple[list[Support], tuple[str, ...]]) -> dict[tuple[int, int], Table]:
    supports, filters = job
    found: dict[tuple[int, int], Table] = {}
    for document, file, start, size, recipes in supports:
        text, replays = packed(file, start, size)["text"], Replays()
        for number, ordered in recipes:
            found[number, document] = support_table(text, ordered, filters, replays)
    return found


# --- the second map: what every recipe does to every document that supports it

FAILED, CHANGED, FAMILY = 1, 2, 4  # bits of a trace; FAMILY << i: texts of family i are all equal
TRACES = {"recipe": "int32", "number": "int64", "bits": "uint32", "stats": ["float64"]}
Place = tuple[str, int, int, int, str, int]  # file, start, size, number, domain, active mappers


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
    work.map("traces", shard, crew, trace_part, jobs, TRACES, len(rows))


def trace_part(path: Path, job: tuple[Work, list[Place]]) -> int:
    """Write the traces of some documents. Recipes share prefixes, so what mappers and filters do
    to one document is remembered while its recipes run, and forgotten after it."""
    work, places = job
    entries: list[LibraryRecipe] = work.load("library").entries
    recipes = [(number, one, mask_of(one.recipe.operators)) for number, one in enumerate(entries)]
    rows: list[Row] = []
    for file, start, size, document, domain, active in places:
        text, replays = packed(file, start, size)["text"], Replays()
        rows += [
            (number, document, *trace(text, one, replays))
            for number, one, mask in recipes
            if one.domain == domain and active & mask == mask
        ]
    write_part(path, TRACES, rows)
    return len(places)


def trace(text: str, entry: LibraryRecipe, replays: Replays) -> tuple[int, list[float]]:
    """(bits, statistics at the recipe's points) of one recipe on one text."""
    try:
        states = replays.states(text, entry.recipe.ordered)
    except (ValueError, RecursionError):
        return FAILED, [nan] * len(entry.points)
    bits = CHANGED if states[-1] != text else 0
    for place, family in enumerate(entry.families):
        if text == states[family.slots["middle"].step] == states[-1]:
            bits |= FAMILY << place
    return bits, [replays.statistic(name, states[step]) for name, step in entry.points]
