"""Answers of the semantic extension: canonical JSON equality, and the mixed JSON and text profile.

`score_prediction` scores a read answer exactly as the release does, whatever its row's profile
(spec section 12.2). `score_structured` is what training sees: `outcome` is the benchmark's RS; the
reward adds field accuracy, so that a nearly right object teaches something; both are 0 for an
answer that is not JSON. Text rows of the extension (PII redaction, correction) are scored as
refinement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rapidfuzz.distance import Levenshtein

from assay.task import Score, TaskError
from assay.thoughts import answer_after_thoughts
from rewards.cdr.score import refinement_metrics, score_refinement
from rewards.parse import PARSINGS, normalise, normalise_lines, render
from rewards.weights import StructuredReward

TEXT, JSON, MIXED = "text_refinement", "structured_json", "mixed_structured_text"
PROFILES = (TEXT, JSON, MIXED)
_TAGS = tuple(
    (re.compile(f"<{name}>", re.IGNORECASE), re.compile(f"</{name}>", re.IGNORECASE))
    for name in ("clean_text", "output", "result", "answer")
)
_FAILED = object()


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
    """Read the JSON value of a response, leniently: the whole response, else the content of the
    first tag of each kind, else what the first `{` or `[` begins, with trailing text ignored (spec
    section 12.5).

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
