"""Filter statistics: pure functions of a text, and the rule that compares them with bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from rewards.gold.core import GoldError
from rewards.gold.special import SPECIAL_DJ
from rewards.gold.text import SPECIAL_BENCH, refined_words

STRIP_BENCH = "".join(sorted(SPECIAL_BENCH))
STRIP_DJ = "".join(sorted(SPECIAL_DJ))


def no_subwords(operator: str, tokenization: bool) -> None:
    if tokenization:
        raise GoldError(
            f"{operator}: tokenization=true needs a subword model that gold never used; leave it "
            "false"
        )


def alnum_ratio(text: str, tokenization: bool = False) -> float:
    no_subwords("alphanumeric_filter", tokenization)
    return sum(map(str.isalnum, text)) / len(text) if text else 0.0


def avg_line_length(text: str) -> float:
    lines = text.splitlines()
    return len(text) / len(lines) if lines else 0.0


def max_line_length(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def text_len(text: str) -> int:
    return len(text)


def char_rep_ratio(text: str, rep_len: int = 10) -> float:
    counts = Counter(text[i : i + rep_len] for i in range(len(text) - rep_len + 1))
    if not counts:
        return 0.0
    ordered = sorted(counts.values(), reverse=True)
    repeated = sum(1 for c in ordered if c > 1)
    top = min(int(math.sqrt(len(ordered))), repeated)
    return sum(ordered[:top]) / sum(ordered)


def _word_rep(text: str, rep_len: int, strip: str) -> float:
    words = refined_words(text, strip, lower=True)
    counts = Counter(" ".join(words[i : i + rep_len]) for i in range(len(words) - rep_len + 1))
    if not counts:
        return 0.0
    return sum(c for c in counts.values() if c > 1) / sum(counts.values())


def word_rep_ratio(
    text: str, rep_len: int = 10, lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word_repetition_filter", tokenization)
    return _word_rep(text, rep_len, STRIP_BENCH)


def word_rep_ratio_dj(
    text: str, rep_len: int = 10, lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word_repetition_filter", tokenization)
    return _word_rep(text, rep_len, STRIP_DJ)


def num_words(text: str, lang: str = "en", tokenization: bool = False) -> int:
    no_subwords("words_num_filter", tokenization)
    return len(refined_words(text, STRIP_BENCH, lower=False))


def num_words_dj(text: str, lang: str = "en", tokenization: bool = False) -> int:
    no_subwords("words_num_filter", tokenization)
    return len(refined_words(text, STRIP_DJ, lower=False))


def special_char_ratio(text: str) -> float:
    return sum(1 for c in text if c in SPECIAL_BENCH) / len(text) if text else 0.0


def special_char_ratio_dj(text: str) -> float:
    return sum(1 for c in text if c in SPECIAL_DJ) / len(text) if text else 0.0


def _listed_ratio(text: str, word_list: Collection[str], strip: str) -> float:
    words = refined_words(text, strip, lower=True)
    if not words:
        return 0.0
    listed = word_list if isinstance(word_list, frozenset) else frozenset(word_list)
    return min(sum(1 for w in words if w in listed) / len(words), 1.0)


def listed_ratio(
    text: str, word_list: Collection[str], lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word-list filters", tokenization)
    return _listed_ratio(text, word_list, STRIP_BENCH)


def listed_ratio_dj(
    text: str, word_list: Collection[str], lang: str = "en", tokenization: bool = False
) -> float:
    no_subwords("word-list filters", tokenization)
    return _listed_ratio(text, word_list, STRIP_DJ)


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
