"""The recipe library: recipes mined from what records activate (frequent operator sets as anchors,
exact signatures as recipes) or made up of it where mining gives too few for training, and where
filters may stand in them (spec sections 6 and 7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Literal

import numpy as np

from assay.seeds import derive_seed
from configs.cdr import ComposeConfig, LibraryConfig, MiningConfig
from data_gen.cdr.documents import Replays, execution_order, names_of

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


# --- thresholds from statistics: percentiles, rounded to numbers people say

ZeroPolicy = Literal["min-positive", "skip"]

# filter -> (the one bound that is calibrated, its direction). "min": texts below are dropped.
BOUNDS: dict[str, tuple[str, Literal["min", "max"]]] = {
    "alphanumeric_filter": ("min_ratio", "min"),
    "average_line_length_filter": ("max_len", "max"),
    "character_repetition_filter": ("max_ratio", "max"),
    "flagged_words_filter": ("max_ratio", "max"),
    "maximum_line_length_filter": ("max_len", "max"),
    "stopwords_filter": ("min_ratio", "min"),
    "text_length_filter": ("min_len", "min"),
    "word_repetition_filter": ("max_ratio", "max"),
    "words_num_filter": ("min_num", "min"),
}
LEAST_RATIO = 0.001


@dataclass(frozen=True)
class Rule:
    """A filter with its threshold, and how it was made; `params` is None where the policy drops
    it."""

    params: dict[str, float] | None
    meta: dict[str, Any]


def percentile(values: Sequence[float] | np.ndarray[Any, Any], q: float) -> float:
    """Percentile q in [0, 1] by linear interpolation; one value is its own percentile.

    In exactly this form, because published thresholds depend on the last bit (spec section 17).
    """
    position = (len(values) - 1) * q
    low = int(position)
    high = min(low + 1, len(values) - 1)
    ordered = np.partition(np.asarray(values), (low, high))
    if len(values) == 1:
        return float(ordered[0])
    weight = position - low
    return float(ordered[low]) * (1 - weight) + float(ordered[high]) * weight


def round_threshold(value: float, key: str) -> float | int:
    """A threshold as it is spoken (spec section 7.1): a count, or a ratio within [0, 1]."""
    if key.endswith("_ratio"):
        return _round_ratio(value)
    steps = ((50, 5), (100, 10), (1000, 50), (10000, 100))
    step = next((s for limit, s in steps if value <= limit), 1000)
    rounded = int(round(value / step) * step)
    return max(5, rounded) if value > 0 else rounded


def _round_ratio(value: float) -> float:
    step, digits = (0.0001, 4) if value < 0.001 else (0.001, 3) if value < 0.01 else (0.01, 2)
    rounded = round(value / step) * step
    if value > 0 and rounded == 0:
        rounded = step
    return round(min(1.0, max(0.0, rounded)), digits)


def initial_threshold(values: Sequence[float], filter_name: str) -> dict[str, float]:
    """The library's first guess: 20th percentile for a minimum, 80th for a maximum."""
    key, direction = BOUNDS[filter_name]
    return {key: round_threshold(percentile(values, 0.2 if direction == "min" else 0.8), key)}


def quantile_of(filter_name: str, drop_rate: float) -> float:
    """Which quantile of its statistics a filter's threshold is made from."""
    return drop_rate if BOUNDS[filter_name][1] == "min" else 1 - drop_rate


def calibrated(filter_name: str, raw: float, drop_rate: float, zero_policy: ZeroPolicy) -> Rule:
    """Round `raw` to a threshold of a filter. `raw` is the percentile `quantile_of` of the texts'
    statistics, so that the filter drops about the share `drop_rate` of them.

    Only the calibrated bound is set; the opposite one falls back to the operator's default
    (the hidden lower bounds of spec section 2).
    """
    key, direction = BOUNDS[filter_name]
    value = round_threshold(raw, key)
    zero = key.endswith("_ratio") and value == 0
    if zero and zero_policy == "min-positive":
        value = LEAST_RATIO
    meta: dict[str, Any] = {
        "threshold_source": "instance_balanced_quantile",
        "target_drop_rate": drop_rate,
        "threshold_quantile": quantile_of(filter_name, drop_rate),
        "threshold_direction": direction,
        "threshold_raw_value": round(raw, 6),
        "threshold_value": value,
        "threshold_param_key": key,
        "zero_ratio_threshold": zero,
        "zero_ratio_action": zero_policy if zero else None,
    }
    return Rule(None if zero and zero_policy == "skip" else {key: value}, meta)
