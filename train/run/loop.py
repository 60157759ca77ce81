"""What a training loop is given beside its model, its data and its own section of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.task import Task
from rollouts.trajectory import Trajectory
from train.run.log import RunLog
from train.run.resume import Checkpoints

# (finished step, last step): evaluates when that is due, and logs what it finds
Validate = Callable[[int, int], None]


# (finished step, its metrics, its tasks, their rollouts) -> what the log says of it beside them
Watch = Callable[
    [int, Mapping[str, float], Sequence[Task], Sequence[Sequence[Trajectory]]], Mapping[str, Any]
]


def no_validation(step: int, last: int) -> None:
    """A run without a validation file."""


def unwatched(*step: Any) -> Mapping[str, Any]:
    """A loop by itself, without a run around it."""
    return {}


@dataclass(frozen=True)
class Loop:
    """The run's side of a loop: seed, limits of this machine, and where results go."""

    seed: int
    log: RunLog
    checkpoints: Checkpoints

    micro_tokens: int = 4096
    """Tokens in one forward and backward pass; changes memory, not the result."""

    slots: int = 64
    """Answers decoded side by side."""

    rounding: str = "spread"
    """How float32 weights become bfloat16 ones: nearest or spread (train/model/rounding.py)."""

    validate: Validate = no_validation

    watch: Watch = unwatched
