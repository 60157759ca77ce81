"""What is known of a document without its text: a few numbers, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from configs.cdr import CdrConfig
from data_gen.cdr.domains import (
    ALL_MAPPERS,
    FILTERS,
    LABELS,
    LISTED_FILTERS,
    chosen_operators,
)
from data_gen.cdr.records import Record, bound_filter, bound_mapper
from data_gen.cdr.stages.arrays import Array
from data_gen.cdr.swaps import is_english

# The two word-list filters need lists that are not public.
CALIBRATED_FILTERS = tuple(name for name in FILTERS if name not in LISTED_FILTERS)
DOMAINS = tuple(sorted(LABELS))  # internal names; a record's domain is its place here
BITS = {name: 1 << place for place, name in enumerate(ALL_MAPPERS)}


def mappers_of(config: CdrConfig) -> tuple[str, ...]:
    """The mappers that tasks are made of, alphabetically."""
    chosen = chosen_operators(config.operators.only)
    return tuple(name for name in ALL_MAPPERS if name in chosen)


def filters_of(config: CdrConfig) -> tuple[str, ...]:
    """The filters that tasks are made of."""
    chosen = chosen_operators(config.operators.only)
    return tuple(name for name in CALIBRATED_FILTERS if name in chosen)


def mask_of(names: Iterable[str]) -> int:
    """A set of mappers as bits."""
    return sum(BITS[name] for name in set(names))


def names_of(mask: int) -> tuple[str, ...]:
    """The mappers of a mask, alphabetically."""
    return tuple(name for name, bit in BITS.items() if mask & bit)


@dataclass(frozen=True)
class Facts:
    """Columns over n documents in corpus order.

    `active`: mappers that change the text in the support scan; `changes`: in the profile gold is
    made with; `english`: order pairs may be made from it; `read`: the document is used at all (its
    id was not there before);
    `stats` (n, filters): statistics of the text itself, NaN where a filter fails or the document
    has too few active mappers.
    """

    chars: Array
    domain: Array
    active: Array
    changes: Array
    english: Array
    read: Array
    stats: Array

    def usable(self, config: CdrConfig) -> Array:
        """Which documents tracks may be built from."""
        limits = config.instances
        enough = bits_set(self.active) >= limits.min_active
        return self.read & enough & (self.chars <= limits.max_text_length)

    def only(self, mask: Array) -> Facts:
        return replace(self, read=mask)


def bits_set(masks: Array) -> Array:
    """How many mappers each mask holds."""
    bytes_of = np.ascontiguousarray(masks, np.uint32).view(np.uint8).reshape(len(masks), 4)
    return np.unpackbits(bytes_of, axis=1).sum(axis=1)


def facts_of(records: Sequence[Record], config: CdrConfig) -> Facts:
    """The columns of records whose active mappers are known."""
    limits = config.instances
    rows = records
    stats = np.full((len(rows), len(CALIBRATED_FILTERS)), np.nan)
    for place, record in enumerate(rows):
        if len(record.text) <= limits.max_text_length and len(record.active) >= limits.min_active:
            stats[place] = [statistic(name, record.text) for name in CALIBRATED_FILTERS]
    english = config.swaps.language == "en"
    active = np.array([mask_of(r.active) for r in rows], np.uint32)
    same = config.scan_profile == "bench"
    changes = active if same else np.array([_changes(r) for r in rows], np.uint32)
    return Facts(
        chars=np.array([len(r.text) for r in rows], np.int64),
        domain=np.array([DOMAINS.index(r.domain) for r in rows], np.uint8),
        active=active,
        changes=changes,
        english=np.array([not english or is_english(r) for r in rows], np.bool_),
        read=np.ones(len(rows), np.bool_),
        stats=stats,
    )


def statistic(name: str, text: str) -> float:
    """The filter's statistic, NaN where it fails on the text."""
    step = bound_filter(name)
    try:
        return step.call(text, **step.params)
    except (ValueError, RecursionError):
        return float("nan")


def _changes(record: Record) -> int:
    """Of the active mappers those that change the text in the profile of gold."""
    found: list[str] = []
    for name in record.active:
        step = bound_mapper(name)
        try:
            if step.call(record.text, **step.params) != record.text:
                found.append(name)
        except (ValueError, RecursionError):
            continue
    return mask_of(found)
