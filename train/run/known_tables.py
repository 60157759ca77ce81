"""The columns of numbers of all tables that a model was trained on, to know copies of them by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from assay.fingerprints import Numbers, packed, same_numbers, unpacked

# Columns that are alike have more marks in common than this; no table with fewer is looked at.
FEW = 6


class Tables:
    """Sketches of tables, held as the numbers that `assay.fingerprints.packed` makes of them.
    Raises ValueError for other numbers."""

    def __init__(self, sketches: NDArray[np.int64]) -> None:
        self.sketches = sketches
        starts = np.flatnonzero(sketches == packed(_ANY)[0])
        if len(sketches) and (not len(starts) or starts[0]):
            raise ValueError("sketches of tables are out of order")
        self._starts = starts
        self._ends = np.append(starts[1:], len(sketches))

    def and_those_of(self, parts: Iterable[bytes]) -> Tables:
        """With the tables of more sketches, each once; the same tables give the same bytes."""
        found = {tuple(packed(table)) for table in unpacked(self.sketches.tolist())}
        for part in parts:
            more = np.frombuffer(part, dtype=np.int64).tolist()
            found.update(tuple(packed(table)) for table in unpacked(more))
        every = np.fromiter(chain.from_iterable(sorted(found)), dtype=np.int64)
        return Tables(every)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(marks in order, number of each mark's table)."""
        owners = np.repeat(np.arange(len(self._starts)), self._ends - self._starts)
        order = np.argsort(self.sketches, kind="stable")
        return self.sketches[order], owners[order]

    def have(self, numbers: Sequence[Numbers]) -> bool:
        """Whether one of the tables has these columns, but for a factor and some of the rows."""
        own = np.unique([mark for one in numbers for mark in (*one.values, *one.ratios)])
        if not len(self.sketches) or not len(own):
            return False
        marks, owners = self._places
        low, high = np.searchsorted(marks, own), np.searchsorted(marks, own, "right")
        hits = [owners[i:j] for i, j in zip(low, high, strict=True)]
        count = np.bincount(np.concatenate(hits), minlength=len(self._starts))
        for table in np.flatnonzero(count > FEW):
            found = unpacked(self.sketches[self._starts[table] : self._ends[table]].tolist())
            if same_numbers(numbers, found[0]):
                return True
        return False


_ANY = (Numbers((), ()), Numbers((), ()))
NO_TABLES = Tables(np.zeros(0, np.int64))
