"""Scoring one prediction exactly as the release does, whatever its row's profile (section 12.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rapidfuzz.distance import Levenshtein

from assay.task import TaskError
from rewards.cdr.json_score import JsonMatch, compare_json, corrected_text
from rewards.cdr.refinement import Metrics, refinement_metrics
from rewards.parse import normalise, normalise_lines

TEXT, JSON, MIXED = "text_refinement", "structured_json", "mixed_structured_text"
PROFILES = (TEXT, JSON, MIXED)


@dataclass(frozen=True)
class PredictionScore:
    """`success` is RS; `gain` is RG, None where the row reports none; the rest is diagnostic."""

    success: bool
    gain: float | None
    status_match: bool
    metrics: Metrics | None = None
    match: JsonMatch | None = None
    full_run_distance: int | None = None
    n1_success: bool = False


def profile_of(row: Mapping[str, Any]) -> str:
    """The row's scoring profile; without one, a reference that looks like JSON is scored as JSON.

    Raises `TaskError` for a profile that does not exist.
    """
    profile = row.get("scoring_profile")
    if profile in (None, ""):
        text = str(row.get("reference_text") or "").lstrip()
        return JSON if text[:1] in ("{", "[") and _is_json(text) else TEXT
    if profile not in PROFILES:
        raise TaskError(f"task field 'scoring_profile' is {profile!r}; wanted one of {PROFILES}")
    return str(profile)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def score_prediction(row: Mapping[str, Any], status: str | None, text: str) -> PredictionScore:
    """Score a read answer against a release row; an empty status matches nothing.

    Raises `TaskError` when the row lacks what its profile needs.
    """
    profile = profile_of(row)
    if profile == TEXT:
        return _score_text(row, status or "", text)
    gain = bool(row.get("reports_refinement_gain", profile == MIXED))
    try:
        if profile == JSON:
            match = compare_json(_need(row, "reference_text"), text)
            return PredictionScore(match.exact, None, True, match=match, n1_success=match.exact)
        match = compare_json(row.get("reference_json") or _need(row, "reference_json"), text)
    except ValueError as error:
        raise TaskError(f"the row's reference is no JSON ({error}); check the row") from None
    wanted, found = str(row.get("reference_status") or "KEEP"), corrected_text(match)
    reference = _need(row, "reference_text")
    metrics = refinement_metrics(_need(row, "input_text"), wanted, reference, status or "", found)
    success = match.exact and metrics.rs
    same = metrics.status_match and normalise_lines(found) == normalise_lines(reference)
    gained = metrics.rg if gain else None
    return PredictionScore(success, gained, metrics.status_match, metrics, match, n1_success=same)


def _score_text(row: Mapping[str, Any], status: str, text: str) -> PredictionScore:
    reference = _need(row, "reference_text")
    metrics = refinement_metrics(
        _need(row, "input_text"), _need(row, "reference_status"), reference, status, text
    )
    full = row.get("reference_text_full_run")
    dropped = str(row["reference_status"]).strip().upper() == "DROP"
    distance = Levenshtein.distance(text, full) if dropped and isinstance(full, str) else None
    gain = metrics.rg if row.get("reports_refinement_gain", True) else None
    same = metrics.status_match and normalise_lines(text) == normalise_lines(reference)
    return PredictionScore(
        metrics.rs,
        gain,
        metrics.status_match,
        metrics,
        full_run_distance=distance,
        n1_success=same,
    )


def _need(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if value is None:
        raise TaskError(f"task field {name!r} is missing; the row's scoring profile needs it")
    return value


def metric_row(score: PredictionScore, row: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The numbers the release writes for every scored prediction."""
    found: dict[str, Any] = {
        "status_match": score.status_match,
        "recipe_success": score.success,
        "refinement_gain": score.gain,
    }
    if score.metrics is not None:
        m = score.metrics
        if score.match is not None:
            text = corrected_text(score.match)
        reference = str(row.get("reference_text") or "")
        found |= {
            "edit_distance_input_to_reference": m.d_in,
            "edit_distance_input_to_prediction": m.d_edit,
            "edit_distance_prediction_to_reference": m.d_pred,
            "edit_distance_prediction_to_full_run_reference": score.full_run_distance,
            "raw_refinement_gain": 1.0 if m.d_pred == 0 else (m.d_in - m.d_pred) / max(m.d_in, 1),
            "refinement_progress": m.rg,
            "edit_calibration": m.edit_calibration,
            "text_exact_match": text == reference,
            "normalized_text_exact_match": normalise_lines(text) == normalise_lines(reference),
            "norm_text_exact_match": normalise(text) == normalise(reference),
            "recipe_success_strict": m.strict_equal,
            "normalized_recipe_success": score.n1_success,
            "norm_recipe_success": m.rs,
        }
    if score.match is not None:
        found |= {
            "json_parse_success": score.match.parsed,
            "json_exact_match": score.match.exact,
            "field_matches": score.match.fields if score.match.parsed else {},
            "field_accuracy": score.match.accuracy if score.match.parsed else None,
        }
    return found
