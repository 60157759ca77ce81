"""The release's files: ids of tasks, benchmark rows in, predictions into the benchmark's numbers
(per instance, per track and the order groups, spec sections 12.3, 12.4 and 13), scores out.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from assay.files import write_text
from assay.task import TaskError, refuse_unfinished, write_jsonl
from rewards.cdr.release_scores import JSON, PROFILES, score_prediction

Row = dict[str, Any]
CORE = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
SEMANTIC = tuple(
    f"semantic_{domain}_{split}"
    for domain in ("pii", "hallu", "rubric", "safety")
    for split in ("atomic", "compositional")
)
# The public fields of a row, in the release's order (spec section 14).
FIELDS = (
    *("instance_id", "benchmark_track", "benchmark_split", "track_family", "source_track"),
    *("base_sample_id", "domain", "source_record_id", "source_benchmark", "input_text"),
    *("input_length_chars", "input_length_bucket", "operator", "operator_kind"),
    *("operator_sequence", "semantic_operator", "recipe_id", "recipe_prompt_key", "recipe_type"),
    *("recipe_length", "order_family_id", "order_slot", "order_group_instance_id"),
    *("group_success_rule", "reference_status", "reference_text", "reference_json"),
    *("reference_text_full_run", "output_format", "scoring_profile", "reports_refinement_gain"),
    *("prompt_variants", "prompt_variant_count", "selected_prompt_variant_indices"),
    *("prompt_candidate_pool_count", "prompt_sampling_policy", "prompt_sampling_seed"),
    *("difficulty_score", "difficulty_label", "pii_meta", "hallu_meta", "rubric_meta"),
    "safety_meta",
)
REQUIRED = (
    *("instance_id", "benchmark_track", "benchmark_split", "track_family", "source_track"),
    *("scoring_profile", "output_format", "reports_refinement_gain", "input_text"),
    *("reference_status", "reference_text"),
)
CHOICES: dict[str, tuple[str, ...]] = {
    "track_family": ("core_rule", "semantic_extension"),
    "output_format": ("tagged_text", "json", "json_and_tagged_text"),
    "scoring_profile": PROFILES,
}


def check_row(row: Mapping[str, Any], where: str) -> None:
    """Check that a benchmark row has the release's required fields with values that exist.

    Raises `TaskError` naming `where` and the field that cannot be used.
    """
    for name in REQUIRED:
        if row.get(name) is None:
            raise TaskError(f"{where}: field {name!r} is missing; benchmark rows need it")
    for name, known in CHOICES.items():
        if row[name] not in known:
            raise TaskError(f"{where}: {name} is {row[name]!r}; wanted one of {', '.join(known)}")
    if row["reports_refinement_gain"] and row["scoring_profile"] == JSON:
        raise TaskError(f"{where}: reports_refinement_gain is true, but a JSON row has no gain")


def find_tracks(folder: Path, names: Sequence[str] = ()) -> dict[str, Path]:
    """Find the track files of a benchmark folder (the release's, or what `assay tasks cdr` wrote):
    track name → path, in the benchmark's order.

    Raises `TaskError` when there is none, or one of `names` is missing.
    """
    refuse_unfinished(folder)
    places = (
        folder / "tracks",
        folder / "data" / "benchmark_v3" / "tracks",
        folder / "benchmark_v3" / "tracks",
        folder,
    )
    listed = {place: [*place.glob("*.parquet"), *place.glob("*.jsonl")] for place in places}
    home = next((place for place in places if listed[place]), None)
    if home is None:
        raise TaskError(f"{folder}: no tracks/*.jsonl in it; give a CDR-Bench folder")
    found = {p.stem: p for p in listed[home]}
    if home == folder:
        found = {name: p for name, p in found.items() if name in (*CORE, *SEMANTIC)}
    if not found:
        raise TaskError(f"{folder}: no file of it is a track; give a CDR-Bench folder")
    for name in names:
        if name not in found:
            raise TaskError(f"{home}: no track {name!r}; there is {', '.join(found) or 'none'}")
    order = [*CORE, *SEMANTIC]
    chosen = names or sorted(found, key=lambda n: (order.index(n) if n in order else 99, n))
    return {name: found[name] for name in chosen}


# ---- ids, and the prompt variants that a task is asked with


def _part(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def stable_id(*parts: object, digits: int = 16) -> str:
    """The first hexadecimal digits of SHA-1 over the parts joined by `||` (spec section 9).

    Strings stay as they are, other scalars go through `str()`, lists and objects become JSON with
    sorted keys and no spaces.
    """
    return _sha1(parts).hexdigest()[:digits]


def _sha1(parts: Iterable[object]) -> Any:
    text = "||".join([part if type(part) is str else _part(part) for part in parts])
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"))


_KEPT = 4096  # keys: all rows of a recipe share one
_prompt_keys: dict[tuple[object, ...], str] = {}


def prompt_key(
    track: str,
    domain: str,
    recipe_type: str | None,
    order_slot: str | None,
    operators: Sequence[str],
    filter_params: dict[str, dict[str, Any]] | None,
) -> str:
    """Compute `recipe_prompt_key` (spec section 9): tasks with the same key are asked in the same
    words.

    `track` is the construction-time name: atomic, main, order_sensitivity or
    mapper_order_sensitivity. `filter_params`: parameters of each filter by its name.
    """
    # repr, because 1 and 1.0 are equal and written differently
    known = (track, domain, recipe_type, order_slot, tuple(operators), repr(filter_params))
    if known not in _prompt_keys:
        if len(_prompt_keys) >= _KEPT:
            _prompt_keys.clear()
        parts = (*known[:4], list(operators), filter_params or {})
        _prompt_keys[known] = stable_id(*parts)
    return _prompt_keys[known]


def sample_variants(pool: int, k: int, seed: int, key: str, instance_id: str) -> list[int]:
    """Draw the indices of the K prompt variants of an instance, ascending (spec section 10).

    `pool` is how many variants there are. K of 0 or less, or of `pool` or more, means all of them.
    The draw depends on `seed`, `key` and `instance_id` alone.
    """
    if k <= 0 or k >= pool:
        return list(range(pool))
    begun = _sha1(("prompt-variant-sample", seed, key, instance_id, ""))

    def rank(index: int) -> str:  # the stable id of all five
        whole = begun.copy()
        whole.update(str(index).encode())
        return whole.hexdigest()[:16]

    return sorted(sorted(range(pool), key=rank)[:k])


# ---- instruction styles that list the operations (Step-by-Step, Brief) and those about the result
# (Goal-First, Scenario Story): the paper's Fig. 12 (right), by the ids of the release.

RESULT_STYLES = ("goal_oriented", "recipe_narrative")
Kind = Literal["enumerating", "outcome"]
KINDS: tuple[Kind, Kind] = ("enumerating", "outcome")


def kind_of(style: str, wording: str | None = None) -> Kind:
    """Tell whether a wording lists the operations or says the result (paper, Fig. 12 right).
    `wording`: what a built row says of it, `steps` where a style about the result had to list
    the operations; of the release's rows nothing is known."""
    return "outcome" if style in RESULT_STYLES and wording != "steps" else "enumerating"


# ---- scores of a file of predictions

SLOT_NAMES = {"front": "pre", "middle": "mid", "end": "post"}
REPORTED_SLOTS = ("pre", "mid", "post")

# What an answer's line and a task's line say of their row, in the release's order.
VARIANT_COLUMNS = (
    *("instance_id", "benchmark_track", "benchmark_split", "source_track", "track_family"),
    *("domain", "source_domain", "operator", "operator_kind", "semantic_operator"),
    *("reference_status", "order_family_id", "order_slot", "order_group_instance_id"),
    *("required_slots_for_group_success", "scoring_profile", "output_format"),
    "reports_refinement_gain",
)
INSTANCE_COLUMNS = (
    *("instance_id", "benchmark_track", "benchmark_split", "track_family", "source_track"),
    *("domain", "source_domain", "operator", "operator_kind", "semantic_operator"),
    *("recipe_id", "recipe_prompt_key", "recipe_type"),
    *("order_family_id", "order_slot", "order_group_instance_id"),
    *("scoring_profile", "required_slots_for_group_success", "reference_status"),
    *("input_length_bucket", "difficulty_label", "reports_refinement_gain"),
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
    """Score every variant prediction of a release row: one result row each, by variant index. A
    request that failed (`valid_prediction` false, or an error) is not scorable."""
    found: list[Row] = []
    listed = cast("list[dict[str, Any]]", row.get("variant_predictions") or [])
    for variant in sorted(listed, key=lambda v: int(v.get("prompt_variant_index") or 0)):
        valid = bool(variant.get("valid_prediction", True)) and not variant.get("prediction_error")
        text = str(variant.get("predicted_clean_text") or "")
        said = variant.get("predicted_status")
        status = "KEEP" if said is None else str(said)
        scored: Row = {"recipe_success": False, "refinement_gain": None, "status_match": False}
        if valid:
            scored, _ = score_prediction(row, status, text)
        found.append(
            {
                **{name: row.get(name) for name in VARIANT_COLUMNS},
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
    """Sum up the scored variants of one task (spec section 12.3): mean RS and RG in [0, 1] over
    scorable variants, and RS@K, whether any of K sampled variants is right (None when one of
    them has no score)."""
    key = str(row.get("recipe_prompt_key") or row.get("recipe_id") or "")
    name = str(row.get("instance_id") or "")
    picked = [scored[i] for i in sample_variants(len(scored), k, seed, key, name)]
    usable = [v for v in scored if v["scorable"]]
    gains = [v["refinement_gain"] for v in usable if v["refinement_gain"] is not None]
    enough = len(scored) >= k if k > 0 else True
    complete = enough and all(v["scorable"] for v in picked) and bool(picked)
    zero = next((v for v in scored if v["prompt_variant_index"] == 0), None)
    return {column: row.get(column) for column in INSTANCE_COLUMNS} | {
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
    """Compute the mean of the values that are not None; None of nothing."""
    found = [float(v) for v in values if v is not None]
    return sum(found) / len(found) if found else None


def group_success(instances: Sequence[Row], field: str) -> list[bool | None]:
    """Tell of each order group whether every row has `field` true (OCS, spec section 12.4); None
    where a value is null or a required slot is missing."""
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
    """Compute paper_metrics.json from instance rows (spec section 13): fractions in [0, 1]; keys
    that do not apply to the track are absent."""
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
    """Name an order slot as the paper reports it: front, middle and end are pre, mid and post;
    other names stay."""
    return None if slot is None else SLOT_NAMES.get(str(slot), str(slot))


def overall(instances: Sequence[Row]) -> Row:
    """Compute the means of RS, RS of variant 0, RS@K and RG over instance rows, each in [0, 1]
    or None."""
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


# ---- files of scores


def write_scores(folder: Path, scored: ScoredFile) -> None:
    """Write the files of a scored track into `folder`: summary.json, paper_metrics.json, and
    both row files as JSONL and CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "summary.json", scored.summary)
    write_json(folder / "paper_metrics.json", scored.paper)
    for name, rows in (
        ("instance_metrics", scored.instances),
        ("scored_variant_predictions", scored.variants),
    ):
        write_jsonl(folder / f"{name}.jsonl", rows)
        write_csv(folder / f"{name}.csv", rows)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON with sorted keys and an indent of 2; the file is put in place when
    it is complete."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_text(path, text, errors="backslashreplace")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV under the fields of all of them, in the order they are first seen;
    objects and lists as JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with io.StringIO(newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: _cell(v) for k, v in row.items()})
        write_text(path, file.getvalue(), errors="backslashreplace")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
