"""Order pairs: two neighbouring mappers exchanged, where it changes the result (order_m)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from configs.cdr import SwapConfig
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.records import Record, Replays
from data_gen.cdr.tracks import SwapPair
from rewards.cdr.release_files import stable_id
from rewards.parse import edit_distance, same_text


def swap_pairs(
    entry: LibraryRecipe, own: Iterable[Record], config: SwapConfig, replays: Replays
) -> Iterator[SwapPair]:
    """At most `per_recipe` pairs whose space-normalised texts differ; records outside, swaps in.

    `own`: the supporting records in the order of their hash, at most `max_records` of them.
    """
    order = entry.recipe.ordered
    count = 0
    for record in own:
        try:
            states = replays.states(record.text, order)
            for i in range(len(order) - 1):
                text = replays.states(states[i], swapped(order, i)[i:])[-1]
                if count < config.per_recipe and not same_text(text, states[-1]):
                    count += 1
                    yield swap_pair(entry, record, i, states[-1], text)
        except (ValueError, RecursionError):
            continue
        if count >= config.per_recipe:
            break


def swapped(order: tuple[str, ...], i: int) -> tuple[str, ...]:
    """The sequence with places i and i + 1 exchanged."""
    return (*order[:i], order[i + 1], order[i], *order[i + 2 :])


def swap_pair(entry: LibraryRecipe, record: Record, i: int, one: str, other: str) -> SwapPair:
    """The pair of a swap from its two texts."""
    family = f"{entry.recipe.id}__mapper_order_family__swap_{i}_{i + 1}"
    return SwapPair(
        record=record,
        recipe_id=entry.recipe.id,
        family_id=family,
        group=stable_id(family, record.id),
        swapped_id=stable_id(family, record.id, "swapped"),
        canonical=entry.recipe.ordered,
        swapped=swapped(entry.recipe.ordered, i),
        canonical_text=one,
        swapped_text=other,
        edit_distance=edit_distance(one, other),
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
