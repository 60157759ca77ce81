"""Scores of CDR-Bench's two families, with no import that only builders or audits need: this module
and what it imports travel with an exported task."""

from __future__ import annotations

from assay.task import Answer, Score, Task
from rewards.cdr.refinement import RefinementReward, score_refinement
from rewards.cdr.structured import StructuredReward, score_structured


def score_text(task: Task, answer: Answer, weights: RefinementReward) -> Score:
    """The strict reading of a refined text."""
    return score_refinement(task.gold, answer.text, "strict", weights, truncated=answer.truncated)


def score_json(task: Task, answer: Answer, weights: StructuredReward) -> Score:
    """The strict reading of a JSON answer."""
    return score_structured(task.gold, answer.text, weights=weights, truncated=answer.truncated)
