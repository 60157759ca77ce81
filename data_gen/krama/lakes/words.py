"""Words of questions, and how sure an answer must be: ties, rounding, guessing."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from math import comb

from data_gen.krama.lakes.ops import Cut, Sign, Summary

WORDS: dict[Summary, str] = {
    "mean": "mean",
    "median": "median",
    "total": "total",
    "largest": "largest value",
    "std": "standard deviation (n - 1)",
}
SIGNS: dict[Sign, str] = {">": "above", "<": "below", ">=": "of at least", "<=": "of at most"}
CUTS: dict[Cut, str] = {
    "after_comma": "part of {} after the last comma",
    "before_comma": "part of {} before the last comma",
    "in_brackets": "text in brackets at the end of {}",
}
PLACES = {2: "second", 3: "third"}
ONE_ROW = -1.0  # the margin of a question that summarises a single row
GUESSES = 20  # lists among which a question asks for one, at least
NAMES_LEAST = 6  # groups among which a question asks for one name, at least

# how far the k-th of the sorted groups is from the next, relative
GAP = "float(abs(g.iloc[{k}] - g.iloc[{k} - 1]) / max(abs(g.iloc[{k} - 1]), 1e-9))"

# a title and its code ask for one thing twice: some name must meet several of the other column
PAIRED = (
    "({gap}) if max(g.groupby(level=0).size().max(), g.groupby(level=1).size().max()) > 1 else 0.0"
)


def enough(groups: int, k: int) -> bool:
    """Whether k of so many groups can hardly be guessed, nor all of them listed for credit."""
    return groups >= 2 * k and comb(groups, k) >= GUESSES


def one_order(values: Iterable[str]) -> bool:
    """Whether names have one alphabetical order: not where capitals or accents decide (is Ö beside
    O, or behind Z?), nor in scripts without an alphabet."""
    listed = sorted(values)
    if any(unicodedata.category(c) == "Lo" for value in listed for c in value):
        return False
    return listed == sorted(listed, key=_folded)


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


def decimals(digits: int) -> str:
    """How a question says to round."""
    if digits == 0:
        return "rounded to a whole number"
    return f"rounded to {digits} decimal{'s' if digits > 1 else ''}"
