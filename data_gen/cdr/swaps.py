"""Order pairs: two neighbouring mappers exchanged, where it changes the result (order_m)."""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz.distance import Levenshtein

from configs.cdr import SwapConfig
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.records import Record, Replays, supporters
from data_gen.cdr.tracks import SwapPair
from rewards.cdr.ids import stable_id
from rewards.parse import normalise


def swap_pairs(
    entry: LibraryRecipe, records: Sequence[Record], config: SwapConfig, replays: Replays
) -> list[SwapPair]:
    """At most `per_recipe` pairs whose space-normalised texts differ; records outside, swaps in."""
    order = entry.recipe.ordered
    variant = entry.variants[0].id
    salt = f"{entry.domain}:{entry.recipe.id}:{variant}"
    own = supporters([r for r in records if r.domain == entry.domain], entry.recipe.operators)
    if config.language == "en":
        own = [record for record in own if is_english(record)]
    own.sort(key=lambda r: r.order_key(salt))
    found: list[SwapPair] = []
    for record in own[: config.max_records]:
        try:
            states = replays.states(record.text, order)
            for i in range(len(order) - 1):
                swapped = (*order[:i], order[i + 1], order[i], *order[i + 2 :])
                text = replays.states(states[i], swapped[i:])[-1]
                if len(found) < config.per_recipe and normalise(text) != normalise(states[-1]):
                    found.append(_pair(entry, record, i, swapped, states[-1], text))
        except ValueError:
            continue
        if len(found) >= config.per_recipe:
            break
    return found


def _pair(
    entry: LibraryRecipe, record: Record, i: int, swapped: tuple[str, ...], one: str, other: str
) -> SwapPair:
    family = f"{entry.recipe.id}__mapper_order_family__swap_{i}_{i + 1}"
    return SwapPair(
        record=record,
        recipe_id=entry.recipe.id,
        family_id=family,
        group=stable_id(family, record.id),
        swapped_id=stable_id(family, record.id, "swapped"),
        canonical=entry.recipe.ordered,
        swapped=swapped,
        canonical_text=one,
        swapped_text=other,
        edit_distance=Levenshtein.distance(one, other),
        domain=entry.domain,
        composed=entry.recipe.composed,
    )


def is_english(record: Record) -> bool:
    """By the record's language if it states one, else by its letters (spec section 8)."""
    if record.language:
        return record.language.lower().startswith("en")
    text = record.text
    cjk = sum("\u4e00" <= c <= "\u9fff" or "\u3040" <= c <= "\u30ff" for c in text)
    latin = sum(c.isascii() and c.isalpha() for c in text)
    letters = sum(c.isalpha() for c in text)
    few = cjk < 3 and cjk <= 0.005 * max(len(text), 1)
    return few and latin >= 20 and latin >= 0.8 * letters
