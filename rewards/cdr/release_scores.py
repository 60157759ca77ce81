"""The release's scores: of an answer, of a file of predictions (per instance, per track and the
order groups, spec sections 12.3, 12.4 and 13), and their files; and the reward of JSON answers.

`score_prediction` scores a read answer exactly as the release does, whatever its row's profile
(spec section 12.2): canonical JSON equality, text, or both. `score_structured` is what training
sees of the semantic extension: `outcome` is the benchmark's RS; the reward adds field accuracy, so
that a nearly right object teaches something; both are 0 for an answer that is not JSON. Text rows
of the extension (PII redaction, correction) are scored as refinement.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rapidfuzz.distance import Levenshtein

from assay.files import write_text
from assay.task import Score, TaskError, write_jsonl
from assay.thoughts import answer_after_thoughts
from rewards.cdr.release_files import (
    JSON,
    MIXED,
    PROFILES,
    REPORTED_SLOTS,
    TEXT,
    sample_variants,
    slot_name,
)
from rewards.cdr.score import refinement_metrics, score_refinement
from rewards.parse import PARSINGS, normalise, normalise_lines, render
from rewards.weights import StructuredReward

_TAGS = tuple(
    (re.compile(f"<{name}>", re.IGNORECASE), re.compile(f"</{name}>", re.IGNORECASE))
    for name in ("clean_text", "output", "result", "answer")
)
_FAILED = object()
Row = dict[str, Any]


@dataclass(frozen=True)
class JsonMatch:
    """`accuracy` is the release's, over the keys of both sides, where a missing key equals null;
    None when neither side is an object with fields. `earned` is what a reward may pay: keys of
    the reference that are there and right, over the keys of the longer side."""

    parsed: bool
    exact: bool
    fields: dict[str, bool]
    accuracy: float | None
    value: Any = None
    earned: float = 0.0


def parse_json(text: str) -> Any:
    """Read the JSON value of a response (spec section 12.5). The first of these that is JSON
    counts: the whole response, the content of the first tag of each kind, and what the first `{` or
    `[` begins, whatever follows it.

    `null` alone is no answer. Raises ValueError when there is none.
    """
    for piece in (text, *_tagged(text)):
        value = _load(piece.strip())
        if value is None:
            break
        if value is not _FAILED:
            return value
    else:
        starts = [i for i in (text.find("{"), text.find("[")) if i >= 0]
        if starts:
            try:
                return json.JSONDecoder().raw_decode(text, min(starts))[0]
            except (ValueError, RecursionError):
                pass
    raise ValueError("no JSON in the response")


def _tagged(text: str) -> Iterator[str]:
    """What stands in the first closed tag of each kind, in the release's order of kinds: the first
    match of `<TAG>(.*?)</TAG>`, in linear time."""
    for opens, closes in _TAGS:
        opening = opens.search(text)
        closing = closes.search(text, opening.end()) if opening else None
        if opening and closing:
            yield text[opening.end() : closing.start()]


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _FAILED


def canonical(value: Any) -> Any:
    """Bring a JSON value into the form that the release compares: strings stripped and
    lower-cased, lists sorted by their JSON text, objects by key (spec section 12.5)."""
    if isinstance(value, str):
        return value.strip().lower()
    if isinstance(value, list):
        items = [canonical(item) for item in cast("list[Any]", value)]
        return sorted(items, key=_text)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: canonical(fields[key]) for key in sorted(fields)}
    return value


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def compare_json(reference: Any, predicted: str) -> JsonMatch:
    """Compare a response with a reference, a JSON value or JSON as text. Never raises on what a
    model wrote; raises ValueError when the reference itself is no JSON."""
    wanted = canonical(parse_json(reference) if isinstance(reference, str) else reference)
    try:
        value = parse_json(predicted)
        got = canonical(value)
    except (ValueError, RecursionError):
        names = sorted(cast("dict[str, Any]", wanted)) if isinstance(wanted, dict) else []
        return JsonMatch(False, False, dict.fromkeys(names, False), 0.0 if names else None)
    fields: dict[str, bool] = {}
    earned = 0.0
    if isinstance(wanted, dict) and isinstance(got, dict):
        one, other = cast("dict[str, Any]", wanted), cast("dict[str, Any]", got)
        right = sum(name in other and other[name] == value for name, value in one.items())
        earned = right / max(len(one), len(other), 1)
        fields = {name: one.get(name) == other.get(name) for name in sorted({*one, *other})}
    accuracy = sum(fields.values()) / len(fields) if fields else None
    try:
        exact = bool(wanted == got)
    except RecursionError:
        exact = False
    return JsonMatch(True, exact, fields, accuracy, value, 1.0 if exact else earned)


def corrected_text(match: JsonMatch) -> str:
    """Take the field that the mixed profile scores as text out of a compared response; "" where
    it is missing or no text."""
    value = match.value
    found = cast("dict[str, Any]", value).get("corrected_text") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


# ---- one prediction as the release scores it


def profile_of(row: Mapping[str, Any]) -> str:
    """Name the scoring profile of a row; without one, a reference that is JSON is scored as JSON.

    Raises `TaskError` for a profile that does not exist.
    """
    profile = row.get("scoring_profile")
    if profile in (None, ""):
        text = str(row.get("reference_text") or "").lstrip()
        return JSON if text[:1] in ("{", "[") and _load(text) is not _FAILED else TEXT
    if profile not in PROFILES:
        raise TaskError(f"task field 'scoring_profile' is {profile!r}; wanted one of {PROFILES}")
    return str(profile)


def score_prediction(
    row: Mapping[str, Any], status: str | None, text: str
) -> tuple[dict[str, Any], JsonMatch | None]:
    """Score a read answer against a release row; an empty status matches nothing. Returns the
    numbers that the release reports of it (`recipe_success` is RS, `refinement_gain` RG, None where
    the row reports none; distances in characters, shares in [0, 1]), and how its JSON compares.

    Raises `TaskError` when the row lacks what its profile needs.
    """
    profile, match, found = profile_of(row), None, text
    reference: str = _need(row, "reference_text")
    try:
        if profile == JSON:
            match = compare_json(reference, text)
            made = {"status_match": True, "recipe_success": match.exact, "refinement_gain": None}
            return made | _of_json(match), match
        if profile == MIXED:
            match = compare_json(row.get("reference_json") or _need(row, "reference_json"), text)
            found = corrected_text(match)
    except ValueError as error:
        raise TaskError(f"the row's reference is no JSON ({error}); check the row") from None
    wanted = str(row.get("reference_status") or "KEEP") if match else _need(row, "reference_status")
    m = refinement_metrics(_need(row, "input_text"), wanted, reference, status or "", found)
    full = row.get("reference_text_full_run")
    stopped = match is None and str(wanted).strip().upper() == "DROP" and isinstance(full, str)
    same_lines = normalise_lines(found) == normalise_lines(reference)
    return {
        "status_match": m.status_match,
        "recipe_success": m.rs and (match is None or match.exact),
        "refinement_gain": m.rg if row.get("reports_refinement_gain", True) else None,
        "edit_distance_input_to_reference": m.d_in,
        "edit_distance_input_to_prediction": m.d_edit,
        "edit_distance_prediction_to_reference": m.d_pred,
        "edit_distance_prediction_to_full_run_reference": (
            Levenshtein.distance(text, cast("str", full)) if stopped else None
        ),
        "raw_refinement_gain": 1.0 if m.d_pred == 0 else (m.d_in - m.d_pred) / max(m.d_in, 1),
        "refinement_progress": m.rg,
        "edit_calibration": m.edit_calibration,
        "text_exact_match": found == reference,
        "normalized_text_exact_match": same_lines,
        "norm_text_exact_match": normalise(found) == normalise(reference),
        "recipe_success_strict": m.strict_equal,
        "normalized_recipe_success": m.status_match and same_lines,
        "norm_recipe_success": m.rs,
    } | (_of_json(match) if match else {}), match


def _of_json(match: JsonMatch) -> dict[str, Any]:
    return {
        "json_parse_success": match.parsed,
        "json_exact_match": match.exact,
        "field_matches": match.fields if match.parsed else {},
        "field_accuracy": match.accuracy if match.parsed else None,
    }


def _need(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if value is None:
        raise TaskError(f"task field {name!r} is missing; the row's scoring profile needs it")
    return value


# ---- scores of a file of predictions

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


# ---- the reward

_LIMIT = 100_000  # longer answers are not read


def score_structured(
    row: Mapping[str, Any],
    output: str,
    parsing: str = "strict",
    weights: StructuredReward | None = None,
    truncated: bool = False,
) -> Score:
    """Score one answer to a release row of the extension. Never raises on any `output`; raises
    `TaskError` when the row lacks what its profile needs.

    `strict` (training) wants a response that is JSON and nothing else; `release` takes the first
    JSON it finds, as the published scorer does. A thought before the answer is no part of it.
    """
    weights = weights or StructuredReward()
    if parsing not in PARSINGS:
        raise ValueError(f"parsing={parsing!r}: wanted one of {', '.join(PARSINGS)}")
    gold = str(row.get("reference_json") or row.get("reference_text"))
    output = answer_after_thoughts(output, gold)
    if parsing == "strict" and len(output) > max(_LIMIT, 10 * len(str(row.get("input_text", "")))):
        return _nothing("too_long")
    if truncated and parsing == "strict":
        return _nothing("truncated")
    if profile_of(row) == TEXT:
        status = row.get("reference_status") or "KEEP"
        return score_refinement({**row, "reference_status": status}, output, parsing)
    clean = _load(output) is not _FAILED
    if parsing == "strict" and not clean:
        return _nothing("no_answer")
    numbers, match = score_prediction(row, "KEEP", output)
    assert match is not None  # the row is no text row
    success = bool(numbers["recipe_success"])
    parts = {
        "rg": numbers["refinement_gain"] or 0.0,
        "status_match": 1.0,
        "strict_equal": float(success),
        "json_parsed": float(match.parsed),
        "field_accuracy": match.accuracy or 0.0,
        "format": float(clean),
    }
    parts |= {f"field_{name}": float(right) for name, right in match.fields.items()}
    if success:
        return Score(1.0, 1.0 - (0.0 if clean else weights.form), parts)
    if not match.parsed:
        return Score(0.0, 0.0, parts, "bad_json")
    # Not the accuracy: there, an invented key with null equals a key that the reference lacks.
    reward = weights.form * clean + weights.fields * match.earned
    return Score(0.0, reward, parts, "wrong_fields")


def _nothing(why: str) -> Score:
    names = ("rg", "status_match", "strict_equal", "field_accuracy", "format")
    return Score(0.0, 0.0, dict.fromkeys(names, 0.0), why)


def gold_response(row: Mapping[str, Any]) -> str:
    """Write the response to a release row that earns 1."""
    if profile_of(row) == TEXT:
        return render(str(row.get("reference_status") or "KEEP"), str(row["reference_text"]))
    reference = row.get("reference_json") or row.get("reference_text")
    value = parse_json(reference) if isinstance(reference, str) else reference
    return json.dumps(value, ensure_ascii=False)
