"""Benchmark rows from instances: the release's fields, and the same problem as a `Task`.

Field order is the release's (spec section 14); after them stand `filter_params_by_name`,
`recipe_variant_id`, `doc_id`, `composed` and the order tracks' reference at the stop point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.task import Task
from data_gen.cdr.construct import bucket
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.tracks import GROUP_RULE, SWAP_RULE, Instance, SwapPair
from rewards.cdr.release_files import prompt_key, stable_id
from rewards.gold import RECIPE_PARAMS, Step
from rollouts.cdr.prompts import messages

Row = dict[str, Any]
TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
SLOTS = {"front": "pre", "middle": "mid", "end": "post"}
RANKS = {"short": 1, "medium": 2, "long": 3}
LABELS = {1: "easy", 2: "medium", 3: "hard"}


@dataclass(frozen=True)
class PlannedRow:
    """One row before it is worded: an instance under its released track and slot. `unit` is the
    number of its unit in a plan."""

    track: str
    instance: Instance
    slot: str | None
    group_rule: str | None
    unit: int = -1

    @property
    def steps(self) -> list[Step]:
        """The recipe, with the parameters gold was made with."""
        params = {**RECIPE_PARAMS, **self.instance.filter_params}
        return [Step(name, dict(params.get(name, {}))) for name in self.instance.sequence]


def difficulty(input_length: int, recipe_length: int) -> int:
    """1 easy, 2 medium, 3 hard: input and recipe each rank 1 to 3, sums ≤ 3, 4 to 5, 6."""
    recipe = 1 if recipe_length <= 2 else 2 if recipe_length <= 4 else 3
    total = RANKS[bucket(input_length)] + recipe
    return 1 if total <= 3 else 2 if total <= 5 else 3


def planned_instances(
    rows: Sequence[Instance], filter_variants: bool, unit: int = -1
) -> list[PlannedRow]:
    """The rows of one unit; none of a recipe with a filter outside the order tracks, unless
    `filter_variants`."""
    first = rows[0]
    if first.track == "order_sensitivity":
        return [PlannedRow("order_f", row, SLOTS[str(row.slot)], GROUP_RULE, unit) for row in rows]
    if first.track == "atomic":
        track = "atomic_f" if first.sequence[0].endswith("_filter") else "atomic_m"
        return [PlannedRow(track, first, None, None, unit)]
    if first.recipe_type == "clean-only" or filter_variants:
        return [PlannedRow("agnostic_m", first, None, None, unit)]
    return []


def planned_pair(pair: SwapPair, unit: int = -1) -> list[PlannedRow]:
    return [PlannedRow("order_m", row, row.slot, SWAP_RULE, unit) for row in swap_instances(pair)]


def swap_instances(pair: SwapPair) -> list[Instance]:
    """The canonical and the swapped row of an order pair.

    The release's names of the canonical row are not public; ours are H(family, record,
    "canonical") and the slot `original`.
    """
    swap = pair.family_id.rsplit("__", 1)[-1]
    made: list[Instance] = []
    for name, slot, sequence, text in (
        (
            stable_id(pair.family_id, pair.record.id, "canonical"),
            "original",
            pair.canonical,
            pair.canonical_text,
        ),
        (pair.swapped_id, swap, pair.swapped, pair.swapped_text),
    ):
        made.append(
            Instance(
                "mapper_order_sensitivity",
                name,
                pair.record,
                sequence,
                "KEEP",
                text,
                recipe_id=pair.recipe_id,
                variant_id=f"{pair.family_id}__{slot}",
                recipe_type="clean-only",
                family_id=pair.family_id,
                slot=slot,
                group=pair.group,
                full_run=text,
                domain=pair.domain,
                composed=pair.composed,
            )
        )
    return made


def key_of(planned: PlannedRow) -> str:
    """`recipe_prompt_key` of a row, by the construction-time names."""
    row = planned.instance
    return prompt_key(
        row.track, row.domain, row.recipe_type, row.slot, row.sequence, row.filter_params
    )


def release_row(
    planned: PlannedRow, variants: Sequence[PromptVariant], picked: Sequence[int], k: int, seed: int
) -> Row:
    """A row of `tracks/*.jsonl` with the `picked` variants of its pool."""
    row = planned.instance
    text, atomic = row.record.text, row.track == "atomic"
    score = difficulty(len(text), len(row.sequence))
    kinds = "filter" if row.sequence[0].endswith("_filter") else "mapper"
    return {
        "instance_id": row.id,
        "benchmark_track": planned.track,
        "benchmark_split": "single",
        "track_family": "core_rule",
        "source_track": planned.track,
        "base_sample_id": row.record.id,
        "domain": row.domain,
        "source_record_id": row.record.id,
        "source_benchmark": "cdrbench_rule_based",
        "input_text": text,
        "input_length_chars": len(text),
        "input_length_bucket": bucket(len(text)),
        "operator": row.sequence[0] if atomic else None,
        "operator_kind": kinds if atomic else None,
        "operator_sequence": list(row.sequence),
        "semantic_operator": None,
        "recipe_id": row.recipe_id,
        "recipe_prompt_key": key_of(planned),
        "recipe_type": row.recipe_type,
        "recipe_length": len(row.sequence),
        "order_family_id": row.family_id,
        "order_slot": planned.slot,
        "order_group_instance_id": row.group,
        "group_success_rule": planned.group_rule,
        "reference_status": row.status,
        "reference_text": row.text,
        "reference_json": None,
        "reference_text_full_run": row.full_run,
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
        "doc_id": row.record.id,
        "threshold_meta": row.threshold_meta,
        "composed": row.composed,
    }


def task_of(
    planned: PlannedRow, row: Row, variant: PromptVariant, split: str, mode: str, number: int = 0
) -> Task:
    """A release row as a task, asked in one of its wordings: the `number`th of those it is written
    in. Wordings of one instance are a group; an order group is one with all its wordings."""
    steps, record = planned.steps, planned.instance.record
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
            "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in steps],
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
            "has_filter": filter_of(planned) is not None,
            "order_slot": row["order_slot"],
            "template": template(planned.instance.sequence),
            "requirement": variant.user_requirement,
            "style": variant.style_id,
            "composed": row["composed"],
            **({"wording": variant.wording} if variant.wording else {}),
        },
    )


def tasks_of(
    planned: PlannedRow, row: Row, asked: Sequence[PromptVariant], split: str, mode: str
) -> list[Task]:
    """The tasks of a row in one split: training has every wording of `asked`, as a group of their
    own where the row is in none; the other splits have the first."""
    wordings = asked if split == "train" else asked[:1]
    made = [task_of(planned, row, v, split, mode, i) for i, v in enumerate(wordings)]
    if len(made) < 2:
        return made
    return [task if task.group else replace(task, group=row["instance_id"]) for task in made]


def filter_of(planned: PlannedRow) -> str | None:
    """The filter of a row's recipe, which has one at most; None without."""
    return next((n for n in planned.instance.sequence if n.endswith("_filter")), None)


def template(operators: Iterable[str]) -> str:
    """A recipe's operators, whatever their order and thresholds: what recipe splits go by."""
    return " ".join(sorted(name.rsplit("_", 1)[0] for name in operators))
