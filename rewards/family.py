"""The one table from a task's family to its scorer, for answers that a rollout brings back.

Rejection sampling, RL, evaluation and verl runs all score through `score_answer`. (`assay score`
reads rows that carry gold in the open; its table is in `rewards/cli.py` and calls the same
functions underneath.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rewards.cdr.refinement import RefinementReward, score_refinement, unscored
from rewards.cdr.structured import score_structured
from rewards.dare.prediction import read_gold, score_table
from rewards.krama.episode import AnswerReward, score_episode
from rewards.task import Score, Task, TaskError


@dataclass(frozen=True)
class Answer:
    """What an episode hands in.

    `text` is the model's last message, `truncated` whether that was cut off by a token limit,
    `files` what the environment collected (name to bytes), and `failure` why the *infrastructure*
    broke; with one, there is no outcome, whatever else is here.
    """

    text: str = ""
    truncated: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    failure: str | None = None


@dataclass(frozen=True)
class Weights:
    """What a run may set about its rewards, family by family. Outcomes never depend on it."""

    refinement: RefinementReward = field(default_factory=RefinementReward)
    answer: AnswerReward = field(default_factory=AnswerReward)
    table: str = "strict"  # the reading of predictions: strict or release


def _refinement(task: Task, answer: Answer, weights: Weights) -> Score:
    return score_refinement(
        task.gold, answer.text, "strict", weights.refinement, truncated=answer.truncated
    )


def _answer(task: Task, answer: Answer, weights: Weights) -> Score:
    return score_episode(task.gold, answer.text, answer.files, answer.truncated, weights.answer)


def _structured(task: Task, answer: Answer, weights: Weights) -> Score:
    return score_structured(task.gold, answer.text, truncated=answer.truncated)


def _table(task: Task, answer: Answer, weights: Weights) -> Score:
    return score_table(read_gold(task.gold), answer.files.get("prediction.csv"), weights.table)


# family -> scorer. A family adds one function and one line.
FAMILY_SCORERS: dict[str, Callable[[Task, Answer, Weights], Score]] = {
    "refinement": _refinement,
    "answer": _answer,
    "structured": _structured,
    "table": _table,
}


def score_answer(task: Task, answer: Answer, weights: Weights | None = None) -> Score:
    """Score one answer. Never raises on what a model wrote; an infrastructure failure has no
    outcome. Raises `TaskError` for a family without a scorer or gold that cannot be read."""
    if task.family not in FAMILY_SCORERS:
        known = ", ".join(FAMILY_SCORERS)
        raise TaskError(f"task {task.id}: no scorer for family {task.family!r}; there is {known}")
    if answer.failure is not None:
        return unscored(f"failure: {answer.failure}")
    return FAMILY_SCORERS[task.family](task, answer, weights or Weights())
