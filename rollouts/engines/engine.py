"""The seam between episodes and whatever produces tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from configs.loader import ConfigError
from rollouts.trajectory import Completion, Sampling


class ModelError(ConfigError):
    """A model that cannot be used; the message says what is missing and what to do."""


class Engine(Protocol):
    """Anything that continues token ids. One call takes many prompts so it can batch them."""

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`n` completions for each prompt; `seeds[i]` fixes what prompt i's samples draw."""
        ...


class TrainedEngine(Engine, Protocol):
    """An engine over weights that a loop changes in place."""

    def update_weights(self) -> None:
        """Take the weights as they are now; what was packed or kept of the old ones is dropped."""
        ...

    def release(self) -> None:
        """Free what decoding keeps, for the backward pass; the next call makes it anew."""
        ...
