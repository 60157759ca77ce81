"""How numbers are written: the marks before decimals and between thousands, and the words and
numbers that stand for no value."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from assay.tables.settings import Doubt, shown, yaml_list, yaml_word

SIGNS = "$€£%"
_LEFT_OUT = "$€£% \t\r\u00a0\u202f"  # of a number, but not line ends
_SIGNED = re.compile(f"[{_LEFT_OUT}]")
_WRITTEN = {"'": "'’", " ": " \u00a0\u202f"}  # how marks between thousands are written
_SHARE = 0.7  # of the filled cells of a column of numbers
_LOOKS = re.compile(
    r"[\s$€£]*[-+]?[\s$€£]*(?:[0-9]{1,3}(?:[.,'’ \u00a0\u202f][0-9]{3})+(?:[.,][0-9]*)?"
    r"|[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?[\s$€£%]*"
)
# codes with leading zeros, 12E3, and more digits than fit 64 bits
_CODE = re.compile(
    r"\s*[-+]?(?:0[0-9]*[1-9][0-9]*|0[0-9]+[.,][0-9]+|[0-9]{19,}|[0-9]+[eE][0-9]+)\s*"
)
# what a column is where every cell is one: an address of a network, a month and its year
_ALIKE = tuple(
    re.compile(form)
    for form in (
        r"\s*(?:(?:1?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])\.){3}(?:1?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])\s*",
        r"\s*(?:0?[1-9]|1[0-2])[.,](?:19|20)[0-9]{2}\s*",
    )
)
# numbers that are no codes and have no sign of money, and no mark but a decimal point; each ends a
# line
_SIMPLE = re.compile(r"(?:-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+)?\n)*+")
_TWICE = {m: re.compile(rf"\{m}[0-9]{{3}}\{m}") for m in ".,"}
_SMALL = re.compile(r"^[-+]?[0-9]{1,3}$", re.M)
_OPEN = re.compile(r"^[-+]?[0-9]{1,3}[.,][0-9]{3}$", re.M)
_GROUPED = {
    **{m: re.compile(rf"^[-+]?[0-9]{{1,3}}(\{m}[0-9]{{3}})+([.,][0-9]*)?$", re.M) for m in ".,"},
    "'": re.compile(r"^[-+]?[0-9]{1,3}(['’][0-9]{3})+([.,][0-9]*)?$", re.M),
    " ": re.compile(r"^ *[-+]?[0-9]{1,3}([ \u00a0\u202f][0-9]{3})+([.,][0-9]*)? *$", re.M),
}


@cache
def plain_number(decimal: str) -> re.Pattern[str]:
    """What pandas' reader takes for a number with this decimal mark."""
    mark = "," if decimal == "," else r"\."
    return re.compile(rf" *[-+]?(?:[0-9]+(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][-+]?[0-9]+)? *")


@cache
def marked_number(decimal: str, thousands: str) -> re.Pattern[str]:
    """A number with marks between thousands, and with the signs of money or per cent."""
    mark = "," if decimal == "," else r"\."
    group = {" ": "[ \u00a0\u202f]", "'": "['’]"}.get(thousands, f"[{thousands}]")
    grouped = rf"[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|" if thousands else ""
    digits = rf"(?:{grouped}[0-9]+)(?:{mark}[0-9]*)?|{mark}[0-9]+"
    return re.compile(rf" *(?:[-+]?[$€£]?|[$€£][-+]?) ?(?:{digits})(?:[eE][-+]?[0-9]+)? ?[$€£%]? *")


@cache
def _sure(mark: str, group: str) -> re.Pattern[str]:
    """Numbers with this decimal mark and this mark between thousands that cannot be meant the
    other way round, each on a line."""
    m, g = re.escape(mark), re.escape(group)
    sure = (
        rf"[-+]?[0-9]*{m}(?:[0-9]{{1,2}}|[0-9]{{4,}})",  # decimals that are no thousands
        rf"[-+]?[0-9]+{m}",
        rf"[-+]?(?:0+|[0-9]{{4,}})?{m}[0-9]{{3}}",  # what stands before is no thousand
        rf"[-+]?[0-9]{{1,3}}(?:{g}[0-9]{{3}})+{m}[0-9]+",
        rf"[-+]?[0-9]{{1,3}}(?:{g}[0-9]{{3}}){{2,}}",
        rf"[-+]?[0-9]*{m}[0-9]+[eE][-+]?[0-9]+",
        rf"[-+]?[0-9]{{1,3}}(?:['’][0-9]{{3}})+{m}[0-9]+",
    )
    return re.compile(f"^(?:{'|'.join(sure)})$", re.M)


def looks_numeric(cell: str) -> bool:
    """Whether a cell is a number in either convention, with or without signs."""
    return _LOOKS.fullmatch(cell) is not None


