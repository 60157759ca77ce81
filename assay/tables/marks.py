"""Which marks stand before the decimals and between the thousands of a table's numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from assay.tables.plan import Unreadable

SIGNS = "$€£%"
_SIGNED = re.compile("[$€£% \\t\\r\u00a0\u202f]")  # what is left out of a number, but not line ends
_SHARE = 0.7  # of the filled cells of a column of numbers
_LOOKS = re.compile(
    r"[\s$€£]*[-+]?[\s$€£]*(?:[0-9]{1,3}(?:[.,'’ \u00a0\u202f][0-9]{3})+(?:[.,][0-9]*)?"
    r"|[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?[\s$€£%]*"
)
# codes with leading zeros, and more digits than fit 64 bits
_CODE = re.compile(r"\s*[-+]?(?:0[0-9]*[1-9][0-9]*|[0-9]{19,})\s*")
_OPEN = re.compile(r"^[-+]?(?:[0-9]{1,3}(?:[.,][0-9]{3})+|[0-9]+[.,])$", re.M)
_GROUPED = {
    **{m: re.compile(rf"^[-+]?[0-9]{{1,3}}(\{m}[0-9]{{3}})+([.,][0-9]*)?$", re.M) for m in ".,"},
    "'": re.compile(r"^[-+]?[0-9]{1,3}(['’][0-9]{3})+([.,][0-9]*)?$", re.M),
    " ": re.compile(r"^ *[-+]?[0-9]{1,3}([ \u00a0\u202f][0-9]{3})+([.,][0-9]*)? *$", re.M),
}


class Ambiguous(Unreadable):
    """The numbers of a table can be read in two ways, or in none; the message says which."""


@dataclass(frozen=True)
class Marks:
    """The marks of a table; empty where nothing of the table has one."""

    decimal: str = ""
    thousands: str = ""


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


def is_numeric(cells: Mapping[str, int]) -> bool:
    """Whether the filled cells (with counts) are mostly numbers. Codes with leading zeros and
    numbers of too many digits are text."""
    filled = sum(cells.values())
    fit = sum(n for c, n in cells.items() if _LOOKS.fullmatch(c))
    return bool(filled) and fit >= _SHARE * filled and not code_like(cells)


def code_like(cells: Iterable[str]) -> str:
    """A cell that would change as a number: 007, or more digits than fit; or nothing."""
    return next((c for c in cells if _CODE.fullmatch(c)), "")


def marks_of(columns: Sequence[tuple[str, Iterable[str]]], sep: str = "") -> Marks:
    """The marks of the columns of numbers (name, distinct cells) of one table.

    Between commas a point is a decimal mark and a number with a comma is quoted and groups
    thousands, unless it says otherwise. Raises `Ambiguous` when both conventions are found and
    when no number tells which one it is.
    """
    commas: list[tuple[str, str]] = []
    points: list[tuple[str, str]] = []
    unsure: list[tuple[str, str]] = []
    grouped: set[str] = set()
    for name, listed in columns:
        cells = "\n".join(listed)
        bare = _SIGNED.sub("", cells)
        commas += [(name, m[0]) for m in [_sure(",", ".").search(bare)] if m]
        points += [(name, m[0]) for m in [_sure(".", ",").search(bare)] if m]
        unsure += [(name, m[0]) for m in _OPEN.finditer(bare) if sep != "," or "," in m[0]][:1]
        grouped |= _groups(cells, bare)
    if commas and points:
        raise Ambiguous(
            f"column {commas[0][0]!r} has {commas[0][1]!r}, column {points[0][0]!r} has "
            f"{points[0][1]!r}: two decimal marks; write one throughout, or set decimal in "
            "tables.yaml"
        )
    if commas and sep == ",":
        raise Ambiguous(
            f"column {commas[0][0]!r}: {commas[0][1]!r} has a decimal comma between commas; "
            "separate the fields by ; or set decimal in tables.yaml"
        )
    if not commas and not points and unsure and sep != ",":
        raise Ambiguous(
            f"column {unsure[0][0]!r}: {unsure[0][1]!r} can have a decimal mark or one between "
            "thousands, and no other number tells; set decimal in tables.yaml"
        )
    decimal = "," if commas else "." if points or unsure or sep == "," else ""
    return Marks(decimal, thousands_for(decimal, grouped))


def thousands_for(decimal: str, grouped: Iterable[str]) -> str:
    """The mark between thousands, of those found in groups: the other one, a space or a tick."""
    found = {g for g in grouped if g != (decimal or ".")}
    return next((g for g in (".", ",", "'", " ") if g in found), "")


def groups_in(cells: Iterable[str]) -> set[str]:
    """Marks that stand between thousands in some cell, if they are no decimal marks."""
    joined = "\n".join(cells)
    return _groups(joined, _SIGNED.sub("", joined))


def _groups(cells: str, bare: str) -> set[str]:
    return {m for m, form in _GROUPED.items() if form.search(cells if m == " " else bare)}
