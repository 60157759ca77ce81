"""A predictions file into the benchmark's numbers: per instance, per track, and the order groups
(spec sections 12.3, 12.4 and 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from assay.task import TaskError
from rewards.cdr.ids import sample_variants
from rewards.cdr.predictions import metric_row, score_prediction

Row = dict[str, Any]
SLOT_NAMES = {"front": "pre", "middle": "mid", "end": "post"}
REPORTED_SLOTS = ("pre", "mid", "post")


_OF_A_ROW = (  # what a scored answer says of its row
    *("benchmark_track", "benchmark_split", "source_track", "track_family", "domain"),
    *("source_domain", "operator", "operator_kind", "semantic_operator", "reference_status"),
    *("order_family_id", "order_slot", "order_group_instance_id"),
    *("required_slots_for_group_success", "scoring_profile", "output_format"),
    "reports_refinement_gain",
)


@dataclass(frozen=True)
class ScoredFile:
    """`variants` has a row a prediction, `instances` one a task; `paper` is paper_metrics.json."""

    variants: list[Row]
    instances: list[Row]
    paper: Row
    summary: Row


def score_file(
    predictions: Sequence[Mapping[str, Any]],
    k: int = 3,
    seed: int = 0,
    track: str | None = None,
    model: str | None = None,
) -> ScoredFile:
    """Score release prediction rows. `k` ≤ 0 samples all variants. Raises `TaskError` naming the
    row that cannot be scored."""
    variants: list[Row] = []
    instances: list[Row] = []
    for number, row in enumerate(predictions, 1):
        try:
            scored = score_variants(row)
        except TaskError as error:
            name = row.get("instance_id")
            raise TaskError(f"row {number} ({name}): {error}") from None
        variants += scored
        instances.append(instance_metrics(row, scored, k, seed))
    first: Mapping[str, Any] = predictions[0] if predictions else dict[str, Any]()
    track = track or str(first.get("source_track") or first.get("benchmark_track") or "")
    model = model or str(first.get("request_model") or "")
    return ScoredFile(
        variants,
        instances,
        paper_metrics(instances, track, model, k, seed),
        summarise(instances, variants, track, model, k, seed),
    )


def score_variants(row: Mapping[str, Any]) -> list[Row]:
    """One row a variant prediction, by index. A request that failed is not scorable."""
    found: list[Row] = []
    listed = cast("list[dict[str, Any]]", row.get("variant_predictions") or [])
    for variant in sorted(listed, key=lambda v: int(v.get("prompt_variant_index") or 0)):
        valid = bool(variant.get("valid_prediction", True)) and not variant.get("prediction_error")
        text = str(variant.get("predicted_clean_text") or "")
        said = variant.get("predicted_status")
        status = "KEEP" if said is None else str(said)
        scored: Row = {"recipe_success": False, "refinement_gain": None, "status_match": False}
        if valid:
            scored = metric_row(score_prediction(row, status, text), row, text)
        found.append(
            {
                **{name: row.get(name) for name in ("instance_id", *_OF_A_ROW)},
                "prompt_variant_index": variant.get("prompt_variant_index"),
                "prompt_style_id": variant.get("prompt_style_id"),
                "predicted_status": variant.get("predicted_status"),
                "prediction_error": variant.get("prediction_error"),
                "scorable": valid,
                "valid_prediction": valid,
                "scorable_prediction": valid,
                "primary_score": float(bool(scored["recipe_success"])),
                **scored,
            }
        )
    return found


def instance_metrics(row: Mapping[str, Any], scored: Sequence[Row], k: int, seed: int) -> Row:
    """Section 12.3: means over scorable variants, and success at K of a sampled K."""
    key = str(row.get("recipe_prompt_key") or row.get("recipe_id") or "")
    name = str(row.get("instance_id") or "")
    picked = [scored[i] for i in sample_variants(len(scored), k, seed, key, name)]
    usable = [v for v in scored if v["scorable"]]
    gains = [v["refinement_gain"] for v in usable if v["refinement_gain"] is not None]
    enough = len(scored) >= k if k > 0 else True
    complete = enough and all(v["scorable"] for v in picked) and bool(picked)
    zero = next((v for v in scored if v["prompt_variant_index"] == 0), None)
    kept = (
        "benchmark_track",
        "benchmark_split",
        "track_family",
        "source_track",
        "domain",
        "source_domain",
        "operator",
        "operator_kind",
        "semantic_operator",
        "recipe_id",
        "recipe_prompt_key",
        "recipe_type",
        "order_family_id",
        "order_slot",
        "order_group_instance_id",
        "scoring_profile",
        "required_slots_for_group_success",
        "reference_status",
        "input_length_bucket",
        "difficulty_label",
        "reports_refinement_gain",
    )
    return {name_: row.get(name_) for name_ in ("instance_id", *kept)} | {
        "num_prompt_variants": len(scored),
        "num_sampled_prompt_variants": len(picked),
        "num_scorable_variants": len(usable),
        "num_sampled_scorable_variants": sum(v["scorable"] for v in picked),
        "required_at_k_prompt_variants": k if k > 0 else len(scored),
        "at_k_complete": complete,
        "rs": mean([float(v["recipe_success"]) for v in usable]) or 0.0,
        "rs_at_k": any(v["recipe_success"] for v in picked) if complete else None,
        "rs_prompt0": bool(zero["recipe_success"]) if zero and zero["scorable"] else None,
        "mean_rg": mean(gains),
    }


def mean(values: Iterable[float | bool | None]) -> float | None:
    """The mean of what is there; None of nothing."""
    found = [float(v) for v in values if v is not None]
    return sum(found) / len(found) if found else None


def group_success(instances: Sequence[Row], field: str) -> list[bool | None]:
    """Per order group whether every row has `field` true; None when one is null or missing."""
    groups: dict[str, list[Row]] = {}
    for row in instances:
        if row.get("order_group_instance_id"):
            groups.setdefault(str(row["order_group_instance_id"]), []).append(row)
    found: list[bool | None] = []
    for rows in groups.values():
        needed = {
            slot_name(slot)
            for row in rows
            for slot in cast("list[str]", row.get("required_slots_for_group_success") or [])
        }
        values = [row[field] for row in rows]
        missing = needed - {slot_name(row.get("order_slot")) for row in rows}
        found.append(None if missing or None in values else all(values))
    return found


def paper_metrics(instances: Sequence[Row], track: str, model: str, k: int, seed: int) -> Row:
    """paper_metrics.json: fractions; keys that do not apply to the track are absent."""
    paper: Row = {
        "track": track,
        "model": model,
        "num_instances": len(instances),
        "prompt_variant_sample_size": k if k > 0 else "all",
        "prompt_variant_sampling_seed": seed,
        "mean_rs@k": mean(row["rs_at_k"] for row in instances),
        "mean_rs": mean(row["rs"] for row in instances),
        "mean_rg": mean(row["mean_rg"] for row in instances),
    }
    if any(row.get("order_group_instance_id") for row in instances):
        paper["ocs"] = mean(group_success(instances, "rs_prompt0"))
        paper["ocs_at_k"] = mean(group_success(instances, "rs_at_k"))
        for slot in REPORTED_SLOTS:
            rows = [r for r in instances if slot_name(r.get("order_slot")) == slot]
            paper[f"rs_{slot}@k"] = mean(r["rs_at_k"] for r in rows)
            paper[f"rg_{slot}"] = mean(r["mean_rg"] for r in rows)
    for kind in ("mapper", "filter"):
        rows = [r for r in instances if r.get("operator_kind") == kind]
        paper[f"atomic_{kind}_rs@k"] = mean(r["rs_at_k"] for r in rows)
    return paper


def slot_name(slot: object) -> str | None:
    """front, middle and end are reported as pre, mid and post; other names stay."""
    return None if slot is None else SLOT_NAMES.get(str(slot), str(slot))


def overall(instances: Sequence[Row]) -> Row:
    return {
        "num_instances": len(instances),
        "mean_rs": mean(row["rs"] for row in instances),
        "mean_rs_prompt0": mean(row["rs_prompt0"] for row in instances),
        "mean_rs_at_k": mean(row["rs_at_k"] for row in instances),
        "mean_rg": mean(row["mean_rg"] for row in instances),
        "num_rg_instances": sum(row["mean_rg"] is not None for row in instances),
    }


def summarise(
    instances: Sequence[Row], variants: Sequence[Row], track: str, model: str, k: int, seed: int
) -> Row:
    """summary.json: the same numbers overall and by what the rows say of themselves. The release
    groups by family, track and profile; domain, length and so on are ours."""
    counts: dict[str, int] = {}
    for variant in variants:
        name = str(variant["prompt_variant_index"])
        counts[name] = counts.get(name, 0) + 1
    groups = {str(r["order_group_instance_id"]) for r in instances if r["order_group_instance_id"]}
    size = k if k > 0 else "all"
    paper = paper_metrics(instances, track, model, k, seed)
    summary: Row = {
        **{name: value for name, value in paper.items() if not name.startswith("mean_")},
        "prompt_variant_sample_size_for_rs_at_k": size,
        "num_variant_predictions": len(variants),
        "variant_index_counts": counts,
        "overall": overall(instances),
        "num_order_groups": len(groups) or None,
    }
    more = ("domain", "input_length_bucket", "difficulty_label", "order_slot", "semantic_operator")
    there = [name for name in more if any(row.get(name) is not None for row in instances)]
    for name in ("track_family", "benchmark_track", "source_track", "scoring_profile", *there):
        values = sorted({str(row.get(name)) for row in instances})
        summary[f"by_{name}"] = {
            value: overall([row for row in instances if str(row.get(name)) == value])
            for value in values
        }
    return summary
