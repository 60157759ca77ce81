"""The rows of pipeline.jsonl: what the construction pipeline activated, mined and made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from data_gen.cdr.domains import MAPPERS, label, rank_domains
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.mining import Mined
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS as CALIBRATED_FILTERS
from data_gen.cdr.tracks import Instance, SwapPair


def sha256(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def bucket(length: int) -> str:
    """Input length: short up to 4,000 characters, medium up to 8,000, else long."""
    return "short" if length <= 4000 else "medium" if length <= 8000 else "long"


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
