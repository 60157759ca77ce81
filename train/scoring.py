"""The scorer that a loop is given: every rollout by its family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.family import score_answer
from assay.task import Score, Task
from rollouts.trajectory import Trajectory

Scorer = Callable[[Sequence[Task], list[list[Trajectory]]], list[list[Score]]]


def scorer(weights: Mapping[str, Any] | None = None) -> Scorer:
    """(P tasks, their G rollouts each) → scores, under the run's reward settings by family."""

    def score(tasks: Sequence[Task], groups: list[list[Trajectory]]) -> list[list[Score]]:
        return [
            [score_answer(task, t.answer(), weights) for t in group]
            for task, group in zip(tasks, groups, strict=True)
        ]

    return score
