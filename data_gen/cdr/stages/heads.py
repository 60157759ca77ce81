"""What decides where the rows of a unit go: made where the unit is worded, read by the merge.

The merge has to see all units at once, so this is kept small and in few pieces: one for each file
of units, in which every signature stands once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from data_gen.cdr.rows import PlannedRow, template
from data_gen.cdr.stages.arrays import Array, Arrays
from data_gen.cdr.stages.bodies import Sizes
from data_gen.overlap import SIGNATURE, Print

_NOTHING = Sizes(0, 0, 0, 0, 0)
_NONE = -1  # place of a text that is too short for a signature


class RowHead(NamedTuple):
    """A row. `recipe`: its operators in order, joined by spaces; `sizes`: of its lines;
    `reference`: what its text is compared by."""

    id: str
    track: str
    status: str
    recipe: str
    sizes: Sizes
    reference: Print

    @property
    def filter(self) -> str | None:
        """The filter of the recipe, which has one at most."""
        return _filter(self.recipe)


@dataclass(frozen=True)
class Head:
    """A unit: why it is refused (""), its document, what its input is compared by, its rows;
    `unsaid`: the operator that does another thing than its words say, and what."""

    number: int
    refused: str
    document: str
    domain: str
    input: Print
    rows: tuple[RowHead, ...]
    unsaid: tuple[str, str] = ("", "")

    @property
    def template(self) -> str:
        """The operators of its recipe, the same for all of its rows."""
        return _template(self.rows[0].recipe)

    @property
    def is_single(self) -> bool:
        """Whether its recipe has one operator."""
        return " " not in self.rows[0].recipe


@lru_cache(maxsize=10_000)
def _template(recipe: str) -> str:
    return template(recipe.split())


@lru_cache(maxsize=10_000)
def _filter(recipe: str) -> str | None:
    return next((name for name in recipe.split() if name.endswith("_filter")), None)


def head_of(
    unit: Sequence[PlannedRow],
    refused: str,
    source: Print,
    references: Sequence[Print],
    sizes: Sequence[Sizes],
    unsaid: tuple[str, str] = ("", ""),
) -> Head:
    """The head of a unit. `references` and `sizes`: of its rows, none when it is refused."""
    record = unit[0].instance.record
    sizes, references = sizes or [_NOTHING] * len(unit), references or [("", None)] * len(unit)
    rows = (
        RowHead(row.id, planned.track, row.status, " ".join(row.sequence), size, reference)
        for planned, size, reference in zip(unit, sizes, references, strict=True)
        for row in (planned.instance,)
    )
    return Head(unit[0].unit, refused, record.id, record.domain, source, tuple(rows), unsaid)


def packed_heads(heads: Iterable[Head]) -> dict[str, Array]:
    """Heads as arrays of a file; `unpacked_heads` reads them."""
    signs: dict[bytes, int] = {}

    def plain(print_: Print) -> tuple[str, int]:
        digest, sign = print_
        return digest, _NONE if sign is None else signs.setdefault(sign, len(signs))

    said = [
        [
            head.number,
            head.refused,
            head.document,
            head.domain,
            plain(head.input),
            [[*row[:-1], plain(row.reference)] for row in head.rows],
            head.unsaid,
        ]
        for head in heads
    ]
    return {
        "heads": np.frombuffer(json.dumps(said).encode(), np.uint8),
        "signs": np.frombuffer(b"".join(signs), np.uint8),
    }


def unpacked_heads(arrays: Arrays, known: dict[bytes, bytes]) -> Iterator[Head]:
    """The heads of a file. `known` holds equal signatures once: many rows share a text."""
    data = arrays["signs"].tobytes()
    cut = [data[at : at + SIGNATURE] for at in range(0, len(data), SIGNATURE)]
    signs = [known.setdefault(sign, sign) for sign in cut]

    def print_of(said: tuple[str, int]) -> Print:
        digest, place = said
        return digest, None if place == _NONE else signs[place]

    said = json.loads(arrays["heads"].tobytes())
    for number, refused, document, domain, source, rows, (operator, does) in said:
        own = (
            RowHead(name, track, status, recipe, Sizes(*sizes), print_of(reference))
            for name, track, status, recipe, sizes, reference in rows
        )
        yield Head(
            number, refused, document, domain, print_of(source), tuple(own), (operator, does)
        )
