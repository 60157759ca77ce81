"""Text helpers shared by the operators: character sets, words, and the sub-sentence split."""

from __future__ import annotations

import string

SYMBOLS = "◆●■►▼▲▴∆▻▷❖♡□"
SPECIAL_BENCH = frozenset(string.punctuation + string.digits + string.whitespace + SYMBOLS)
# Above this length the benchmark pipeline returns the text untouched for its two slowest mappers.
MAX_GUARDED_LENGTH = 80_000

# Whitespace that separates words for str.split but not for the operators.
_OTHER_ASCII_SPACE = "\r\x0b\x0c\x1c\x1d\x1e\x1f"


def split_words(text: str) -> list[str]:
    """Pieces between spaces, newlines and tabs; every other white space stays inside a word."""
    if text.isascii() and not any(c in text for c in _OTHER_ASCII_SPACE):
        return text.split()
    pieces = text.replace("\n", " ").replace("\t", " ").split(" ")
    return [p for p in pieces if p]


def refined_words(text: str, strip: str, lower: bool) -> list[str]:
    """Words with the characters of `strip` taken off both ends; emptied words are dropped."""
    words = split_words(text)
    if lower:
        words = [w.lower() for w in words]
    return [s for w in words if (s := w.strip(strip))]


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
