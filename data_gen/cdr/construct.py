"""The construction pipeline from records to instances, and its result as comparable rows.

`construct` does in memory, on records it is given, what `data_gen.cdr.stages` does on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from configs.cdr import CdrConfig
from data_gen.cdr.domains import MAPPERS, label, rank_domains
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.mining import Mined
from data_gen.cdr.records import Record, Replays
from data_gen.cdr.stages.choose import MAIN, ORDER, Chooser, Unit, rows_at_most
from data_gen.cdr.stages.documents import Documents, in_memory
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS as CALIBRATED_FILTERS
from data_gen.cdr.stages.measure import (
    Candidates,
    Filtered,
    Measured,
    measure_filter,
    measure_mapper,
    measure_recipe,
)
from data_gen.cdr.stages.recipes import Library, build_library, replay_support
from data_gen.cdr.stages.traces import trace_part, wanted
from data_gen.cdr.stages.units import Maker, rules_of
from data_gen.cdr.swaps import swap_pairs
from data_gen.cdr.tracks import Instance, SwapPair


@dataclass(frozen=True)
class Construction:
    """Everything the pipeline made. `records` are all records read, used or not."""

    records: Sequence[Record]
    mined: tuple[Mined, ...]
    library: tuple[LibraryRecipe, ...]
    atomic: list[Instance]
    main: list[Instance]
    order: list[Instance]
    swaps: list[SwapPair]


def usable_records(records: Sequence[Record], config: CdrConfig) -> list[Record]:
    """Within the length limit and with enough active mappers."""
    limits = config.instances
    return [
        r
        for r in records
        if len(r.text) <= limits.max_text_length and len(r.active) >= limits.min_active
    ]


class _InMemory:
    """Measurements made when they are asked for."""

    def __init__(
        self, documents: Documents, library: Library, config: CdrConfig, replays: Replays
    ) -> None:
        self._documents, self._config = documents, config
        self._most = rows_at_most(config, library)
        self._measured: dict[int, Measured] = {}
        self._recipes = [wanted(entry) for entry in library.entries]
        ((self._part, self._facts),) = documents.usable(config)
        texts = [self._part.record(place).text for place in range(len(documents))]
        self._traces = trace_part(self._facts, texts, self._recipes, replays=replays)

    def mapper(self, name: str) -> Candidates:
        return measure_mapper(self._documents, name, self._config, self._most)

    def filter(self, name: str) -> Filtered:
        return measure_filter(self._documents, name, self._config, self._most)

    def recipe(self, number: int) -> Measured:
        if number not in self._measured:
            self._measured[number] = self._measure(number)
        return self._measured[number]

    def _measure(self, number: int) -> Measured:
        pieces = [(self._part, self._facts, self._traces[number])]
        recipe = self._recipes[number]
        return measure_recipe(lambda: pieces, recipe, self._config, self._most)


def construct(records: Sequence[Record], config: CdrConfig, replays: Replays) -> Construction:
    """Mine, attach filters, build all tracks. Same records and config, same result."""
    documents = in_memory(records, config)
    library = build_library(
        documents, config, lambda jobs: (replay_support(documents, job, replays) for job in jobs)
    )
    source = _InMemory(documents, library, config, replays)
    units = [
        Unit(*map(int, row))
        for chosen in Chooser(config.instances, len(records)).units(source, library)
        for row in chosen
    ]
    maker = Maker(library, rules_of(source, library))
    rows = [
        (unit.kind, row)
        for unit in units
        for row in maker.executed(unit, records[unit.document], replays)
    ]
    swaps = [
        pair
        for number, entry in enumerate(library.entries)
        for pair in swap_pairs(
            entry,
            (records[int(n)] for n in source.recipe(number).swaps.numbers),
            config.swaps,
            replays,
        )
    ]
    return Construction(
        records,
        library.mined,
        library.entries,
        [row for kind, row in rows if kind not in (MAIN, ORDER)],
        [row for kind, row in rows if kind == MAIN],
        [row for kind, row in rows if kind == ORDER],
        swaps[: config.swaps.total or None],
    )


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def bucket(length: int) -> str:
    """Input length: short up to 4,000 characters, medium up to 8,000, else long."""
    return "short" if length <= 4000 else "medium" if length <= 8000 else "long"


def pipeline_rows(done: Construction) -> Iterator[dict[str, Any]]:
    """The construction as JSON rows, texts as SHA-256, in the order things were made."""
    for record in done.records:
        yield activation_row(record.id, record.domain, record.label, tuple(sorted(record.active)))
    yield from library_rows(done.mined, done.library)
    for row in (*done.atomic, *done.main, *done.order):
        yield instance_row(row)
    for pair in done.swaps:
        yield swap_row(pair)


def activation_row(name: str, domain: str, shown: str, active: tuple[str, ...]) -> dict[str, Any]:
    """What a document activates. `domain` by its internal name, `shown` as the corpus has it."""
    return {
        "kind": "pipeline_activation",
        "doc_id": name,
        "domain": shown,
        "active": list(active),
        "ranked_domain": _ranked(domain, active),
    }


@lru_cache(maxsize=20_000)
def _ranked(domain: str, active: tuple[str, ...]) -> str | None:
    ranked = rank_domains(active, domain)[0] if len(active) >= 2 else None
    known = ranked is not None and any(op in active for op in MAPPERS[ranked])
    return label(ranked) if ranked and known else None


def library_rows(
    mined: Iterable[Mined], library: Sequence[LibraryRecipe]
) -> Iterator[dict[str, Any]]:
    """Families and recipes, domain by domain."""
    for one in mined:
        yield from _family_rows(one)
        yield from (_recipe_row(entry) for entry in library if entry.domain == one.domain)


def _family_rows(mined: Mined) -> Iterator[dict[str, Any]]:
    for family in mined.families:
        yield {
            "kind": "pipeline_family",
            "domain": label(mined.domain),
            "family_id": family.id,
            "anchor": list(family.anchor),
            "subset_support": family.subset_support,
            "family_support": family.family_support,
            "num_records": mined.records,
            "threshold": mined.threshold,
        }


def _recipe_row(entry: LibraryRecipe) -> dict[str, Any]:
    recipe = entry.recipe
    row: dict[str, Any] = {
        "kind": "pipeline_recipe",
        "domain": label(entry.domain),
        "recipe_id": recipe.id,
        "family_id": recipe.family_id,
        "support": recipe.support,
        "ordered": list(recipe.ordered),
        "support_records": entry.support_records,
        "order_families": [
            {
                "order_family_id": family.id,
                "filter": family.filter,
                "min_support": family.min_support,
                "slots": {
                    slot: {
                        "step": point.step,
                        "params": point.params,
                        "sequence": list(family.sequences[slot]),
                    }
                    for slot, point in family.slots.items()
                },
            }
            for family in entry.families
        ],
        "main_variants": [
            {
                "recipe_variant_id": variant.id,
                "recipe_type": variant.recipe_type,
                "sequence": list(variant.sequence),
                "filter_params": variant.params,
            }
            for variant in entry.variants
        ],
    }
    return row | ({"composed": True} if recipe.composed else {})


def instance_row(row: Instance) -> dict[str, Any]:
    meta = row.threshold_meta or {}
    return {
        "kind": "pipeline_instance",
        "track": row.track,
        "instance_id": row.id,
        "doc_id": row.record.id,
        "domain": label(row.domain),
        "recipe_id": row.recipe_id,
        "recipe_variant_id": row.variant_id,
        "recipe_type": row.recipe_type,
        "order_family_id": row.family_id,
        "order_slot": row.slot,
        "order_group_instance_id": row.group,
        "operator_sequence": list(row.sequence),
        "filter_params_by_name": row.filter_params,
        "threshold_raw_value": meta.get("threshold_raw_value"),
        "status": row.status,
        "text_len": len(row.text),
        "text_sha256": sha256(row.text),
        "full_run_sha256": sha256(row.full_run),
        "recipe_prompt_key": row.prompt_key,
        "input_length_bucket": bucket(len(row.record.text)),
    }


def swap_row(pair: SwapPair) -> dict[str, Any]:
    return {
        "kind": "pipeline_order_m",
        "domain": label(pair.domain),
        "recipe_id": pair.recipe_id,
        "doc_id": pair.record.id,
        "order_family_id": pair.family_id,
        "order_group_instance_id": pair.group,
        "swapped_instance_id": pair.swapped_id,
        "canonical_operator_sequence": list(pair.canonical),
        "swapped_operator_sequence": list(pair.swapped),
        "canonical_sha256": sha256(pair.canonical_text),
        "swapped_sha256": sha256(pair.swapped_text),
        "edit_distance": pair.edit_distance,
    }