def all_simple(cells: Mapping[str, int]) -> bool:
    """Whether all cells are numbers as programs write them, which every test here takes for
    numbers with a decimal point, or for whole ones; a column of months with their years may be."""
    joined = "\n".join(cells)
    return joined.count("\n") == len(cells) - 1 and bool(_SIMPLE.fullmatch(f"{joined}\n"))


def mostly_numbers(cells: Mapping[str, int], numbers: int = 0) -> bool:
    """Whether the filled cells (with counts), with the `numbers` beside them, mostly look like
    numbers; codes do."""
    filled = sum(cells.values()) + numbers
    fit = sum(n for c, n in cells.items() if _LOOKS.fullmatch(c)) + numbers
    return bool(filled) and fit >= _SHARE * filled


def code_like(cells: Iterable[str]) -> str:
    """A cell that would change as a number: 007, 12E3, more digits than fit; or one of a column of
    addresses, or of months with their years; or nothing."""
    listed = list(cells)
    if found := next((c for c in listed if _CODE.fullmatch(c)), ""):
        return found
    return listed[0] if listed and all_alike(listed) else ""


def all_alike(cells: Iterable[str]) -> bool:
    """Whether every cell is an address of a network, or every one a month and its year."""
    return any(all(map(form.fullmatch, cells)) for form in _ALIKE)


@dataclass(frozen=True)
class _Told:
    """What the cells of one column tell: a cell with a decimal comma, one with a decimal point,
    those that can be meant in two ways."""

    name: str
    comma: str
    point: str
    open: tuple[str, ...]
    small: bool = False  # whole numbers below a thousand stand beside them, without a mark


def _told(name: str, bare: str) -> _Told:
    comma, point = _certain(bare, ",", "."), _certain(bare, ".", ",")
    marked = "," in bare or "." in bare
    found = {("," if "," in m[0] else "."): m[0] for m in _OPEN.finditer(bare)} if marked else {}
    small = bool(found) and _SMALL.search(bare) is not None
    cells = (comma[0] if comma else "", point[0] if point else "", tuple(found.values()))
    return _Told(name, *cells, small)


def _certain(bare: str, mark: str, group: str) -> re.Match[str] | None:
    """The first number that can be meant in one way only; none has neither the mark nor thousands
    grouped twice."""
    possible = mark in bare or _TWICE[group].search(bare)
    return _sure(mark, group).search(bare) if possible else None


def marks_of(columns: Mapping[str, Iterable[str]], sep: str) -> tuple[str, str, tuple[Doubt, ...]]:
    """(decimal mark, mark between thousands, doubts) of the columns of numbers of one table, by
    their names with their distinct cells; a mark is empty where nothing of the table has one.

    A column is clear where a number of its own can be meant in one way only. `1.234` alone is
    open: a column without a clear number is in doubt, unless clear columns have the other mark
    before decimals. So are columns that contradict most others, or themselves.
    """
    told = [_told(name, _unsigned("\n".join(cells))) for name, cells in columns.items()]
    commas = [t for t in told if t.comma and not t.point]
    points = [t for t in told if t.point and not t.comma]
    decimal = "," if len(commas) > len(points) else "." if points else ""
    if sep == "," and commas:  # a decimal comma between commas may be a cut number
        decimal = "." if points else ""
    doubts = [d for t in told for d in [_doubt(t, decimal, commas, points, sep)] if d]
    thousands = thousands_in(decimal, chain.from_iterable(columns.values()))
    return decimal, thousands, tuple(doubts)


def _doubt(
    told: _Told, decimal: str, commas: list[_Told], points: list[_Told], sep: str
) -> Doubt | None:
    def doubt(said: str, line: str) -> Doubt:
        return Doubt("number_mark", said, line, told.name)

    def settle(mark: str) -> str:
        return f'decimal: {{{yaml_word(told.name)}: "{mark}"}}'

    def has(cell: str, mark: str) -> str:
        """What a cell shows of its marks: 1.234.567 has none before decimals."""
        other = "." if mark == "," else ","
        return f"a decimal {words[mark]}" if mark in cell else f"a {words[other]} between thousands"

    words = {",": "comma", ".": "point"}
    if told.comma and told.point:
        both = f"{shown(told.comma)} has {has(told.comma, ',')} and {shown(told.point)} "
        both += has(told.point, ".")
        return doubt(both, settle("."))
    if told.comma or told.point:
        mine, others = (",", points) if told.comma else (".", commas)
        cell = told.comma or told.point
        if others and (mine != decimal or len(commas) == len(points)):
            other = others[0].comma or others[0].point
            theirs = has(other, "." if mine == "," else ",")
            said = f"{shown(cell)} has {has(cell, mine)}, and {shown(other)} in column "
            said += f"{others[0].name!r} {theirs}"
            return doubt(said, settle(mine))
        if mine == "," and sep == ",":
            return doubt(
                f"{shown(cell)} has {has(cell, mine)}, and commas part the fields", settle(",")
            )
        return None
    for cell in told.open:
        mark = "," if "," in cell else "."
        if not decimal or decimal == mark or len(told.open) > 1:
            said = (
                f"the {words[mark]} in {shown(cell)} can stand before decimals or between thousands"
            )
            other = "." if mark == "," else ","
            grouped = told.small or (mark == "," and sep == ",")  # thousands are likelier
            first, last = (other, mark) if grouped else (mark, other)
            return doubt(said, f'{settle(first)}  # or "{last}"')
    return None


