"""Filter statistics: pure functions of a text, and the rule that compares them with bounds."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Collection

from rewards.gold.core import GoldError
from rewards.gold.ngrams import char_ngram_counts, repeated_share
from rewards.gold.patterns import std
from rewards.gold.special import SPECIAL_DJ
from rewards.gold.text import SPECIAL_BENCH, refined_words

_NOT_ASCII = r"[^\x00-\x7f]+"
_ALNUM_BYTES = (string.ascii_letters + string.digits).encode()
_SPECIAL_BYTES = (string.punctuation + string.digits + string.whitespace).encode()


def no_subwords(operator: str, tokenization: bool) -> None:
    if tokenization:
        raise GoldError(
            f"{operator}: tokenization=true needs a subword model that gold never used; leave it "
            "false"
        )


def _ratio_of(text: str, ascii_bytes: bytes, belongs: Callable[[str], bool]) -> float:
    """Share of characters that are in `ascii_bytes` or, outside ASCII, satisfy `belongs`."""
    if not text:
        return 0.0
    if text.isascii():
        rest, other = text.encode(), 0
    else:
        rest = text.encode("ascii", "ignore")
        other = sum(map(belongs, "".join(std(_NOT_ASCII).findall(text))))
    count = len(rest) - len(rest.translate(None, ascii_bytes))
    return (count + other) / len(text)


def alnum_ratio(text: str, tokenization: bool = False) -> float:
    no_subwords("alphanumeric_filter", tokenization)
    return _ratio_of(text, _ALNUM_BYTES, str.isalnum)


def avg_line_length(text: str) -> float:
    lines = text.splitlines()
    return len(text) / len(lines) if lines else 0.0


def max_line_length(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def text_len(text: str) -> int:
    return len(text)


def char_rep_ratio(text: str, rep_len: int = 10) -> float:
    total = len(text) - rep_len + 1
    if total < 1:
        return 0.0
    counts = char_ngram_counts(text, rep_len)
    # At most as many as occur more than once: a later count of 1 ends the sum.
    top = counts[: int(math.sqrt(len(counts)))]
    return sum(c for c in top if c > 1) / total


def word_rep_ratio(
    text: str, rep_len: int = 10, lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word_repetition_filter", tokenization)
    return repeated_share(refined_words(text.lower(), SPECIAL_BENCH), rep_len)


def word_rep_ratio_dj(
    text: str, rep_len: int = 10, lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word_repetition_filter", tokenization)
    return repeated_share(refined_words(text.lower(), SPECIAL_DJ), rep_len)


def num_words(text: str, lang: str = "en", tokenization: bool = False) -> int:
    no_subwords("words_num_filter", tokenization)
    return len(refined_words(text, SPECIAL_BENCH))


def num_words_dj(text: str, lang: str = "en", tokenization: bool = False) -> int:
    no_subwords("words_num_filter", tokenization)
    return len(refined_words(text, SPECIAL_DJ))


def special_char_ratio(text: str) -> float:
    return _ratio_of(text, _SPECIAL_BYTES, SPECIAL_BENCH.__contains__)


def special_char_ratio_dj(text: str) -> float:
    return _ratio_of(text, _SPECIAL_BYTES, SPECIAL_DJ.__contains__)


def _listed_ratio(text: str, word_list: Collection[str], special: frozenset[str]) -> float:
    words = refined_words(text.lower(), special)
    if not words:
        return 0.0
    listed = word_list if isinstance(word_list, frozenset) else frozenset(word_list)
    return min(sum(map(listed.__contains__, words)) / len(words), 1.0)


def listed_ratio(
    text: str, word_list: Collection[str], lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word-list filters", tokenization)
    return _listed_ratio(text, word_list, SPECIAL_BENCH)


def listed_ratio_dj(
    text: str, word_list: Collection[str], lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word-list filters", tokenization)
    return _listed_ratio(text, word_list, SPECIAL_DJ)


def within(
    value: float,
    low: float | None,
    high: float | None,
    *,
    min_closed_interval: bool = True,
    max_closed_interval: bool = True,
    reversed_range: bool = False,
) -> bool:
    """Whether a statistic passes. A bound of None is not checked.

    `reversed_range` keeps what lies outside; the ends flip with it, so that a value on a closed
    end is kept both ways.
    """
    closed_low = min_closed_interval is not reversed_range
    closed_high = max_closed_interval is not reversed_range
    inside = True
    if low is not None:
        inside = value >= low if closed_low else value > low
    if inside and high is not None:
        inside = value <= high if closed_high else value < high
    return inside is not reversed_range
