"""The settings `reward.<family>.*` of the built-in families: what the parts of an answer earn. They
stand apart from the scorers, so that a run knows all of them and loads those of its tasks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from assay.errors import TaskError


@dataclass(frozen=True)
class RefinementReward:
    """Shares of the reward; they sum to 1, so that gold earns exactly 1 and nothing earns more.

    A wrong status earns `format` alone (less `wrong_drop` when a text to keep was dropped). The
    right status adds `status`, then `progress` in proportion and `success` when RS holds.
    """

    format: float = 0.1
    status: float = 0.3
    progress: float = 0.2
    success: float = 0.4
    wrong_drop: float = 0.0
    drop_progress: bool = True  # False: a DROP earns the progress share only by full success

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if value < 0:
                raise ValueError(f"{spec.name}={value} is too small; set 0 or more")
        total = self.format + self.status + self.progress + self.success
        if abs(total - 1.0) > 1e-9:
            raise ValueError(
                f"format + status + progress + success = {total:g}; make it 1, so that gold earns 1"
            )


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


@dataclass(frozen=True)
class TableReward:
    """`reading`: strict closes the holes of the published harness, release computes as it does."""

    reading: Literal["release", "strict"] = "strict"


@dataclass(frozen=True)
class AnswerReward:
    """Reward = what the answer earned + (1 - outcome) x `subtasks` x share of sub-answers found:
    gold is 1, and no sub-credit outweighs a right answer. `reading` decides the outcome. So does
    the endpoint that judges paraphrases, where one is named (its key is $ASSAY_JUDGE_KEY)."""

    subtasks: float = 0.2
    reading: Literal["table3", "release"] = "table3"
    judge_url: str = ""
    judge_model: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.subtasks < 1:
            raise ValueError(f"subtasks={self.subtasks}: give a share from 0 to below 1")


@dataclass(frozen=True)
class SqlReward:
    """`runs`: what a query that runs earns in reward though it is not right. The audit's floor
    allows 0.05."""

    runs: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.runs < 1:
            raise TaskError(f"reward.sql.runs={self.runs}: give a number from 0 to below 1")