def thousands_in(decimal: str, cells: Iterable[str]) -> str:
    """The mark between thousands of some cell: the other one than before decimals, a tick or a
    space; nothing where there is none."""
    joined = "\n".join(cells)
    bare = _unsigned(joined)
    for mark, form in _GROUPED.items():
        text = joined if mark == " " else bare
        written = mark != (decimal or ".") and any(m in text for m in _WRITTEN.get(mark, mark))
        if written and form.search(text):
            return mark
    return ""


def _unsigned(cells: str) -> str:
    return _SIGNED.sub("", cells) if any(sign in cells for sign in _LEFT_OUT) else cells


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
_LITTLE = (-1.0, -7.0, -8.0, -9.0)  # that mean no value only beside numbers of 1 and above
_LEAST = 10  # other values that a column must have
_OTHERS = 5  # days beside which one may mean no value
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


def no_number(
    column: str, values: Sequence[float], counts: Sequence[int], gone: Collection[float | None]
) -> Doubt | None:
    """Doubt a column of numbers, given with their counts, some of which may mean that there is
    none; None without such numbers, and where all of them are `gone` already.

    A typical number (-9999, 999) outside the range of the rest that is repeated or very far away,
    or one inside it that stands there far more often than any other.
    """
    if _TYPICAL.isdisjoint(values):
        return None
    numbers, places = np.unique(np.asarray(values, dtype=float), return_inverse=True)
    sums = np.bincount(places, weights=counts).astype(int)
    known = np.isin(numbers, list(_TYPICAL))
    rest, others = numbers[~known], sums[~known]
    if others.sum() < _LEAST:
        return None
    rows, low, high, most = int(sums.sum()), float(rest.min()), float(rest.max()), int(others.max())
    width = high - low
    found: list[str] = []
    said = ""
    for value, times in zip(numbers[known].tolist(), sums[known].tolist(), strict=True):
        gap = low - value if value < low else value - high
        if value in _LITTLE:
            far = low >= 1 and len(rest) >= _LEAST and times > 2 and times >= most
        elif value < 0:
            far = gap > 0 and (low >= 0 or gap >= 0.5 * width)
            far = far and (times > 1 or gap >= width)
        else:
            far = gap >= 10 * width > 0 or (gap >= width and times > 1)
            far = far or (times > 1 and value >= 777 and gap >= 0.5 * width)
            far = far or (times > 2 and value >= 777 and gap > 0 and times >= 3 * most)
        often = times > _OFTEN and abs(value) >= 777 and times >= 3 * most
        if value not in gone and (far or often):
            found.append(_spelled(value))
            said = said or f"{found[0]} stands in {times} of {rows} cells, the others are "
    settle = f"missing: {{{yaml_word(column)}: {yaml_list(found)}}}  # or [] if it is a value"
    said += f"{_spelled(low)} to {_spelled(high)}: a value, or none"
    return Doubt("sentinel", said, settle, column) if found else None


def _spelled(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def no_day(column: str, cells: list[str], parsed: Any) -> Doubt | None:
    """Doubt a column in which days such as 9999-12-31 or 1900-01-01 stand far from all others: they
    may mean that there is no date. None without such days."""
    typical = parsed.dt.strftime("%Y-%m-%d").isin(NO_DAYS)
    rest = parsed[~typical]
    if not bool(typical.any()) or len(rest) < _OTHERS:
        return None
    low, high = rest.min(), rest.max()
    gap = (parsed - high).where(parsed > high, low - parsed)
    odd = [c for c, far in zip(cells, typical & (gap >= 0.3 * (high - low)), strict=True) if far]
    if not odd:
        return None
    said = f"{shown(odd[0])} is far from the other days, {low:%Y-%m-%d} to {high:%Y-%m-%d}: "
    settle = f"missing: {{{yaml_word(column)}: {yaml_list(odd)}}}  # or [] if it is a day"
    return Doubt("sentinel", f"{said}a value, or none", settle, column)
