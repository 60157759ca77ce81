"""Words and numbers that stand for no value."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# in a column of numbers or dates, whatever their case: what pandas, R, SQL and spreadsheets write
WORDS = frozenset(
    (
        *("", "na", "n/a", "n.a.", "n.a", "#n/a", "#na", "nan", "-nan", "null", "none", "nil"),
        *("<na>", "(null)", "(none)", "\\n"),
        *("#value!", "#ref!", "#div/0!", "#num!", "#name?", "#null!"),
    )
)
# what people write in such columns for no value, or for some value: in doubt until it is told
OPEN_WORDS = frozenset(
    (
        *("-", "--", "---", "–", "—", ".", "..", "...", "…", "?", "*", "m", "x", "missing"),
        *("unknown", "n/d", "n.d.", "nd", "nodata", "no data", "void", "undefined", "s/d"),
        *("not available", "no value", "not applicable", "k.a."),
    )
)
ANY_WORDS = WORDS | OPEN_WORDS
# in a column of text, as they are written here: nothing that could be a category
TEXT_WORDS = frozenset(
    ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "<NA>", "(null)", "\\N", "?")
)

# numbers that stand for no value by habit; years and prices are none of them
_NINES = (99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0)
_TYPICAL = frozenset(
    (
        *_NINES,
        *(-n for n in _NINES),
        *(-99.9, -999.9, -9999.9, 999.9, 9999.9, -99.99, -999.99),
        *(-888.0, -8888.0, -777.0, -7777.0, -32768.0, -2147483648.0),
        *(77.0, 88.0, 777.0, 888.0, 7777.0, 8888.0, 997.0, 998.0, 9997.0, 9998.0),
        *(-1.0, -7.0, -8.0, -9.0, -88.0, -77.0, -97.0, -98.0, -997.0, -998.0),
        *(9.969209968386869e36, -3.4028234663852886e38, 1e20, 1e30, -1e30),
    )
)
# days that stand for no value, or for one that is open
NO_DAYS = (
    *("9999-12-31", "9999-01-01", "9999-09-09", "2999-12-31", "2999-01-01", "2099-12-31"),
    *("1111-11-11", "0001-01-01", "1800-01-01", "1899-12-30", "1899-12-31", "1900-01-01"),
    *("1900-01-02", "1901-01-01", "1970-01-01"),
)
# how they are written
SPELLINGS = frozenset(
    spelled
    for value in _TYPICAL
    for text in (f"{value:.0f}", f"{value:.1f}", f"{value:.2f}", f"{value:.3f}", repr(value))
    if float(text) == value
    for spelled in (text, text.replace(".", ","))
)
_SMALL = (-1.0, -7.0, -8.0, -9.0)  # that mean no value only beside numbers of 1 and above
_LEAST = 10  # other values that a column must have
_OFTEN = 5  # times that a number among the others stands there, before it is suspicious
_DIGITS = frozenset("0123456789")


def as_number(word: str, decimal: str = ".") -> float | None:
    """The number that a sentinel is, None for a word."""
    text = word.strip().replace(",", ".") if decimal == "," else word.strip()
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and text[-1:].isdigit() else None


def missing_words(cells: Iterable[str]) -> tuple[str, ...]:
    """The distinct `cells` of a column of numbers or dates that mean no value."""
    return tuple(c for c in _said(cells, WORDS) if c)


def open_words(cells: Iterable[str]) -> tuple[str, ...]:
    """The distinct `cells` of such a column that may mean no value."""
    return tuple(_said(cells, OPEN_WORDS))


def _said(cells: Iterable[str], words: frozenset[str]) -> list[str]:
    """The cells that say one of the words, none of which ends with a digit."""
    wordy = [c for c in cells if c[-1:] not in _DIGITS]
    return sorted(c for c in wordy if c.strip().casefold() in words)


def missing_in_text(cells: Mapping[str, int]) -> tuple[str, ...]:
    """The same for a column of text. NA among two-letter codes is one of them (Namibia)."""
    found = sorted(c for c in cells if c.strip() in TEXT_WORDS)
    others = [c for c in cells if c and c not in found]
    codes = sum(len(c) == 2 and c.isalpha() and c.isupper() for c in others)
    if codes >= 0.7 * len(others):
        found = [c for c in found if c.strip() != "NA"]
    return tuple(found)


@dataclass(frozen=True)
class Sentinel:
    """A number that may mean no value: how often it stands there, and the range of the others."""

    value: float
    times: int
    rows: int
    low: float
    high: float


def may_be_missing(values: Iterable[float]) -> bool:
    """Whether one of the numbers is typical for no value."""
    return not _TYPICAL.isdisjoint(values)


def sentinels(counts: Mapping[float, int]) -> list[Sentinel]:
    """The numbers that may mean no value in a column, from its numbers with counts.

    A typical number (-9999, 999) outside the range of the rest that is repeated or very far away,
    or one inside it that stands there far more often than any other.
    """
    typical = {v: n for v, n in counts.items() if v in _TYPICAL}
    rest = {v: n for v, n in counts.items() if v not in typical and v == v}
    if not typical or sum(rest.values()) < _LEAST:
        return []
    rows = sum(counts.values())
    return _judged(typical, min(rest), max(rest), rows, len(rest), lambda: max(rest.values()))


def sentinels_of(column: Any) -> list[Sentinel]:
    """The same of a numeric pandas column."""
    low, high = column.min(), column.max()
    possible = [v for v in _TYPICAL if low <= v <= high]
    typical = column[column.isin(possible)] if possible else column[:0]
    if typical.empty:
        return []
    counts = {float(k): int(n) for k, n in typical.value_counts().items()}
    ends = low in counts or high in counts
    if not ends and not any(n > _OFTEN and abs(v) >= 999 for v, n in counts.items()):
        return []  # all of them stand among the others, and none often
    rest = column[column.notna() & ~column.isin(list(counts))]
    if len(rest) < _LEAST:
        return []
    rows = int(column.notna().sum())

    def most() -> int:
        return int(rest.value_counts().iloc[0])

    ends = float(rest.min()), float(rest.max())
    return _judged(counts, *ends, rows, int(rest.nunique()), most)


def _judged(
    counts: Mapping[float, int],
    low: float,
    high: float,
    rows: int,
    others: int,
    most: Callable[[], int],
) -> list[Sentinel]:
    """`others`: how many other numbers there are; `most`: how often the most frequent of them
    stands there."""
    width = high - low
    found: list[Sentinel] = []
    for value, times in sorted(counts.items()):
        gap = low - value if value < low else value - high
        if value in _SMALL:
            far = low >= 1 and others >= _LEAST and times > 2 and times >= most()
        elif value < 0:
            far = gap > 0 and (low >= 0 or gap >= 0.5 * width)
            far = far and (times > 1 or gap >= width)
        else:
            far = gap >= 10 * width > 0 or (gap >= width and times > 1)
            far = far or (times > 1 and value >= 777 and gap >= 0.5 * width)
            far = far or (times > 2 and value >= 777 and gap > 0 and times >= 3 * most())
        if far or (times > _OFTEN and abs(value) >= 777 and times >= 3 * most()):
            found.append(Sentinel(value, times, rows, low, high))
    return found
