"""Recipes: mined (frequent operator sets as anchors, exact signatures as recipes), and made up from
what records activate where mining gives too few for training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from assay.seeds import derive_seed
from configs.cdr import ComposeConfig, MiningConfig
from data_gen.cdr.domains import execution_order
from data_gen.cdr.facts import names_of

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
