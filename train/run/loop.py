"""What a training loop is given beside its model, its data and its own section of settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from train.run.log import RunLog
from train.run.resume import Checkpoints

# (finished step, last step): evaluates when that is due, and logs what it finds
Validate = Callable[[int, int], None]


def no_validation(step: int, last: int) -> None:
    """A run without a validation file."""


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
