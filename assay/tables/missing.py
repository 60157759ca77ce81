"""Words and numbers that stand for no value."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# in a column of numbers or dates, whatever their case
WORDS = frozenset(
    (
        *("", "na", "n/a", "n.a.", "n.a", "#n/a", "#na", "nan", "-nan", "null", "none", "nil"),
        *("<na>", "(null)", "(none)", "\\n", "-", "--", "---", "–", "—", ".", "..", "...", "…"),
        *("?", "*", "m", "x", "missing", "unknown", "n/d", "n.d.", "nd", "nodata", "no data"),
        *("void", "undefined", "not available", "no value", "not applicable", "k.a.", "s/d"),
        *("#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!"),
    )
)
# in a column of text, as they are written here: nothing that could be a category
TEXT_WORDS = frozenset(
    ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "<NA>", "(null)", "\\N", "?")
)
SHORT = frozenset(("m", "x", "*", "nd"))  # believed where they are repeated only

# numbers that stand for no value by habit; years and prices are none of them
_NINES = (99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0)
_TYPICAL = frozenset(
    (
        *_NINES,
        *(-n for n in _NINES),
        *(-99.9, -999.9, -9999.9, 999.9, 9999.9, -99.99, -999.99),
        *(-888.0, -8888.0, -777.0, -7777.0, -32768.0, -2147483648.0),
        *(9.969209968386869e36, -3.4028234663852886e38, 1e20, 1e30, -1e30),
    )
)
# how they are written
SPELLINGS = frozenset(
    spelled
    for value in _TYPICAL
    for text in (f"{value:.0f}", f"{value:.1f}", f"{value:.2f}", f"{value:.3f}", repr(value))
    if float(text) == value
    for spelled in (text, text.replace(".", ","))
)
_NOTED = 0.005  # of the rows: a typical number inside the range that is worth a word
_LEAST = 10  # other values that a column must have


def as_number(word: str, decimal: str = ".") -> float | None:
    """The number that a sentinel is, None for a word."""
    text = word.strip().replace(",", ".") if decimal == "," else word.strip()
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and text[-1:].isdigit() else None


def missing_words(cells: Mapping[str, int]) -> tuple[str, ...]:
    """The distinct `cells` (with counts) of a column of numbers or dates that mean no value."""
    found = [c for c in cells if c and c.strip().casefold() in WORDS]
    kept = [c for c in found if c.strip().casefold() not in SHORT or cells[c] > 1]
    return tuple(sorted(kept))


def missing_in_text(cells: Mapping[str, int]) -> tuple[str, ...]:
    """The same for a column of text. NA among two-letter codes is one of them (Namibia)."""
    found = sorted(c for c in cells if c.strip() in TEXT_WORDS)
    others = [c for c in cells if c and c not in found]
    codes = sum(len(c) == 2 and c.isalpha() and c.isupper() for c in others)
    if codes >= 0.7 * len(others):
        found = [c for c in found if c.strip() != "NA"]
    return tuple(found)


def sentinels(counts: Mapping[float, int]) -> tuple[list[float], list[float]]:
    """(numbers that mean no value, numbers that may) of a column, from its numbers with counts.

    A typical number, repeated, far outside the range of the rest. Negative ones are believed where
    nothing else is negative, or half the range of the rest away; positive ones at three times it.
    """
    typical = {v: n for v, n in counts.items() if v in _TYPICAL}
    rest = [v for v in counts if v not in typical and v == v]
    if not typical or sum(counts[v] for v in rest) < _LEAST:
        return [], []
    return _judged(typical, min(rest), max(rest), sum(counts.values()))


def sentinels_of(column: Any) -> tuple[list[float], list[float]]:
    """The same of a numeric pandas column."""
    typical = column[column.isin(sorted(_TYPICAL))]
    if typical.empty:
        return [], []
    counts = {float(k): int(n) for k, n in typical.value_counts().items()}
    rest = column[column.notna() & ~column.isin(list(counts))]
    if len(rest) < _LEAST:
        return [], []
    return _judged(counts, float(rest.min()), float(rest.max()), len(column))


def _judged(
    counts: Mapping[float, int], low: float, high: float, rows: int
) -> tuple[list[float], list[float]]:
    width = high - low
    sure: list[float] = []
    maybe: list[float] = []
    for value, times in sorted(counts.items()):
        gap = low - value if value < low else value - high
        if times < 2:
            continue
        if value < 0:
            far = gap > 0 and (low >= 0 or gap >= (0.5 if times > 2 else 2) * width)
            if far or times >= _NOTED * rows:
                (sure if far else maybe).append(value)
        elif times > 2 and gap >= 3 * width > 0:
            sure.append(value)
        elif value >= 999 and gap > 0:
            maybe.append(value)
    return sure, maybe
