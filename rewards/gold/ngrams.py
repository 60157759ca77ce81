"""Counting n-grams: exact, in numpy where the text is long enough for that to pay."""

from __future__ import annotations

from collections import Counter

# Below this many n-grams a dictionary is faster than setting up the arrays.
_SMALL = 400


def char_ngram_counts(text: str, n: int) -> list[int]:
    """How often each distinct substring of length n occurs, most frequent first; n ≥ 1."""
    total = len(text) - n + 1
    if total >= _SMALL:
        counts = _packed_counts(text, n)
        if counts is not None:
            return counts
    return sorted(Counter(text[i : i + n] for i in range(total)).values(), reverse=True)


def _packed_counts(text: str, n: int) -> list[int] | None:
    """Counts by sorting n-grams packed into 64-bit numbers; None where they would not fit."""
    import numpy as np

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    used = np.zeros(int(codes.max()) + 1, dtype=np.uint64)
    used[codes] = 1
    base = int(used.sum())
    if base**n >= 2**64:
        return None
    keys = (np.cumsum(used, dtype=np.uint64) - np.uint64(1))[codes]
    # Square-and-multiply over positions: `keys` holds the numbers of all substrings of `length`.
    digits, length = keys, 1
    for bit in bin(n)[3:]:
        keys = keys[:-length] * np.uint64(base**length) + keys[length:]
        length *= 2
        if bit == "1":
            keys = keys[:-1] * np.uint64(base) + digits[length:]
            length += 1
    keys = np.sort(keys)
    ends = np.flatnonzero(keys[1:] != keys[:-1])
    counts = np.diff(ends, prepend=-1, append=len(keys) - 1)
    counts.sort()
    return counts[::-1].tolist()


def repeated_share(words: list[str], n: int) -> float:
    """Share of word n-grams that occur more than once; 0.0 where there are none."""
    total = len(words) - n + 1
    if n < 1 or total < 1 or len(set(words)) == len(words):
        return 0.0
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    return sum(c for c in counts.values() if c > 1) / total
