"""Text helpers shared by the operators: character sets, words, and the sub-sentence split."""

from __future__ import annotations

import functools
import re
import string

SYMBOLS = "◆●■►▼▲▴∆▻▷❖♡□"
SPECIAL_BENCH = frozenset(string.punctuation + string.digits + string.whitespace + SYMBOLS)
# Above this length the benchmark pipeline returns the text untouched for its two slowest mappers.
MAX_GUARDED_LENGTH = 80_000


@functools.lru_cache(maxsize=4)
def _refined(special: frozenset[str]) -> re.Pattern[str]:
    """One refined word: from a character that is not special to the last such before a break."""
    inside = "[^" + "".join(map(re.escape, sorted(special))) + "]"
    return re.compile(rf"{inside}(?:[^ \n\t]*{inside})?")


def refined_words(text: str, special: frozenset[str]) -> list[str]:
    """Words between spaces, newlines and tabs, with special characters stripped from both ends.

    Emptied words are dropped, so `special` must hold the three separators. For lower-cased words
    pass a lower-cased text: case rules never look across white space.
    """
    return _refined(special).findall(text)


def split_cells(text: str) -> list[list[list[str]]]:
    """Lines, their tab-separated cells, and the space-separated words of each cell."""
    return [[cell.split(" ") for cell in line.split("\t")] for line in text.split("\n")]


def merge_cells(lines: list[list[list[str]]]) -> str:
    """The inverse of `split_cells`, except that empty words, cells and lines disappear."""
    merged: list[str] = []
    for line in lines:
        cells = [" ".join(w for w in cell if w) for cell in line]
        merged.append("\t".join(c for c in cells if c))
    return "\n".join(m for m in merged if m)
