"""Filter statistics: pure functions of a text, and the rule that compares them with bounds."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from rewards.gold.core import SPECIAL_BENCH, SPECIAL_DJ, Count, GoldError, refined_words, std

_NOT_ASCII = r"[^\x00-\x7f]+"
_ALNUM_BYTES = (string.ascii_letters + string.digits).encode()
_SPECIAL_BYTES = (string.punctuation + string.digits + string.whitespace).encode()


def no_subwords(operator: str, tokenization: bool) -> None:
    """Raise `GoldError` where a recipe asks for subwords."""
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
    """Compute the share of letters and digits in the text."""
    no_subwords("alphanumeric_filter", tokenization)
    return _ratio_of(text, _ALNUM_BYTES, str.isalnum)


def avg_line_length(text: str) -> float:
    """Compute the characters of the text, newlines included, over its number of lines."""
    lines = text.splitlines()
    return len(text) / len(lines) if lines else 0.0


def max_line_length(text: str) -> int:
    """Compute the length of the longest line."""
    return max(map(len, text.splitlines()), default=0)


def text_len(text: str) -> int:
    """Compute the number of characters (code points)."""
    return len(text)


def char_rep_ratio(text: str, rep_len: Count = 10) -> float:
    """Compute the share of the most frequent character n-grams among all of them."""
    total = len(text) - rep_len + 1
    if total < 1:
        return 0.0
    counts = char_ngram_counts(text, rep_len)
    # At most as many as occur more than once: a later count of 1 ends the sum.
    top = counts[: int(math.sqrt(len(counts)))]
    return sum(c for c in top if c > 1) / total


def word_rep_ratio(
    text: str,
    rep_len: Count = 10,
    lang: str = "en",
    tokenization: bool = False,
    *,
    special: frozenset[str] = SPECIAL_BENCH,
) -> float:
    """Compute the share of word n-grams that occur more than once."""
    no_subwords("word_repetition_filter", tokenization)
    return repeated_share(refined_words(text.lower(), special), rep_len)


def num_words(
    text: str,
    lang: str = "en",
    tokenization: bool = False,
    *,
    special: frozenset[str] = SPECIAL_BENCH,
) -> int:
    """Compute the number of words that are more than digits and punctuation."""
    no_subwords("words_num_filter", tokenization)
    return len(refined_words(text, special))


def special_char_ratio(text: str, *, special: frozenset[str] = SPECIAL_BENCH) -> float:
    """Compute the share of characters that are punctuation, digits, white space or listed
    symbols."""
    return _ratio_of(text, _SPECIAL_BYTES, special.__contains__)


def listed_ratio(
    text: str,
    word_list: Collection[str],
    lang: str = "en",
    tokenization: bool = False,
    *,
    special: frozenset[str] = SPECIAL_BENCH,
) -> float:
    """Compute the share of words that are in `word_list`, in [0, 1]."""
    no_subwords("word-list filters", tokenization)
    words = refined_words(text.lower(), special)
    if not words:
        return 0.0
    listed = word_list if isinstance(word_list, frozenset) else frozenset(word_list)
    return min(sum(map(listed.__contains__, words)) / len(words), 1.0)


word_rep_ratio_dj, num_words_dj, special_char_ratio_dj, listed_ratio_dj = (
    partial(statistic, special=SPECIAL_DJ)
    for statistic in (word_rep_ratio, num_words, special_char_ratio, listed_ratio)
)


def within(
    value: float,
    low: float | None,
    high: float | None,
    *,
    min_closed_interval: bool = True,
    max_closed_interval: bool = True,
    reversed_range: bool = False,
) -> bool:
    """Tell whether a statistic passes its bounds. A bound of None is not checked.

    `reversed_range` keeps what lies outside; the ends flip with it, so that a value on a closed end
    is kept both ways.
    """
    closed_low = min_closed_interval is not reversed_range
    closed_high = max_closed_interval is not reversed_range
    inside = True
    if low is not None:
        inside = value >= low if closed_low else value > low
    if inside and high is not None:
        inside = value <= high if closed_high else value < high
    return inside is not reversed_range


# ---- n-grams

# Below this many n-grams a dictionary is faster than setting up the arrays.
_SMALL = 400


def char_ngram_counts(text: str, n: int) -> list[int]:
    """Count how often each distinct substring of length n occurs, most frequent first; n ≥ 1."""
    total = len(text) - n + 1
    if total >= _SMALL:
        return _packed_counts(text, n)
    return sorted(Counter(text[i : i + n] for i in range(total)).values(), reverse=True)


def _packed_counts(text: str, n: int) -> list[int]:
    """Counts by numbering the n-grams and sorting the numbers."""
    import numpy as np

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    used = np.zeros(int(codes.max()) + 1, dtype=np.uint64)
    used[codes] = 1
    base = int(used.sum())
    digits = (np.cumsum(used, dtype=np.uint64) - np.uint64(1))[codes]
    # Square-and-multiply over positions: `keys[i]`, below `size`, numbers text[i : i + length].
    keys, size, length = digits, base, 1
    for bit in bin(n)[3:]:
        if size * size * (base if bit == "1" else 1) >= 2**64:
            # Renumbering densely leaves at most len(text) numbers.
            _, keys = np.unique(keys, return_inverse=True)
            keys = keys.astype(np.uint64)
            size = len(text)
        keys = keys[:-length] * np.uint64(size) + keys[length:]
        size, length = size * size, 2 * length
        if bit == "1":
            keys = keys[:-1] * np.uint64(base) + digits[length:]
            size, length = size * base, length + 1
    keys = np.sort(keys)
    ends = np.flatnonzero(keys[1:] != keys[:-1])
    counts = np.diff(ends, prepend=-1, append=len(keys) - 1)
    counts.sort()
    return counts[::-1].tolist()


def repeated_share(words: list[str], n: int) -> float:
    """Compute the share of word n-grams that occur more than once, in [0, 1]; 0.0 where there
    are none."""
    total = len(words) - n + 1
    if n < 1 or total < 1 or len(set(words)) == len(words):
        return 0.0
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    return sum(c for c in counts.values() if c > 1) / total
