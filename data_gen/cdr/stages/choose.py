"""Choosing documents for every task: those used least so far, then by hash (spec section 8).

What was chosen before decides what is chosen next, so this is the one step that goes through the
tracks in order. It sees candidates alone, never a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from configs.cdr import CdrConfig, InstanceConfig
from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.stages.arrays import Array
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS
from data_gen.cdr.stages.measure import Filtered, Grouped, Measured
from data_gen.cdr.stages.ranks import Candidates
from data_gen.cdr.stages.recipes import Library

MAPPER, FILTER, MAIN, SWAP, ORDER = range(5)
# One unit of rows that belong together: what it is made from (`one`: operator or recipe, `two`:
# variant, swap or order family), its document, and for filters where they keep (1, or SLOT_BITS).
UNIT = np.dtype(
    [("kind", "u1"), ("bits", "u1"), ("one", "<i4"), ("two", "<i4"), ("document", "<i8")]
)


@dataclass(frozen=True, slots=True)
class Unit:
    """One element of an array of `UNIT`."""

    kind: int
    bits: int
    one: int
    two: int
    document: int


class Source(Protocol):
    """Where the measurements are."""

    def mapper(self, name: str) -> Candidates: ...

    def filter(self, name: str) -> Filtered: ...

    def recipe(self, number: int) -> Measured: ...


def rows_at_most(config: CdrConfig, library: Library) -> int:
    """More documents than all choices together can use."""
    limits = config.instances
    variants = sum(len(entry.variants) for entry in library.entries)
    families = sum(len(entry.families) for entry in library.entries)
    atomic = (len(ALL_MAPPERS) + len(CALIBRATED_FILTERS)) * (limits.per_operator + 1)
    return atomic + variants * (limits.per_variant + 1) + families * limits.groups_per_family


@dataclass
class Chooser:
    """Counts how many rows each document has so far."""

    limits: InstanceConfig
    documents: int
    filters: Sequence[str] = CALIBRATED_FILTERS
    usage: Array = field(init=False)

    def __post_init__(self) -> None:
        self.usage = np.zeros(self.documents, np.uint16)

    def least_used(self, found: Candidates, most: int) -> Array:
        """Places among the candidates, least used first, then by hash."""
        return np.argsort(self.usage[found.numbers], kind="stable")[:most]

    def units(self, source: Source, library: Library) -> Iterator[Array]:
        """All units but the order pairs, recipe by recipe as the reference goes."""
        limits = self.limits
        for place, name in enumerate(ALL_MAPPERS):
            found = source.mapper(name)
            yield self._taken(found, limits.per_operator, MAPPER, place, 0, 1)
        for place, name in enumerate(sorted(CALIBRATED_FILTERS)):
            if name not in self.filters:
                continue
            yield self._balanced(source.filter(name), limits.per_operator, FILTER, place, 0)
        for number in range(len(library.entries)):
            measured = source.recipe(number)
            yield self._taken(measured.clean, limits.per_variant, MAIN, number, 0, 1)
            for place, variant in enumerate(measured.variants, 1):
                yield self._balanced(variant, limits.per_variant, MAIN, number, place)
            for place, family in enumerate(measured.families):
                yield self._groups(family, number, place)

    def _taken(
        self, found: Candidates, most: int, kind: int, one: int, two: int, rows: int
    ) -> Array:
        return self._made(found, self.least_used(found, most), kind, one, two, rows, 1)

    def _made(
        self,
        found: Candidates,
        places: Array,
        kind: int,
        one: int,
        two: int,
        rows: int,
        bits: int | Array,
    ) -> Array:
        units = np.zeros(len(places), UNIT)
        units["kind"], units["one"], units["two"] = kind, one, two
        units["document"], units["bits"] = found.numbers[places], bits
        np.add.at(self.usage, units["document"], rows)
        return units

    def _balanced(self, found: Filtered, most: int, kind: int, one: int, two: int) -> Array:
        """KEEP and DROP by quota; none when one side is too thin."""
        limits = self.limits
        if found.params is None or found.kept < limits.min_keep or found.dropped < limits.min_drop:
            return np.zeros(0, UNIT)
        drops = max(1, round(most * limits.target_drop_rate))
        kept = self.least_used(found.keep, most - drops) if most > drops else np.zeros(0, np.int64)
        dropped = self.least_used(found.drop, drops)
        return np.concatenate(
            [
                self._made(found.keep, kept, kind, one, two, 1, 1),
                self._made(found.drop, dropped, kind, one, two, 1, 0),
            ]
        )

    def _groups(self, found: Grouped, one: int, two: int) -> Array:
        places = self.least_used(found.groups, self.limits.groups_per_family)
        if found.params is None or len(places) < self.limits.min_groups:
            return np.zeros(0, UNIT)
        return self._made(found.groups, places, ORDER, one, two, 3, found.groups.bits[places])
