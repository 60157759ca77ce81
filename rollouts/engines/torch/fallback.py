# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The fall-back engine: transformers' forward pass, our own sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rewards.seeds import derive_seed
from rollouts.engines.torch.sampling import pick, uniforms
from rollouts.engines.torch.waves import completion
from rollouts.trajectory import Completion, Sampling


def about(engine: str, weight: Tensor) -> dict[str, str]:
    """The engine, the version of torch, and where and in which format its weights are."""
    dtype = str(weight.dtype).removeprefix("torch.")
    return {
        "engine": engine,
        "version": torch.__version__,
        "device": weight.device.type,
        "dtype": dtype,
    }


class TransformersEngine:
    """Any causal LM through transformers' `generate`: slower, but every architecture it knows."""

    def __init__(self, model: Any, stop_ids: Sequence[int], slots: int = 32) -> None:
        self.model, self.stop_ids, self.slots = model, list(stop_ids), slots

    def about(self) -> dict[str, str]:
        return about("transformers", next(self.model.parameters()))

    def update_weights(self) -> None:
        """Nothing to do: the module's own weights are used."""

    def release(self) -> None:
        """Nothing is kept between calls."""

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        return self.generate_now(prompts, sampling, n, seeds)

    @torch.inference_mode()
    def generate_now(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        seeds: Sequence[int],
    ) -> list[list[Completion]]:
        """One prompt at a time, its samples together; the draw is seeded by the prompt's seed."""
        done: list[list[Completion]] = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            done.append(self._one(list(prompt), sampling, n, seed))
        return done

    def _one(self, prompt: list[int], sampling: Sampling, n: int, seed: int) -> list[Completion]:
        """Samples drawn by our own `pick` over transformers' forward, so both laws are recorded."""
        device = self.model.device
        limit = sampling.max_new_tokens
        u = uniforms([derive_seed(seed, j) for j in range(n)], limit).to(device)
        stops = torch.tensor(self.stop_ids, device=device)
        out = self.model(torch.tensor([prompt], device=device).repeat(n, 1), use_cache=True)
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        alive = torch.ones(n, dtype=torch.bool, device=device)
        length = torch.full((n,), limit, device=device)
        for t in range(limit):
            token, full, narrow = pick(out.logits[:, -1], sampling, u[:, t])
            kept.append((token, full, narrow))
            ended = alive & torch.isin(token, stops)
            length[ended] = t + 1
            alive &= ~ended
            if t + 1 == limit or not bool(alive.any()):
                break
            out = self.model(token[:, None], past_key_values=out.past_key_values, use_cache=True)
        ids, full, narrow = (torch.stack(column, 1) for column in zip(*kept, strict=True))
        stopped = torch.isin(
            ids.gather(1, (length.clamp(max=ids.shape[1]) - 1)[:, None])[:, 0], stops
        )
        columns = zip(
            ids.tolist(),
            full.tolist(),
            narrow.tolist(),
            length.tolist(),
            stopped.tolist(),
            strict=True,
        )
        return [completion(i, f, s, size, end) for i, f, s, size, end in columns]
