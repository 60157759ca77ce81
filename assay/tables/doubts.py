"""Doubts: places where a file can be read in two ways, each with a code.

A reader that meets one does not decide. The column, or the table where no single column is in
doubt, is refused with the code, a sentence that names what was found and where, and the line of
`tables.yaml` that settles it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# code → what can be meant in two ways
CODES = {
    "encoding": "the bytes are letters in more than one encoding",
    "layout": "what separates the fields, or where the names stand",
    "number_mark": "a point or comma that stands before decimals, or between thousands",
    "sentinel": "a number or word that is a value, or means that there is none",
    "date_order": "day and month, or the century of a date",
    "merged_cells": "a cell that stands, or may stand, for several rows or columns",
    "formulas": "formulas whose results the file does not hold",
    "total_rows": "rows that add up other rows, or say their means",
    "notes": "lines that are no rows: notes, comments, units",
    "repeated_header": "the names of the columns again among the rows",
    "header_rows": "names of columns that stand in several rows",
    "several_tables": "several tables on one sheet or in one file",
    "wide_rows": "rows with more fields than there are names",
    "short_rows": "rows with fewer fields than there are names",
    "alike_names": "names of columns that differ by case, blanks or line breaks alone",
    "alike_values": "values that differ by case, accents or blanks alone",
    "duplicate_stamps": "several rows of one time",
}


@dataclass(frozen=True)
class Doubt:
    """One doubt. `column` is empty where the whole table is in doubt. `said` is one sentence;
    `settle` is what to write under the file's pattern in `tables.yaml`, or empty where only the
    file itself can be mended. Raises `ValueError` for a code that is not in `CODES`."""

    code: str
    said: str
    settle: str = ""
    column: str = ""
    path: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no doubt is called {self.code!r}")

    def line(self) -> str:
        """`[code] 'column': sentence; settle it in tables.yaml: LINE`."""
        where = f"{self.column!r}: " if self.column else ""
        remedy = f"; settle it in tables.yaml: {self.settle}" if self.settle else ""
        return f"[{self.code}] {where}{self.said}{remedy}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_table(doubts: Iterable[Doubt]) -> list[Doubt]:
    """Those that put the whole table in doubt."""
    return [d for d in doubts if not d.column]


def columns_in_doubt(doubts: Iterable[Doubt]) -> Sequence[str]:
    """The columns that no question may be asked from, in the order of the doubts."""
    return list(dict.fromkeys(d.column for d in doubts if d.column))


def count(doubts: Iterable[Doubt]) -> dict[str, int]:
    """How many of each code, for a certificate."""
    found: dict[str, int] = {}
    for doubt in doubts:
        found[doubt.code] = found.get(doubt.code, 0) + 1
    return dict(sorted(found.items()))


def shown(text: str, most: int = 30) -> str:
    """A cell as a sentence names it: in quotes, cut where it is long."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")
