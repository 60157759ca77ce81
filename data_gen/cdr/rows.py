"""Benchmark rows from instances: the release's fields, and the same problem as a `Task`.

Field order is the release's (spec section 14); after them stand `filter_params_by_name`,
`recipe_variant_id`, `doc_id`, `composed` and the order tracks' reference at the stop point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.task import Task
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.units import FILTER, MAPPER, RELEASED_SLOTS, RULES, Instance
from rollouts.cdr.prompts import messages

Row = dict[str, Any]
RANKS = {"short": 1, "medium": 2, "long": 3}
LABELS = {1: "easy", 2: "medium", 3: "hard"}


def bucket(length: int) -> str:
    """Input length: short up to 4,000 characters, medium up to 8,000, else long."""
    return "short" if length <= 4000 else "medium" if length <= 8000 else "long"


def difficulty(input_length: int, recipe_length: int) -> int:
    """1 easy, 2 medium, 3 hard: input and recipe each rank 1 to 3, sums ≤ 3, 4 to 5, 6."""
    recipe = 1 if recipe_length <= 2 else 2 if recipe_length <= 4 else 3
    total = RANKS[bucket(input_length)] + recipe
    return 1 if total <= 3 else 2 if total <= 5 else 3


def release_row(
    made: Instance, variants: Sequence[PromptVariant], picked: Sequence[int], k: int, seed: int
) -> Row:
    """A row of `tracks/*.jsonl` with the `picked` variants of its pool."""
    row, text, domain = made.plan, made.record.text, made.record.domain
    atomic = row.kind in (MAPPER, FILTER)
    score = difficulty(len(text), len(row.sequence))
    kinds = "mapper" if row.filter is None else "filter"
    return {
        "instance_id": made.id,
        "benchmark_track": row.track,
        "benchmark_split": "single",
        "track_family": "core_rule",
        "source_track": row.track,
        "base_sample_id": made.record.id,
        "domain": domain,
        "source_record_id": made.record.id,
        "source_benchmark": "cdrbench_rule_based",
        "input_text": text,
        "input_length_chars": len(text),
        "input_length_bucket": bucket(len(text)),
        "operator": row.sequence[0] if atomic else None,
        "operator_kind": kinds if atomic else None,
        "operator_sequence": list(row.sequence),
        "semantic_operator": None,
        "recipe_id": row.recipe_id,
        "recipe_prompt_key": made.key,
        "recipe_type": row.recipe_type,
        "recipe_length": len(row.sequence),
        "order_family_id": row.family_id,
        "order_slot": RELEASED_SLOTS.get(str(row.slot), row.slot),
        "order_group_instance_id": made.group,
        "group_success_rule": RULES.get(row.kind),
        "reference_status": made.status,
        "reference_text": made.text,
        "reference_json": None,
        "reference_text_full_run": made.full_run,
        "output_format": "tagged_text",
        "scoring_profile": "text_refinement",
        "reports_refinement_gain": True,
        "prompt_variants": [variants[i].to_json() for i in picked],
        "prompt_variant_count": len(picked),
        "selected_prompt_variant_indices": list(picked),
        "prompt_candidate_pool_count": len(variants),
        "prompt_sampling_policy": "hash_rank_without_replacement" if k > 0 else "all",
        "prompt_sampling_seed": seed,
        "difficulty_score": score,
        "difficulty_label": LABELS[score],
        "pii_meta": None,
        "hallu_meta": None,
        "rubric_meta": None,
        "safety_meta": None,
        "filter_params_by_name": row.filter_params,
        "recipe_variant_id": row.variant_id,
        "doc_id": made.record.id,
        "threshold_meta": row.threshold_meta,
        "composed": row.composed,
    }


def task_of(
    made: Instance, row: Row, variant: PromptVariant, split: str, mode: str, number: int = 0
) -> Task:
    """A release row as a task, asked in one of its wordings: the `number`th of those it is written
    in. Wordings of one instance are a group; an order group is one with all its wordings."""
    plan, record = made.plan, made.record
    name, group = row["instance_id"], row["order_group_instance_id"]
    return Task(
        id=name if number == 0 else f"{name}-{number}",
        family="refinement",
        track=row["source_track"],
        split=split,
        prompt=messages(variant.user_requirement, row["input_text"], mode),
        gold={
            "status": row["reference_status"],
            "text": row["reference_text"],
            "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in plan.steps],
            "input_text": row["input_text"],
            "full_run_text": row["reference_text_full_run"],
            "mode": mode,
        },
        group=group,
        meta={
            "instance": name,
            "document": row["doc_id"],
            "domain": row["domain"],
            "source": record.source,
            "licence": record.licence,
            "difficulty": row["difficulty_label"],
            "length_bucket": row["input_length_bucket"],
            "recipe_length": row["recipe_length"],
            "has_filter": plan.filter is not None,
            "order_slot": row["order_slot"],
            "template": plan.template,
            "requirement": variant.user_requirement,
            "style": variant.style_id,
            "composed": row["composed"],
            **({"wording": variant.wording} if variant.wording else {}),
        },
    )


def tasks_of(
    instance: Instance, row: Row, asked: Sequence[PromptVariant], split: str, mode: str
) -> list[Task]:
    """The tasks of a row in one split: training has every wording of `asked`, as a group of their
    own where the row is in none; the other splits have the first."""
    wordings = asked if split == "train" else asked[:1]
    made = [task_of(instance, row, v, split, mode, i) for i, v in enumerate(wordings)]
    if len(made) < 2:
        return made
    return [task if task.group else replace(task, group=row["instance_id"]) for task in made]
