"""What two sets of tasks share: texts, exactly and nearly, and tables. The other side is held in
arrays.

A text takes about 200 bytes; `Side.bytes` says what is held, so that a check can go over the other
side in pieces that fit into memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.fingerprints import TableMarks
from data_gen.overlap import BANDS, PERMUTATIONS, Fingerprint, Signatures
from data_gen.prints import PARTS, Prints, Texts, compared

TEXT_BYTES = 8 + 8 + 2 * PERMUTATIONS + 4 * BANDS + 8
ROW_BYTES = 200  # its id, document and recipe
CROWD = 64  # rows of one band that are looked at: a phrase that all have tells nothing
Ints = NDArray[np.int64]
NOTHING: tuple[Any, ...] = (
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
    np.empty((0, PERMUTATIONS), np.uint16),
)


@dataclass(frozen=True)
class Hits:
    """Rows of a chunk that are there, each with the row of the other side and how like it is."""

    exact: dict[int, int]
    near: dict[int, tuple[int, float]]


class Part:
    """Texts of one part, to be added to, then closed, then asked. `crowd`: of the texts that share
    a band of signatures so many are looked at, 0: all."""

    def __init__(self, crowd: int = CROWD) -> None:
        self._crowd = crowd
        self._parts: list[tuple[Ints, Any, Ints, Any]] = []
        self.count = 0

    def add(self, texts: Texts, first: int) -> None:
        """`first`: the number of the chunk's first row."""
        self._parts.append(
            (texts.owner + first, texts.exact, texts.owner[texts.signed] + first, texts.signs)
        )
        self.count += len(texts.owner)

    def close(self) -> None:
        """Sort what was added. The first of alike rows stands for all."""
        owner, exact, signed, signs = (
            np.concatenate(column) for column in zip(NOTHING, *self._parts, strict=True)
        )
        self._parts = []
        self._exact, first = np.unique(exact, return_index=True)
        self._owner = owner[first]
        signs, first = np.unique(signs, axis=0, return_index=True)
        self._signed = signed[first]
        self._near = Signatures(np.ascontiguousarray(signs))

    def find(self, texts: Texts) -> Hits:
        """The texts of a chunk that are here, each with the first of those that it is most like."""
        exact: dict[int, int] = {}
        at = np.searchsorted(self._exact, texts.exact).clip(max=max(len(self._exact) - 1, 0))
        if len(self._exact):
            for place in np.flatnonzero(self._exact[at] == texts.exact):
                exact.setdefault(int(texts.owner[place]), int(self._owner[at[place]]))
        near: dict[int, tuple[float, int]] = {}
        for place, other, like in self._near.like(texts.signs, self._crowd):
            row = int(texts.owner[texts.signed[place]])
            near[row] = max(near.get(row, (0.0, 0)), (like, -int(self._signed[other])))
        return Hits(exact, {row: (-other, like) for row, (like, other) in near.items()})


def shared(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint]) -> set[int]:
    """Indices of ours whose input or reference occurs in theirs, exactly or nearly."""
    hits = [_hits(ours, theirs, part) for part in ("input", "reference")]
    return {row for hit in hits for row in (*hit.exact, *hit.near)}


def overlaps(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint]) -> dict[str, Any]:
    """Counts of our tasks whose input, reference or recipe occurs in the others, exactly and
    nearly (estimated Jaccard of at least 0.8), with up to 20 examples of pairs."""
    found: dict[str, Any] = {}
    for part in ("input", "reference"):
        hits = _hits(ours, theirs, part)
        pairs = [[ours[i].id, theirs[j].id, round(s, 3)] for i, (j, s) in sorted(hits.near.items())]
        found[f"{part}s"] = {
            "exact": len(hits.exact),
            "near": len(pairs),
            "examples": pairs[:20],
        }
    known = {p.recipe for p in theirs if p.recipe}
    found["recipes"] = {
        "exact": sum(p.recipe in known for p in ours),
        "distinct_shared": len({p.recipe for p in ours} & known),
        "distinct": len({p.recipe for p in ours}),
    }
    return found


def _hits(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint], part: str) -> Hits:
    there = Part(crowd=0)
    there.add(compared(enumerate(theirs), part), 0)
    there.close()
    return there.find(compared(enumerate(ours), part))


class Tables:
    """Distinct tables, found by the marks of their columns and rows."""

    def __init__(self) -> None:
        self._owner: dict[TableMarks, int] = {}
        self._holders: defaultdict[int, list[TableMarks]] = defaultdict(list)
        self._asked: dict[TableMarks, int | None] = {}

    def add(self, table: TableMarks, owner: int) -> None:
        if table in self._owner:
            return
        self._owner[table] = owner
        for mark in table.all():
            self._holders[mark].append(table)

    def find(self, table: TableMarks) -> int | None:
        """A row whose task has this table, or a copy of it."""
        if table not in self._asked:
            near = {other for mark in table.all() for other in self._holders.get(mark, ())}
            alike = [self._owner[other] for other in near if table.like(other)]
            self._asked[table] = min(alike, default=None)
        return self._asked[table]


class Side:
    """Rows to compare with, as many as memory allows at a time."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.parts = {part: Part() for part in PARTS}
        self.tables = Tables()
        self.documents: set[str] = set()
        self.recipes: set[str] = set()

    def add(self, prints: Prints) -> None:
        first = len(self.ids)
        self.ids += prints.ids
        for name, part in self.parts.items():
            part.add(prints.parts[name], first)
        for row, table in prints.has:
            self.tables.add(prints.tables[table], first + row)
        self.documents.update(d for d in prints.documents if d)
        self.recipes.update(r for r in prints.recipes if r)

    @property
    def bytes(self) -> int:
        """About what this side holds when it is closed."""
        texts = sum(part.count for part in self.parts.values())
        return texts * TEXT_BYTES + len(self.ids) * ROW_BYTES

    def close(self) -> None:
        for part in self.parts.values():
            part.close()
