"""The first map: read documents, find what they activate, and keep what is known of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any

from assay.workers import WorkerPool
from configs.cdr import CdrConfig
from data_gen.cdr.domains import ALL_MAPPERS, FILTERS, LISTED_FILTERS, chosen_operators
from data_gen.cdr.sources import (
    Found,
    Record,
    found_in,
    is_english,
    record_of,
)
from data_gen.cdr.work import Row, Work, raw, write_packed, write_part
from rewards.gold import RECIPE_PARAMS, BoundStep, GoldError, Profile, Step, bind

# The two word-list filters need lists that are not public.
CALIBRATED_FILTERS = tuple(name for name in FILTERS if name not in LISTED_FILTERS)
BITS = {name: 1 << place for place, name in enumerate(ALL_MAPPERS)}
USED, LONG, UNLICENSED, TWICE, TORN = range(5)  # state of a row; TORN: it holds no document

# Of a row of the corpora: where it is packed; its id and what is hashed behind it; `active`:
# mappers that change the text in the support scan, `changes`: in the profile gold is made with;
# `english`: order pairs may be made from it; `source`: the class of documents; `piece` and `row`:
# where it was read; `why`: what stands there instead of a document; statistics of the text itself,
# NaN where a filter fails or the document has too few active mappers.
COLUMNS = {
    **{"start": "int64", "size": "int64", "state": "int8", "id": "binary", "rest": "binary"},
    **{"chars": "int64", "domain": "string", "active": "uint32", "changes": "uint32"},
    **{"english": "bool_", "source": "binary", "licence": "binary", "piece": "int32"},
    **{"row": "int64", "why": "string", **dict.fromkeys(CALIBRATED_FILTERS, "float64")},
}
Read = tuple[dict[str, Any], int, int, int, str]  # row, state, piece, number, why


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


def scan_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Write the facts of a shard."""
    pieces = work.pieces(shard)
    places = {id(piece): number for number, piece in enumerate(pieces)}
    config = work.config
    found = found_in(pieces, config.fields, config.encoding)
    rows = (_read(one, places[id(one.piece)], config) for one in found)
    parts = iter(lambda: list(islice(rows, work.part)), [])
    work.map("facts", shard, crew, scan_part, ((config, part) for part in parts), COLUMNS)


def _read(found: Found, piece: int, config: CdrConfig) -> Read:
    """The row and its state; of what is not used the text's length stays, not the text."""
    row = found.row
    if row is None:
        return {}, TORN, piece, found.number, json.dumps(asdict(found.left()))
    length = len(row["text"])
    licence, patterns = row["licence"].lower(), map(str.lower, config.licences)
    licensed = not config.licences or any(fnmatchcase(licence, one) for one in patterns)
    state = USED if licensed else UNLICENSED
    if state == USED and length > config.instances.max_text_length:
        state = LONG
    if state != USED:
        row = {name: value for name, value in row.items() if name != "text"} | {"chars": length}
    return row, state, piece, found.number, ""


def scan_part(path: Path, job: tuple[CdrConfig, list[Read]]) -> int:
    """Write what is known of some rows."""
    config, rows = job
    places = write_packed(path, [row for row, *_ in rows])
    facts = [(*place, *_facts(*one, config)) for place, one in zip(places, rows, strict=True)]
    return write_part(path, COLUMNS, facts)


def _facts(
    row: dict[str, Any], state: int, piece: int, number: int, why: str, config: CdrConfig
) -> Row:
    if state == TORN:
        empty = (b"", b"", 0, "", 0, 0, False, b"", b"")
        return state, *empty, piece, number, why, *[nan] * len(CALIBRATED_FILTERS)
    text = row.get("text", "")
    mappers = mappers_of(config)
    active = active_mappers(text, config.scan_profile, mappers) if state == USED else []
    record = record_of(row | {"text": text}, active, config.domains)
    domain = record.label if state == USED else row.get("domain")
    enough = state == USED and len(active) >= config.instances.min_active
    mask = mask_of(active)
    return (
        state,
        raw(record.id),
        raw(f"||{record.source_name}||{record.url}"),
        row.get("chars", len(text)),
        record.domain,
        mask,
        mask if config.scan_profile == "bench" else _changes(record),
        config.swaps.language != "en" or is_english(record),
        raw(f"{domain or 'no domain'} / {row.get('source') or 'unknown'}"),
        raw(record.licence),
        piece,
        number,
        why,
        *(statistic(name, text) if enough else nan for name in CALIBRATED_FILTERS),
    )


def _changes(record: Record) -> int:
    """Of the active mappers those that change the text in the profile of gold."""
    return mask_of(active_mappers(record.text, "bench", record.active))


# --- what operators do to a text


@cache
def bound_mapper(name: str, profile: Profile = "bench") -> BoundStep:
    return bind(Step(name, dict(RECIPE_PARAMS.get(name, {}))), profile)


@cache
def bound_filter(name: str) -> BoundStep:
    return bind(Step(name))


def active_mappers(
    text: str, profile: Profile = "bench", names: Iterable[str] = ALL_MAPPERS
) -> list[str]:
    """Those of the mappers (26) whose output differs from the text, in their order.

    A mapper that fails on the text counts as not active.
    """
    found: list[str] = []
    for name in names:
        step = bound_mapper(name, profile)
        try:
            changed = step.call(text, **step.params) != text
        except (GoldError, ValueError, RecursionError):
            continue
        if changed:
            found.append(name)
    return found


def mapped(mapper: str, text: str) -> str:
    """The mapper's output. Raises what the mapper raises."""
    step = bound_mapper(mapper)
    return step.call(text, **step.params)


def statistic(name: str, text: str) -> float:
    """The filter's statistic, NaN where it fails on the text."""
    step = bound_filter(name)
    try:
        return step.call(text, **step.params)
    except (ValueError, RecursionError):
        return nan


class Replays:
    """Mapper outputs and filter statistics of the texts of one document, remembered.

    Recipes of one domain share prefixes and records, so most of what a recipe asks for has been
    computed for another one already.
    """

    def __init__(self) -> None:
        self.apply = lru_cache(60_000)(mapped)
        self.statistic = lru_cache(240_000)(statistic)

    def states(self, text: str, mappers: Iterable[str]) -> list[str]:
        """S0 (the text) and the text after each mapper. Raises what a mapper raises."""
        states = [text]
        for name in mappers:
            states.append(self.apply(name, states[-1]))
        return states
