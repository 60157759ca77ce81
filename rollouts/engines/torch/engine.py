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

from rollouts.engines.torch import decode
from rollouts.engines.torch.fallback import TransformersEngine
from rollouts.engines.torch.llama import (
    Llama,
    ModelError,
    from_state,
    is_llama_shaped,
    read_state,
)
from rollouts.engines.torch.prefill import prefill, trunk
from rollouts.engines.torch.sampling import pick
from rollouts.engines.torch.wave import Wave
from rollouts.machine import usable_cores
from rollouts.trajectory import Completion, Sampling

REFILL = 0.25  # share of the rows that must be free before waiting prompts are taken up
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
        run = self._products
        queue = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        shared = trunk(self.model, run, prompts)
        done: dict[int, list[Completion]] = {}
        waves: list[tuple[list[int], Wave]] = []
        logits: list[Tensor] = []
        while queue or waves:
            room = self._room(sum(w.cache.rows for _, w in waves), n)
            if queue and room:
                part, queue = queue[:room], queue[room:]
                first, cache = prefill(
                    self.model, run, [prompts[i] for i in part], [shared] * len(part), n
                )
                logits.append(first.repeat_interleave(n, 0))
                begun = Wave(
                    cache, [seeds[i] for i in part], sampling.max_new_tokens, self.stop_ids
                )
                waves.append((part, begun))
            _draw([w for _, w in waves], torch.cat(logits), sampling)
            for part, wave in waves:
                if wave.done:
                    done |= zip(part, wave.completions(), strict=True)
            waves = [(part, wave) for part, wave in waves if not wave.done]
            logits = []
            if waves:
                ids = torch.cat([w.token for _, w in waves])
                logits = [decode.step(self.model, run, [w.cache for _, w in waves], ids)]
        return [done[i] for i in range(len(prompts))]

    def _room(self, rows: int, n: int) -> int:
        """How many prompts to take up beside `rows` rows: none until enough rows are free."""
        free = self.slots - rows
        if rows and free < max(n, REFILL * self.slots):
            return 0
        return max(1, free // n)


def _draw(waves: Sequence[Wave], logits: Tensor, sampling: Sampling) -> None:
    """The next token of every row of every wave."""
    sizes = [w.cache.rows for w in waves]
    drawn = pick(logits, sampling, torch.cat([w.draws for w in waves]))
    columns = zip(*(column.split(sizes) for column in drawn), strict=True)
    for wave, (ids, full, narrow) in zip(waves, columns, strict=True):
        wave.record(ids, full, narrow)
        wave.compact()


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
