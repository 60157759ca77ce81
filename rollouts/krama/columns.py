"""The type of a column from its cells, and the cells that do not fit it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["integer", "number", "date", "text", "empty"]
ODD_MOST = 4  # odd cells kept a column
_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}/\d{1,2}/\d{2,4}( \d{1,2}:\d{2}(:\d{2})?)?"
)
_GROUPED = re.compile(r"[-+]?[$€£]?\d{1,3}(,\d{3})+(\.\d+)?%?|[-+]?[$€£]\d+(\.\d+)?|[-+]?[\d.]+%")


@dataclass(frozen=True)
class Column:
    """One column: its type by the large majority of its cells, and the cells that do not fit.

    `odd` holds "line: value"; `note` says how numbers are written when not plainly; `missing` is
    the number of empty cells.
    """

    name: str
    kind: Kind
    missing: int
    odd: tuple[str, ...] = ()
    note: str = ""


def kind_of(cell: str) -> str:
    """The type of one cell: integer, number, grouped (1,234 or $5 or 40%), date, text, empty."""
    cell = cell.strip()
    if not cell:
        return "empty"
    try:
        float(cell)
    except ValueError:
        pass
    else:
        plain = cell.lstrip("+-").isdigit()
        return "integer" if plain else "number" if cell[-1:].isdigit() or "." in cell else "text"
    if _GROUPED.fullmatch(cell):
        return "grouped"
    return "date" if _DATE.fullmatch(cell) else "text"


def column_of(name: str, cells: Sequence[str], first_line: int) -> Column:
    """The column of these cells, whose first stands in line `first_line`."""
    known = {cell: kind_of(cell) for cell in set(cells)}
    counts: Counter[str] = Counter()
    for cell, times in Counter(cells).items():
        counts[known[cell]] += times
    missing = counts.pop("empty", 0)
    filled = sum(counts.values())
    if not filled:
        return Column(name, "empty", missing)
    numeric = counts["integer"] + counts["number"] + counts["grouped"]
    kind: Kind = "text"
    fits: tuple[str, ...] = ()
    if numeric >= 0.6 * filled:
        kind, fits = "number", ("integer", "number", "grouped")
        if not counts["number"] and not counts["grouped"]:
            kind = "integer"
    elif counts["date"] >= 0.6 * filled:
        kind, fits = "date", ("date",)
    note = "written like 1,234 or $5 or 40%" if fits and counts["grouped"] else ""
    odd: dict[str, str] = {}
    if fits and any(k not in fits and n for k, n in counts.items()):
        for number, cell in enumerate(cells):
            if known[cell] not in (*fits, "empty") and cell not in odd:
                odd[cell] = f"line {first_line + number}: {cell.strip()[:40]}"
                if len(odd) == ODD_MOST:
                    break
    return Column(name, kind, missing, tuple(odd.values()), note)
