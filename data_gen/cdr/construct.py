"""The construction pipeline from records to instances, and its result as comparable rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from configs.cdr import CdrConfig
from data_gen.cdr.compose import compose
from data_gen.cdr.domains import FILTERS, LISTED_FILTERS, MAPPERS, label, rank_domains
from data_gen.cdr.library import LibraryRecipe, attach_filters
from data_gen.cdr.mining import Mined, mine
from data_gen.cdr.records import Record, Replays
from data_gen.cdr.swaps import swap_pairs
from data_gen.cdr.tracks import Instance, SwapPair, Tracks

# The two word-list filters need lists that are not public.
CALIBRATED_FILTERS = tuple(name for name in FILTERS if name not in LISTED_FILTERS)


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


def construct(records: Sequence[Record], config: CdrConfig, replays: Replays) -> Construction:
    """Mine, attach filters, build all tracks. Same records and config, same result."""
    usable = usable_records(records, config)
    mined: list[Mined] = []
    library: list[LibraryRecipe] = []
    for domain in sorted({r.domain for r in usable}):
        own = [r for r in usable if r.domain == domain]
        found = mine(domain, [sorted(r.active) for r in own], config.mining)
        mined.append(found)
        made = compose(domain, own, found.recipes, config.compose, config.split.seed)
        library += [
            attach_filters(recipe, domain, own, CALIBRATED_FILTERS, config.library, replays)
            for recipe in [*found.recipes, *made]
        ]
    tracks = Tracks(usable, config.instances, replays)
    atomic = tracks.atomic(CALIBRATED_FILTERS)
    main: list[Instance] = []
    order: list[Instance] = []
    swaps: list[SwapPair] = []
    for entry in library:
        of_main, of_order = tracks.recipe(entry)
        main += of_main
        order += of_order
        if not config.swaps.total or len(swaps) < config.swaps.total:
            swaps += swap_pairs(entry, usable, config.swaps, replays)
    if config.swaps.total:
        del swaps[config.swaps.total :]
    return Construction(records, tuple(mined), tuple(library), atomic, main, order, swaps)


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def bucket(length: int) -> str:
    """Input length: short up to 4,000 characters, medium up to 8,000, else long."""
    return "short" if length <= 4000 else "medium" if length <= 8000 else "long"


def pipeline_rows(done: Construction) -> Iterator[dict[str, Any]]:
    """The construction as JSON rows, texts as SHA-256, in the order things were made."""
    for record in done.records:
        active = sorted(record.active)
        ranked = rank_domains(active, record.domain)[0] if len(active) >= 2 else None
        known = ranked is not None and any(op in active for op in MAPPERS[ranked])
        yield {
            "kind": "pipeline_activation",
            "doc_id": record.id,
            "domain": record.label,
            "active": active,
            "ranked_domain": label(ranked) if ranked and known else None,
        }
    for mined in done.mined:
        yield from _family_rows(mined)
        yield from (_recipe_row(entry) for entry in done.library if entry.domain == mined.domain)
    for row in (*done.atomic, *done.main, *done.order):
        yield _instance_row(row)
    for pair in done.swaps:
        yield _swap_row(pair)


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


def _instance_row(row: Instance) -> dict[str, Any]:
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


def _swap_row(pair: SwapPair) -> dict[str, Any]:
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
