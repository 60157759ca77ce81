"""Recipes made up from what records activate, where mining gives too few for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from assay.seeds import derive_seed
from configs.cdr import ComposeConfig
from data_gen.cdr.domains import execution_order
from data_gen.cdr.facts import names_of
from data_gen.cdr.mining import MinedRecipe, Signature

_TRIES = 40  # draws for each recipe asked for


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
                id=f"{domain}_composed_{len(found) + 1:03d}",
                family_id=f"{domain}_composed",
                operators=operators,
                ordered=execution_order(domain, operators),
                support=support,
                composed=True,
            )
        )
    return found
