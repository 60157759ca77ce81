"""Why an episode did not succeed: what broke it, and the four causes of DARE-bench's Table 9
(rules: spec 8.7)."""

from __future__ import annotations

import traceback

from rewards.task import RIGHT, Score, Task, TaskError
from rollouts.environment import EnvironmentFailure
from rollouts.prompts import PromptError
from rollouts.sandbox.model import SandboxError
from rollouts.trajectory import Trajectory

BROKEN = (OSError, SandboxError, EnvironmentFailure)  # what counts as infrastructure
FORESEEN = (TaskError, PromptError)  # bad input, said in one sentence: these end the run
_REPORT = 20_000  # characters of a traceback that are kept, its end

CATEGORIES = ("instruction adherence", "code error", "code execution limit", "max token limit")
_LIMITS = ("timeout", "memory", "disk")


def bug_report(error: Exception) -> tuple[str, dict[str, str]]:
    """(one line for a trajectory's `failure`, what its `notes` keep): broken infrastructure in
    words; of an exception that nobody foresaw also the traceback, as `bug`."""
    said = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, BROKEN):
        return said, {}
    whole = "".join(traceback.format_exception(error))
    return f"bug: {said}", {"bug": whole[-_REPORT:]}


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
