"""The score of a query, with no import that only builders or audits need: this module and what it
imports travel with an exported task."""

from __future__ import annotations

from assay.task import Answer, Score, Task
from rewards.sql.query import SqlReward, score_text

COMES_ALONG = ("rewards.sql.runner",)  # run as a program, so no import names it


def score_sql(task: Task, answer: Answer, weights: SqlReward) -> Score:
    """The query in the last fenced block, run on the task's database and on its twins."""
    return score_text(task.gold, answer.text, answer.truncated, weights)
