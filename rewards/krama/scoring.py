"""The score of a lake answer, with no import that only builders or audits need: this module and
what it imports travel with an exported task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from assay.task import Answer, Score, Task
from rewards.krama.answer import score_row
from rewards.krama.episode import AnswerReward, score_episode
from rewards.krama.judge import Judge, deterministic

# only a judge that a setting names
STAYS_HOME = ("rewards.krama.judge_endpoint", "assay.http_client")


@lru_cache(maxsize=8)
def judge_of(url: str, model: str) -> Judge:
    """The judge of paraphrases: an endpoint, or without a URL the deterministic one."""
    if not url:
        return deterministic
    from assay.http_client import ChatEndpoint
    from rewards.krama.judge_endpoint import KEY_ENV, EndpointJudge

    return EndpointJudge(ChatEndpoint(url, model, KEY_ENV))


def score_lake(task: Task, answer: Answer, weights: AnswerReward) -> Score:
    """The answer that an episode left, or the one that its last message says."""
    judge = judge_of(weights.judge_url, weights.judge_model)
    return score_episode(task.gold, answer.text, answer.files, answer.truncated, weights, judge)


def score_lake_row(gold: Mapping[str, Any], row: Mapping[str, Any], weights: AnswerReward) -> Score:
    """A row of `assay score`: `{response, reading}`, the reading of the settings where it names
    none."""
    judge = judge_of(weights.judge_url, weights.judge_model)
    return score_row({"reading": weights.reading, **row, "task": gold}, judge)
