"""The score of a prediction file, with no import that only builders or audits need: this module and
what it imports travel with an exported task."""

from __future__ import annotations

from assay.task import Answer, Score, Task
from rewards.dare.prediction import TableReward, read_gold, score_table

FILE = "prediction.csv"
# Run as a program of its own, so that no import names it; an exported task needs it too.
COMES_ALONG = ("rewards.dare.jail",)


def score_file(task: Task, answer: Answer, weights: TableReward) -> Score:
    """The file is read in a confined process."""
    return score_table(read_gold(task.gold), answer.files.get(FILE), weights.reading)


def score_trusted(task: Task, answer: Answer, weights: TableReward) -> Score:
    """The file is read in this process."""
    data = answer.files.get(FILE)
    return score_table(read_gold(task.gold), data, weights.reading, trusted=True)
