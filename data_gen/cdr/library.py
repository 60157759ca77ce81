"""The recipe library: where filters may stand in a mined recipe (spec section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from configs.cdr import LibraryConfig
from data_gen.cdr.calibrate import initial_threshold
from data_gen.cdr.mining import MinedRecipe
from data_gen.cdr.records import Replays

SLOTS = ("front", "middle", "end")
SLOT_TYPES = {
    "front": "filter-then-clean",
    "middle": "clean-filter-clean",
    "end": "clean-then-filter",
}


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
    """A recipe with at most one filter; `params` is the library's first guess at its threshold."""

    id: str
    recipe_type: str
    sequence: tuple[str, ...]
    filter: str | None = None
    params: dict[str, float] | None = None


@dataclass(frozen=True)
class OrderFamily:
    """One filter at three places of one recipe."""

    id: str
    filter: str
    min_support: int
    slots: dict[str, Checkpoint]
    sequences: dict[str, tuple[str, ...]]

    def variant_id(self, slot: str) -> str:
        return f"{self.id}__{slot}"


@dataclass(frozen=True)
class LibraryRecipe:
    """A recipe with everything that can be made of it."""

    recipe: MinedRecipe
    domain: str
    support_records: int
    variants: tuple[Variant, ...]
    families: tuple[OrderFamily, ...]


def support_table(
    text: str, ordered: Sequence[str], filters: Sequence[str], replays: Replays
) -> list[list[float]] | None:
    """Statistics of one supporting record: a row a filter, a column a checkpoint (n + 1 of them);
    NaN where the filter fails, None when a mapper does."""
    try:
        states = replays.states(text, ordered)
    except (ValueError, RecursionError):
        return None
    return [[replays.statistic_or_nan(name, state) for state in states] for name in filters]


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
    last = len(recipe.ordered)
    most = config.max_filters_per_recipe
    front = _best([p for p in points if p.step == 0])[:most]
    end = _best([p for p in points if p.step == last])[:most]
    variants = (
        Variant(f"{recipe.id}__clean_only", "clean-only", recipe.ordered),
        *_main(recipe, "filter_then_clean", front),
        *_main(recipe, "clean_then_filter", end),
    )
    families = _families(recipe, points, last)[:most]
    return LibraryRecipe(recipe, domain, len(tables), variants, tuple(families))


def _checkpoints(name: str, runs: Sequence[Sequence[float]], last: int) -> list[Checkpoint]:
    points: list[Checkpoint] = []
    before: float | None = None
    for step in range(last + 1):
        values = [value for run in runs if not isnan(value := run[step])]
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


def _best(points: list[Checkpoint]) -> list[Checkpoint]:
    return sorted(points, key=lambda p: p.rank(), reverse=True)


def _main(recipe: MinedRecipe, kind: str, points: Sequence[Checkpoint]) -> list[Variant]:
    recipe_type = kind.replace("_", "-")
    return [
        Variant(
            f"{recipe.id}__{kind}_{number:02d}",
            recipe_type,
            place_filter(recipe.ordered, point.filter, point.step),
            point.filter,
            point.params,
        )
        for number, point in enumerate(points, 1)
    ]


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
