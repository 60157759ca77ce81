"""Thresholds of one operator or recipe over all its documents, and who may be chosen for it.

Each operator and each recipe is measured alone, so that they can be shared out between processes.
What is kept of the documents is bounded: those with the smallest hashes, as many as all earlier
choices could have used up, and what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from configs.cdr import CdrConfig, InstanceConfig
from data_gen.cdr.calibrate import calibrated, quantile_of
from data_gen.cdr.library import OrderFamily, Variant
from data_gen.cdr.records import bound_filter
from data_gen.cdr.stages.arrays import Array
from data_gen.cdr.stages.documents import Documents, Part
from data_gen.cdr.stages.facts import BITS, CALIBRATED_FILTERS, Facts
from data_gen.cdr.stages.ranks import Candidates, Smallest, hashes, names, percentile_of
from data_gen.cdr.stages.traces import CHANGED, FAILED, FAMILY, Trace, Wanted, column, steps_of
from rewards.gold import Step, bind

BLOCK = 200_000  # documents looked at side by side
SIDES = ("keep", "drop")
SLOT_BITS = (1, 2, 4)  # of an order group: kept in front, in the middle, at the end
Params = dict[str, float]


@dataclass(frozen=True)
class Filtered:
    """A filter with its threshold, and the documents to choose from on both sides. `params` is
    None when there is no threshold; `kept` and `dropped` count all documents."""

    params: Params | None
    meta: dict[str, Any]
    kept: int
    dropped: int
    keep: Candidates
    drop: Candidates


@dataclass(frozen=True)
class Grouped:
    """An order family with its threshold, and the documents whose three results are not all the
    same; their bits are `SLOT_BITS` of the places where the filter keeps them."""

    params: Params | None
    meta: dict[str, Any]
    groups: Candidates


@dataclass(frozen=True)
class Measured:
    """A recipe over its documents. `variants`: those with a filter, in their order."""

    clean: Candidates
    variants: tuple[Filtered, ...]
    families: tuple[Grouped, ...]
    swaps: Candidates


@dataclass(frozen=True)
class Block:
    """Some documents side by side: numbers, bits, statistics by (filter, step), and hash keys."""

    numbers: Array
    bits: Array
    columns: dict[tuple[str, int], Array]
    keys: Sequence[tuple[bytes, bytes]]


Blocks = Callable[[], Iterable[Block]]


def _replayable(blocks: Callable[[], Iterator[Block]]) -> Blocks:
    """The blocks for several passes; held when there is only one."""
    first = list(islice(blocks(), 2))
    return blocks if len(first) > 1 else lambda: first


def _joined(chunks: Iterable[Block]) -> Iterator[Block]:
    """Small blocks put together to about `BLOCK` documents."""
    waiting: list[Block] = []
    for chunk in chunks:
        waiting.append(chunk)
        if sum(len(one.numbers) for one in waiting) >= BLOCK:
            yield _concatenated(waiting)
            waiting = []
    if waiting:
        yield _concatenated(waiting)


def _concatenated(blocks: Sequence[Block]) -> Block:
    return Block(
        np.concatenate([b.numbers for b in blocks]),
        np.concatenate([b.bits for b in blocks]),
        {name: np.concatenate([b.columns[name] for b in blocks]) for name in blocks[0].columns},
        [key for b in blocks for key in b.keys],
    )


def measure_mapper(documents: Documents, name: str, config: CdrConfig, most: int) -> Candidates:
    """The documents an atomic task of a mapper may be made from."""
    found = Smallest(most)
    for part, facts in documents.usable(config):
        hit = facts.read & (facts.active & facts.changes & np.uint32(BITS[name]) != 0)
        places = np.flatnonzero(hit)
        keys = (part.key(place)[1] for place in places.tolist())
        numbers = places + part.base
        found.add(hashes(f"atomic:{name}", keys, len(places)), numbers, np.zeros(len(places)))
    return found.done()


def measure_filter(documents: Documents, name: str, config: CdrConfig, most: int) -> Filtered:
    """The threshold of an atomic filter, and the documents on both sides of it."""

    def chunks() -> Iterator[Block]:
        for part, facts in documents.usable(config):
            places = np.flatnonzero(facts.read)
            values = facts.stats[places, CALIBRATED_FILTERS.index(name)]
            yield Block(
                places + part.base,
                np.zeros(len(places), np.uint32),
                {(name, 0): values},
                [part.key(place) for place in places.tolist()],
            )

    blocks = _replayable(lambda: _joined(chunks()))
    return _filtered(
        blocks,
        (name, 0),
        f"atomic:{name}:select",
        f"atomic||{name}",
        config,
        most,
        atomic_filter=True,
    )


def measure_recipe(
    pieces: Callable[[], Iterable[tuple[Part, Facts, Trace]]],
    recipe: Wanted,
    config: CdrConfig,
    most: int,
) -> Measured:
    """Everything that is chosen from for one recipe. `pieces`: its traces, part by part."""
    blocks = _replayable(lambda: _joined(_blocks(pieces(), recipe)))
    entry = recipe.entry
    clean, swaps = Smallest(most), Smallest(config.swaps.max_records)
    clean_id = entry.variants[0].id
    salt = f"{entry.domain}:{entry.recipe.id}:{clean_id}"
    for block in blocks():
        fine = (block.bits & (CHANGED | FAILED)) == CHANGED
        _add(clean, block, fine, clean_id)
        _add(swaps, block, (block.bits & _ENGLISH) != 0, salt)
    return Measured(
        clean.done(),
        tuple(
            _filtered(blocks, _point(v), f"{v.id}:select", v.id, config, most)
            for v in entry.variants[1:]
        ),
        tuple(
            _grouped(blocks, family, place, config.instances, most)
            for place, family in enumerate(entry.families)
        ),
        swaps.done(),
    )


_ENGLISH = 1 << 31  # bit of a block alone: order pairs may be made from the document


def _blocks(pieces: Iterable[tuple[Part, Facts, Trace]], recipe: Wanted) -> Iterator[Block]:
    points = {_point(v) for v in recipe.entry.variants[1:]}
    points |= {(f.filter, step) for f in recipe.entry.families for step in steps_of(f)}
    for part, facts, trace in pieces:
        spoken = np.where(facts.english[trace.places], np.uint32(_ENGLISH), np.uint32(0))
        yield Block(
            trace.places + np.int64(part.base),
            trace.bits | spoken,
            {point: column(trace, recipe, facts, *point) for point in sorted(points)},
            [part.key(place) for place in trace.places.tolist()],
        )


def _point(variant: Variant) -> tuple[str, int]:
    name = str(variant.filter)
    return name, variant.sequence.index(name)


def _add(found: Smallest, block: Block, mask: Array, salt: str, bits: Array | None = None) -> None:
    places = np.flatnonzero(mask)
    made = hashes(salt, (block.keys[place][1] for place in places.tolist()), len(places))
    kept = np.zeros(len(places)) if bits is None else bits[places]
    found.add(made, block.numbers[places], kept)


def _filtered(
    blocks: Blocks,
    point: tuple[str, int],
    salt: str,
    named: str,
    config: CdrConfig,
    most: int,
    **more: Any,
) -> Filtered:
    """`named` makes an instance's id from its document's: H(named, id)."""
    limits, name = config.instances, point[0]

    def usable(block: Block) -> Array:
        return ~np.isnan(block.columns[point]) & (block.bits & FAILED == 0)

    def values() -> Iterator[Array]:
        return (block.columns[point][usable(block)] for block in blocks())

    params, meta = _threshold(name, values, limits, **more)
    sides = Smallest(most), Smallest(most)
    if params is not None:
        for block in blocks():
            kept, fine = keeps(name, params, block.columns[point]), usable(block)
            for found, side, mask in zip(sides, SIDES, (fine & kept, fine & ~kept), strict=True):
                places = np.flatnonzero(mask)
                ids = [block.keys[place][0] for place in places.tolist()]
                rests = (b"||".join(pair) for pair in zip(ids, names(named, ids), strict=True))
                made = hashes(f"{salt}:{side}", rests, len(ids))
                found.add(made, block.numbers[places], np.zeros(len(ids)))
    keep, drop = sides
    return Filtered(params, meta, keep.count, drop.count, keep.done(), drop.done())


def _grouped(
    blocks: Blocks, family: OrderFamily, place: int, limits: InstanceConfig, most: int
) -> Grouped:
    points = [(family.filter, step) for step in steps_of(family)]

    def usable(block: Block) -> Array:
        fine = block.bits & FAILED == 0
        for point in points:
            fine = fine & ~np.isnan(block.columns[point])
        return fine

    def values() -> Iterator[Array]:
        for block in blocks():
            fine = usable(block)
            yield from (block.columns[point][fine] for point in points)

    params, meta = _threshold(family.filter, values, limits, shared_across_order_slots=True)
    found = Smallest(most)
    for block in blocks() if params is not None else ():
        sides = [keeps(family.filter, params or {}, block.columns[point]) for point in points]
        same_texts = block.bits & (FAMILY << place) != 0
        all_kept, none_kept = np.all(sides, axis=0), ~np.any(sides, axis=0)
        differs = ~all_kept & ~(none_kept & same_texts)
        bits = sum(side * bit for side, bit in zip(sides, SLOT_BITS, strict=True))
        _add(found, block, usable(block) & differs, family.id, np.asarray(bits))
    return Grouped(params, meta, found.done())


def _threshold(
    name: str, values: Callable[[], Iterator[Array]], limits: InstanceConfig, **more: Any
) -> tuple[Params | None, dict[str, Any]]:
    quantile = quantile_of(name, limits.target_drop_rate)
    raw = percentile_of(values, quantile)
    if raw is None:
        return None, {}
    made = calibrated(name, raw, limits.target_drop_rate, limits.zero_policy)
    count = sum(len(chunk) for chunk in values())
    meta = made.meta | {
        "filter_name": name,
        "status_value_key": bound_filter(name).operator.stat_key,
        "value_count": count,
    }
    return made.params, meta | more


def keeps(name: str, params: Params, values: Array) -> Array:
    """Which statistics the filter keeps, its operator's defaults behind the calibrated bound."""
    step = bind(Step(name, dict(params)))
    inside = np.ones(len(values), np.bool_)
    if step.low is not None:
        inside &= values >= step.low
    if step.high is not None:
        inside &= values <= step.high
    return inside
