"""Counting n-grams: exact, in numpy where the text is long enough for that to pay."""

from __future__ import annotations

from collections import Counter

# Below this many n-grams a dictionary is faster than setting up the arrays.
_SMALL = 400


def char_ngram_counts(text: str, n: int) -> list[int]:
    """How often each distinct substring of length n occurs, most frequent first; n ≥ 1."""
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
    """Share of word n-grams that occur more than once; 0.0 where there are none."""
    total = len(words) - n + 1
    if n < 1 or total < 1 or len(set(words)) == len(words):
        return 0.0
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    return sum(c for c in counts.values() if c > 1) / total
