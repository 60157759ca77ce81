"""The semantic extension's answers: canonical JSON equality, and the mixed JSON and text profile.

`outcome` is the benchmark's RS. The reward adds field accuracy, so that a nearly right object
teaches something; both are 0 for an answer that is not JSON. Text rows of the extension (PII
redaction, correction) are scored as refinement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.task import Score
from assay.thoughts import answer_after_thoughts
from rewards.cdr.json_score import parse_json
from rewards.cdr.predictions import TEXT, profile_of, score_prediction
from rewards.cdr.refinement import score_refinement
from rewards.parse import PARSINGS

_LIMIT = 100_000  # longer answers are not read


@dataclass(frozen=True)
class StructuredReward:
    """Shares of the reward; they sum to 1. `form`: the whole response is JSON and nothing else."""

    form: float = 0.1
    fields: float = 0.3
    success: float = 0.6

    def __post_init__(self) -> None:
        total = self.form + self.fields + self.success
        if min(self.form, self.fields, self.success) < 0 or abs(total - 1.0) > 1e-9:
            raise ValueError(f"form + fields + success = {total:g}; make it 1, none below 0")


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
        return _score_text(row, output, parsing)
    clean = _is_json(output)
    if parsing == "strict" and not clean:
        return _nothing("no_answer")
    score = score_prediction(row, "KEEP", output)
    match = score.match
    accuracy = (match.accuracy or 0.0) if match is not None else 0.0
    parts = {
        "rg": score.gain or 0.0,
        "status_match": 1.0,
        "strict_equal": float(score.success),
        "json_parsed": float(match is not None and match.parsed),
        "field_accuracy": accuracy,
        "format": float(clean),
    }
    if match is not None:
        parts |= {f"field_{name}": float(right) for name, right in match.fields.items()}
    # Not `accuracy`: there, an invented key with null equals a key that the reference lacks.
    earned = match.earned if match is not None else 0.0
    reward = (
        (weights.form * clean + weights.fields * earned + weights.success * score.success)
        if match is not None and match.parsed
        else 0.0
    )
    if score.success:
        reward = 1.0 - (0.0 if clean else weights.form)
    why = "ok" if score.success else "bad_json" if not parts["json_parsed"] else "wrong_fields"
    return Score(float(score.success), reward, parts, why)


def _score_text(row: Mapping[str, Any], output: str, parsing: str) -> Score:
    """A text row is refinement: the same metric, and a reward that empty answers cannot farm."""
    return score_refinement(
        dict(row) | {"reference_status": row.get("reference_status") or "KEEP"}, output, parsing
    )


def _is_json(output: str) -> bool:
    import json

    try:
        json.loads(output)
    except (ValueError, RecursionError):
        return False
    return True


def _nothing(why: str) -> Score:
    names = ("rg", "status_match", "strict_equal", "field_accuracy", "format")
    parts: dict[str, float] = {name: 0.0 for name in names}
    return Score(0.0, 0.0, parts, why)


def gold_response(row: Mapping[str, Any]) -> str:
    """The response that earns 1."""
    import json

    from rewards.parse import render

    if profile_of(row) == TEXT:
        return render(str(row.get("reference_status") or "KEEP"), str(row["reference_text"]))
    reference = row.get("reference_json") or row.get("reference_text")
    value = parse_json(reference) if isinstance(reference, str) else reference
    return json.dumps(value, ensure_ascii=False)
