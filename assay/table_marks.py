# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""A table by what stands in it, never by its name: marks of its columns and of its rows.

A column's mark is a hash of its sorted values, so that it survives sorting, renaming and another
format, and most columns of a copy have the same. A row's mark is the sum of its cells' hashes,
whatever their order; the smallest of them are a sample of the rows, so that two draws of rows from
one table are known for kin.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.mixing import spread
from assay.table_numbers import COLUMNS, Numbers, numbers_of, same_numbers

LEAST = 8  # distinct values of a column that says something
ENOUGH = 3  # such columns, for rows to be told by them
SAMPLE = 64  # marks of rows that are kept
SAME_COLUMNS, SAME_ROWS = 0.6, 0.25
_MASK = (1 << 63) - 1
Known = Callable[[Sequence[int]], Sequence[bool]]
KnownNumbers = Callable[[Sequence[Numbers]], bool]


def _none(numbers: Sequence[Numbers]) -> bool:
    return False


@dataclass(frozen=True)
class TableMarks:
    """`columns`: one mark for each that says something. `rows`: the smallest marks of its rows, in
    order, `SAMPLE` at most. `numbers`: sketches of its columns of numbers."""

    columns: frozenset[int]
    rows: tuple[int, ...] = ()
    numbers: tuple[Numbers, ...] = ()

    def __str__(self) -> str:
        """The same text for the same table."""
        return "table " + " ".join(f"{mark:016x}" for mark in sorted(self.columns))

    def __bool__(self) -> bool:
        return bool(self.columns)

    def all(self) -> set[int]:
        """Every mark: tables that are like each other have one in common at least."""
        sketches = {mark for n in self.numbers for mark in (*n.values, *n.ratios)}
        return {*self.columns, *self.rows, *sketches}

    def like(self, other: TableMarks) -> bool:
        """Whether most columns of the narrower table are columns of the other, rows of one are rows
        of the other, or most measured columns of one hold the quantities of the other's."""
        least = min(len(self.columns), len(other.columns))
        if least and len(self.columns & other.columns) >= SAME_COLUMNS * least:
            return True
        if min(len(self.rows), len(other.rows)) >= LEAST and self._shared(other) >= SAME_ROWS:
            return True
        return same_numbers(self.numbers, other.numbers)

    def _shared(self, other: TableMarks) -> float:
        """The estimated share of all rows of both that both have (bottom-k Jaccard)."""
        both = sorted({*self.rows, *other.rows})[:SAMPLE]
        common = {*self.rows} & {*other.rows}
        return sum(mark in common for mark in both) / len(both)

    def within(self, known: Known, measured: KnownNumbers = _none) -> bool:
        """Whether the table is one of those whose marks are in a set, or whose measured columns
        `measured` knows."""
        if len(self.numbers) >= COLUMNS and measured(self.numbers):
            return True
        if not self.columns:
            return False
        if sum(known(sorted(self.columns))) >= SAME_COLUMNS * len(self.columns):
            return True
        return len(self.rows) >= LEAST and sum(known(self.rows)) >= SAME_ROWS * len(self.rows)


def marks_of_frame(frame: Any) -> TableMarks:
    """The marks of a pandas frame. Columns of fewer than `LEAST` distinct values say nothing, nor
    do those that only count the rows."""
    import numpy as np

    columns: list[int] = []
    made = (numbers_of(frame.iloc[:, place]) for place in range(frame.shape[1]))
    numbers = tuple(found for found in made if found is not None)
    total = np.zeros(len(frame), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(frame.shape[1]):  # by place: names may repeat
            cells = _cells(frame.iloc[:, place])
            if cells is None:
                continue
            columns.append(_digest(np.sort(cells[cells != 0])))
            total += cells
    if len(columns) < ENOUGH:  # rows of two columns are alike by chance
        return TableMarks(frozenset(columns), (), numbers)
    rows = np.unique(spread(total[total != 0]) & np.uint64(_MASK))[:SAMPLE]
    return TableMarks(frozenset(columns), tuple(int(mark) for mark in rows), numbers)


def _cells(column: Any) -> Any:
    """A hash of each cell (0: no value), None for a column that says nothing."""
    import numpy as np
    import pandas as pd

    there = column.notna().to_numpy()
    filled = column[there]
    if column.dtype.kind in "iufb":
        values = filled.to_numpy(dtype=float)
        # four bytes: what another writer rounded, and −0, are the same number
        kept = values.astype("<f4") + np.float32(0)
        if len(np.unique(kept)) < LEAST or _counts(values):
            return None
        hashes = spread(kept.view("<u4").astype(np.uint64) + np.uint64(1))
    else:
        if column.dtype.kind == "M" or all(type(v) is str for v in filled):
            codes, distinct = pd.factorize(filled)  # of equal cells one is looked at
        else:
            codes, distinct = np.arange(len(filled)), filled
        said = [_said(value) for value in distinct]
        own = {text: _text_hash(text) for text in said}
        if len(own) < LEAST:
            return None
        hashes = np.array([own[text] for text in said], dtype=np.uint64)[codes]
    cells = np.zeros(len(column), dtype=np.uint64)
    cells[there] = hashes
    return cells


def _counts(values: Any) -> bool:
    """Whether the numbers are those of rows: whole, each once, with few gaps."""
    import numpy as np

    if not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    return len(np.unique(values)) == len(values) and float(np.ptp(values)) < 2 * len(values)


def _said(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00").casefold()
    return " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())


def _text_hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


def _digest(values: Any) -> int:
    """The mark of a column's sorted cells."""
    digest = hashlib.blake2b(values.astype("<u8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK
