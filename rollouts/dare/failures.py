"""Why an episode did not succeed: the four causes of DARE-bench's Table 9 (rules: spec 8.7)."""

from __future__ import annotations

from assay.task import RIGHT, Score, Task
from rollouts.trajectory import Trajectory

CATEGORIES = ("instruction adherence", "code error", "code execution limit", "max token limit")
_LIMITS = ("timeout", "memory", "disk")


def category(task: Task, trajectory: Trajectory, score: Score) -> str | None:
    """None for a success, an infrastructure failure, or a usable prediction of a modelling task.

    In order: the last message or the sequence was cut (`max token limit`); no usable prediction and
    turns, time or the last run's limits used up (`code execution limit`); no usable prediction
    otherwise (`code error`); a usable one that scores below 1 on IF (`instruction adherence`).
    """
    if score.outcome is None or score.outcome >= RIGHT:
        return None
    usable = bool(score.parts.get("usable"))
    if not usable and trajectory.stop == "length":
        return "max token limit"
    if not usable:
        ran_out = trajectory.stop in ("turns", "time")
        return (
            "code execution limit"
            if ran_out or trajectory.notes.get("last_call") in _LIMITS
            else "code error"
        )
    return "instruction adherence" if task.track.endswith("-IF") else None
