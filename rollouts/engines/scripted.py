"""Engines without a model: they say what a script says, through the same code as a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rewards.seeds import derive_seed
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling, Stop


@dataclass(frozen=True)
class Turn:
    """What a script sees: the whole conversation as text, and a seed to draw from."""

    conversation: str
    prompt: Sequence[int]
    seed: int


Script = Callable[[Turn], str]


class ScriptedEngine:
    """An `Engine` that encodes what `script` answers; every token has probability 1."""

    def __init__(self, script: Script, tokenizer: ChatTokenizer) -> None:
        self._script, self._tokenizer = script, tokenizer

    def update_weights(self) -> None:
        """There are none."""

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        return [
            [self._one(prompt, sampling, derive_seed(seed, j)) for j in range(n)]
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]

    def _one(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Completion:
        text = self._script(Turn(self._tokenizer.raw(prompt), prompt, seed))
        ids = self._tokenizer.answer(text)
        stop: Stop = "eos" if len(ids) <= sampling.max_new_tokens else "length"
        ids = ids[: sampling.max_new_tokens]
        zeros = [0.0] * len(ids)
        return Completion(ids, zeros, list(zeros), stop)
