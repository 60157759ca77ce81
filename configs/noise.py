"""A verifier that is wrong on purpose: for studies of how much reward noise training stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from configs.checks import share
from configs.fields import locked


@dataclass(frozen=True)
class NoiseConfig:
    """Which rewards a run flips to 1 − reward. Outcomes and evaluations stay exact."""

    share: float = locked(0.0)
    """Of the rewards. 0: none."""

    by: Literal["rollout", "task"] = locked("rollout")
    """rollout: each reward is drawn for itself, as a verifier makes random mistakes. task: every
    reward of the drawn tasks is flipped, as a wrong gold does."""

    def __post_init__(self) -> None:
        share(self, "share")
