"""Scores of CDR-Bench's two families, with no import that only builders or audits need: this module
and what it imports travel with an exported task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.task import Answer, Score, Task, TaskError
from rewards.cdr.predictions import JSON, MIXED, profile_of
from rewards.cdr.refinement import RefinementReward, score_refinement
from rewards.cdr.structured import StructuredReward, score_structured
from rewards.cdr.written import result_of
from rewards.parse import parse_strict


def score_text(task: Task, answer: Answer, weights: RefinementReward) -> Score:
    """The strict reading of a refined text."""
    return score_refinement(task.gold, answer.text, "strict", weights, truncated=answer.truncated)


def score_json(task: Task, answer: Answer, weights: StructuredReward) -> Score:
    """The strict reading of a JSON answer."""
    return score_structured(task.gold, answer.text, weights=weights, truncated=answer.truncated)


def score_text_row(
    gold: Mapping[str, Any], row: Mapping[str, Any], weights: RefinementReward
) -> Score:
    """A row of `assay score`: `{output, truncated, parsing}`, `strict` where it names none. Gold of
    the extension's JSON profiles is scored as JSON."""
    if "reference_text" in gold and profile_of(gold) in (JSON, MIXED):
        return score_json_row(gold, row, StructuredReward())
    return score_refinement(gold, _output(row), _parsing(row), weights, bool(row.get("truncated")))


def score_json_row(
    gold: Mapping[str, Any], row: Mapping[str, Any], weights: StructuredReward
) -> Score:
    """The same of a JSON answer."""
    return score_structured(gold, _output(row), _parsing(row), weights, bool(row.get("truncated")))


def _parsing(row: Mapping[str, Any]) -> str:
    return str(row.get("parsing") or "strict")


def _output(row: Mapping[str, Any]) -> str:
    output = row.get("output")
    if not isinstance(output, str):
        raise TaskError("field 'output' is missing or not a string; give the model's answer there")
    return output


def labels(task: Task, answer: Answer) -> tuple[str, str]:
    """(status of gold, status that the answer names or `none`)."""
    said = parse_strict(result_of(task.gold, answer.text))
    status = task.gold.get("status") or task.gold.get("reference_status") or ""
    return str(status), said.status if said.why == "ok" and said.status else "none"
