"""Words exchanged for invented ones, so that recall from memory does not help.

A bijection over words, applied to every text of a view (files, file names, question, answers,
steps), keeps equality, joins, prefixes and splits. New words are handed out in the old words'
alphabetical order, so sorting among them is kept too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any, cast

WORD = re.compile(r"[^\W\d_]+")
_KEPT = """
january february march april may june july august september october november december
jan feb mar apr jun jul aug sep sept oct nov dec
monday tuesday wednesday thursday friday saturday sunday
yes no true false the and nan none null total mean average median
year month date number other unknown
"""
CALENDAR = frozenset(_KEPT.split())  # words that say when or how much: never exchanged


def new_words(count: int, seed: int, taken: frozenset[str]) -> list[str]:
    """`count` distinct pronounceable words that are in no text, in alphabetical order."""
    rng = Random(seed)
    made: set[str] = set()
    while len(made) < count:
        size = rng.choice((2, 3, 3, 4))
        word = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(size))
        word += rng.choice(("", "n", "r", "x"))
        if word not in taken:
            made.add(word)
    return sorted(made)


def exchange(text: str, names: Mapping[str, str]) -> str:
    """`text` with every known word exchanged, in the case it is written in."""

    def one(match: re.Match[str]) -> str:
        word = match.group(0)
        other = names.get(word.lower())
        if other is None:
            return word
        if word.isupper() and len(word) > 1:
            return other.upper()
        return other.capitalize() if word[0].isupper() else other

    return WORD.sub(one, text)


def exchange_all(value: Any, names: Mapping[str, str]) -> Any:
    """The same for every text inside nested lists and objects (keys stay)."""
    if isinstance(value, str):
        return exchange(value, names)
    if isinstance(value, list):
        return [exchange_all(v, names) for v in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: exchange_all(v, names) for k, v in cast("dict[str, Any]", value).items()}
    return value
