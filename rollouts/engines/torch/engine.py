# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The embedded engines: our own decoder for Llama-shaped models, transformers for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from rewards.seeds import derive_seed
from rollouts.engines.torch import decode
from rollouts.engines.torch.llama import (
    Llama,
    ModelError,
    from_state,
    is_llama_shaped,
    read_state,
)
from rollouts.engines.torch.sampling import pick, uniforms
from rollouts.machine import usable_cores
from rollouts.trajectory import Completion, Sampling, Stop

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def load_llama(folder: Path, dtype: str = "bfloat16", device: str = "cpu") -> Llama:
    """Weights of a Llama-shaped Hugging Face folder. Raises `ModelError` if it is none."""
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(folder)
    state = {k: v.to(device) for k, v in read_state(folder).items()}
    return from_state(config, state, DTYPES[dtype])


def folder_is_llama(folder: Path) -> bool:
    """Whether the folder's config describes a model the embedded decoder computes."""
    from transformers import AutoConfig

    return is_llama_shaped(AutoConfig.from_pretrained(folder))


class TorchEngine:
    """Waves of up to `slots` rows over our own decoder; samples of a prompt share its prefill.

    `stop_ids` end a sample (the stop token is part of the completion). Weights are read from
    `model` in place; call `update_weights()` after they change, so that packed copies follow.
    """

    def __init__(self, model: Llama, stop_ids: Sequence[int], slots: int = 128) -> None:
        if slots < 1:
            raise ValueError(f"slots={slots}: the engine needs at least one row; set 1 or more")
        self.model = model
        self.stop_ids = torch.tensor(sorted(stop_ids), device=model.embed.device)
        self.slots = slots
        self._packs = decode.can_prepack(model.embed)
        self._products: decode.Products | None = None

    def update_weights(self) -> None:
        """Forget packed copies; the next call makes them from the weights as they are then."""
        self._products = None

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`n` completions a prompt; sample j of prompt i draws from (seeds[i], j) alone."""
        return self.generate_now(prompts, sampling, n, seeds)

    def generate_now(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        seeds: Sequence[int],
    ) -> list[list[Completion]]:
        """The same, without a coroutine."""
        if any(len(p) == 0 for p in prompts):
            raise ValueError("an empty prompt has nothing to continue; give at least one token")
        if self._products is None:
            self._products = decode.products(self.model, self.slots, self._packs)
        order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        wide = max(1, self.slots // n)
        done: dict[int, list[Completion]] = {}
        for start in range(0, len(order), wide):
            wave = order[start : start + wide]
            rows = _wave(
                self.model,
                self._products,
                [prompts[i] for i in wave],
                sampling,
                n,
                [seeds[i] for i in wave],
                self.stop_ids,
            )
            for position, i in enumerate(wave):
                done[i] = rows[position * n : (position + 1) * n]
        return [done[i] for i in range(len(prompts))]


def _wave(
    model: Llama,
    run: decode.Products,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    n: int,
    seeds: Sequence[int],
    stop_ids: Tensor,
) -> list[Completion]:
    """Decode one wave to its end; completions in (prompt, sample) order."""
    device, limit = model.embed.device, sampling.max_new_tokens
    total = len(prompts) * n
    u = uniforms([derive_seed(s, j) for s in seeds for j in range(n)], limit).to(device)
    logits, cache = decode.prefill(model, run, prompts, n, min(limit, 64))
    logits = logits.repeat_interleave(n, 0)
    ids = torch.zeros(total, limit, dtype=torch.long, device=device)
    full, narrow = torch.zeros(total, limit), torch.zeros(total, limit)
    full, narrow = full.to(device), narrow.to(device)
    length = torch.full((total,), limit, device=device)
    rows = torch.arange(total, device=device)  # which sample each live row is
    alive = torch.ones(total, dtype=torch.bool, device=device)  # over live rows
    for t in range(limit):
        token, p_full, p_narrow = pick(logits, sampling, u[rows, t])
        live = rows[alive]
        ids[live, t], full[live, t], narrow[live, t] = token[alive], p_full[alive], p_narrow[alive]
        ended = alive & torch.isin(token, stop_ids)
        length[rows[ended]] = t + 1
        alive = alive & ~ended
        if t + 1 == limit or not bool(alive.any()):
            break
        if int(alive.sum()) <= 0.8 * len(rows):
            kept = _compact(cache, alive, model.shape.kv_heads)
            rows, alive, token = rows[kept], alive[kept], token[kept]
        logits = decode.step(model, run, cache, token, t, limit)
    stopped = torch.isin(ids[torch.arange(total, device=device), length - 1], stop_ids)
    columns = zip(
        ids.tolist(), full.tolist(), narrow.tolist(), length.tolist(), stopped.tolist(), strict=True
    )
    return [_completion(i, f, s, size, done) for i, f, s, size, done in columns]


def _completion(
    ids: list[int], full: list[float], narrow: list[float], size: int, done: bool
) -> Completion:
    stop: Stop = "eos" if done else "length"
    return Completion(ids[:size], full[:size], narrow[:size], stop)


def _compact(cache: decode.Cache, alive: Tensor, kv_heads: int) -> Tensor:
    """Drop finished rows; groups keep equal width, so a few may stay on. Returns rows kept."""
    grid = alive.view(cache.groups, cache.width)
    per_group = grid.sum(1)
    width = int(per_group.max())
    groups = per_group.nonzero()[:, 0]
    if width * len(groups) >= len(alive):
        return torch.arange(len(alive), device=alive.device)
    # live rows first, in their old order; then enough finished ones to fill the width
    order = torch.argsort((~grid[groups]).long(), dim=1, stable=True)[:, :width]
    rows = (groups[:, None] * cache.width + order).flatten()
    cache.keep(groups, rows, width, kv_heads)
    return rows


class TransformersEngine:
    """Any causal LM through transformers' `generate`: slower, but every architecture it knows."""

    def __init__(self, model: Any, stop_ids: Sequence[int], slots: int = 32) -> None:
        self.model, self.stop_ids, self.slots = model, list(stop_ids), slots

    def update_weights(self) -> None:
        """Nothing to do: the module's own weights are used."""

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
        return [_completion(i, f, s, size, end) for i, f, s, size, end in columns]


def load_engine(
    folder: Path, stop_ids: Sequence[int], slots: int, dtype: str = "bfloat16", device: str = "cpu"
) -> TorchEngine | TransformersEngine:
    """The embedded decoder where the architecture allows it, transformers elsewhere."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; give a Hugging Face model folder")
    if folder_is_llama(folder):
        return TorchEngine(load_llama(folder, dtype, device), stop_ids, slots)
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype])
    return TransformersEngine(model.to(device).eval(), stop_ids, slots)


def set_threads(threads: int | Literal["auto"]) -> int:
    """Threads torch uses inside one operation; "auto" is one a core we may run on."""
    count = usable_cores() if threads == "auto" else threads
    torch.set_num_threads(count)
    return count
