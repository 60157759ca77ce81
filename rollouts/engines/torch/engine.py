# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The embedded engines: our own decoder for Llama-shaped models, transformers for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from assay.workers import usable_cores
from rollouts.engines.engine import EmbeddedEngine
from rollouts.engines.torch import cpu_decode, llama
from rollouts.engines.torch.cpu_decode import Branches
from rollouts.engines.torch.fallback import TransformersEngine, about
from rollouts.engines.torch.gpu_decode import Passes, Wave, new_cache
from rollouts.engines.torch.kv_cache import Kept, Past
from rollouts.engines.torch.llama import (
    Llama,
    ModelError,
    Products,
)
from rollouts.engines.torch.load import folder_is_llama, load_llama, load_transformers
from rollouts.engines.torch.prefill import prefill, trunk
from rollouts.engines.torch.sampling import draw
from rollouts.trajectory import Completion, Sampling

REFILL = 0.25  # share of the rows that must be free before waiting prompts are taken up
KEEP_BYTES = 1 << 30  # of keys and values kept between the turns of conversations


class TorchEngine(EmbeddedEngine):
    """Waves of up to `slots` samples over our own decoder. Samples of a prompt share its prefill,
    and on a CPU every step until they draw different tokens.

    `stop_ids` end a sample (the stop token is part of the completion). Weights are read from
    `model` in place; call `update_weights()` after they change, so that packed copies follow.
    Up to `keep_bytes` of keys and values stay for prompts that go on from a row (kv_cache.py).
    """

    def __init__(
        self,
        model: Llama,
        stop_ids: Sequence[int],
        slots: int = 128,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        super().__init__(slots, model.shape.context)
        self.model = model
        self.stop_ids = torch.tensor(sorted(stop_ids), device=model.embed.device)
        self._packs = llama.can_prepack(model.embed)
        self._products: Products | None = None
        self.merges = model.embed.device.type == "cpu"  # else it would wait for the GPU each token
        self._kept = Kept(keep_bytes)
        self.prefilled = 0  # prompt tokens computed so far

    def about(self) -> dict[str, str]:
        """What computes, for records: the number format is settled when a model is loaded."""
        compiled = llama.kernels_of(self.model) is not None
        return about("embedded", self.model.embed) | {
            "kernels": "compiled" if compiled else "torch"
        }

    def update_weights(self) -> None:
        """Forget packed copies, keys and values; the next call makes them from the new weights."""
        self._products = None
        self._kept.clear()

    release = update_weights

    def _all(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """Wave after wave."""
        if self._products is None:
            self._products = llama.products(self.model, self.slots, self._packs)
        run = self._products
        queue = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), i))
        past = self._past(prompts, run)
        done: dict[int, list[Completion]] = {}
        waves: list[tuple[list[int], Wave | Branches]] = []
        passes = Passes(self.model, run, sampling)
        while queue or waves:
            room = self._room(sum(w.drawn for _, w in waves), n)
            if queue and room:
                part, queue = queue[:room], queue[room:]
                wave = self._begin(
                    run,
                    [prompts[i] for i in part],
                    [past[i] for i in part],
                    n,
                    [seeds[i] for i in part],
                    sampling,
                )
                for i in part:
                    past[i] = []  # it is in the wave's cache now
                waves.append((part, wave))
            else:
                self._go_on(passes, [w for _, w in waves])
            for part, wave in waves:
                if wave.done:
                    groups = wave.completions()
                    done |= zip(part, groups, strict=True)
                    self._keep([prompts[i] for i in part], groups, wave)
            waves = [(part, wave) for part, wave in waves if not wave.done]
        return [done[i] for i in range(len(prompts))]

    def _past(self, prompts: Sequence[Sequence[int]], run: Products) -> list[list[Past]]:
        """What is known of each prompt: its conversation so far, or what all others share."""
        past = self._kept.take(prompts)
        new = [prompt for prompt, known in zip(prompts, past, strict=True) if not known]
        shared = trunk(self.model, run, new)
        if shared is None:
            return past
        self.prefilled += shared.length
        return [known or [shared] for known in past]

    def _begin(
        self,
        run: Products,
        prompts: list[Sequence[int]],
        past: list[list[Past]],
        n: int,
        seeds: list[int],
        sampling: Sampling,
    ) -> Wave | Branches:
        """A wave of new prompts, with the first token of each sample."""
        known = sum(part.length for parts in past for part in parts)
        self.prefilled += sum(map(len, prompts)) - known
        logits, made = prefill(self.model, run, prompts, past)
        saving, limit = self._kept.limit > 0 and not sampling.last, sampling.max_new_tokens
        if self.merges:
            stops: list[int] = self.stop_ids.tolist()
            merging = Branches(prompts, made, seeds, n, limit, stops, saving)
            draw([merging], logits, sampling, run.kernels)
            return merging
        wave = Wave(new_cache(made, n), seeds, n, limit, self.stop_ids, saving)
        draw([wave], logits.repeat_interleave(n, 0), sampling, run.kernels)
        wave.settle(1)
        return wave

    def _go_on(self, passes: Passes, waves: Sequence[Wave | Branches]) -> None:
        """Next tokens of all waves, which go on as `merges` says."""
        if self.merges:
            some = [w for w in waves if isinstance(w, Branches)]
            logits = cpu_decode.step(self.model, passes.products, some)
            draw(some, logits, passes.sampling, passes.products.kernels)
        else:
            passes.run([w for w in waves if isinstance(w, Wave)])

    def _keep(
        self, prompts: list[Sequence[int]], groups: list[list[Completion]], wave: Wave | Branches
    ) -> None:
        """Keep a finished wave's rows for the next turns of their conversations."""
        if not wave.saving:
            return
        rows = [(p, c) for p, group in zip(prompts, groups, strict=True) for c in group]
        for (prompt, completion), parts in zip(rows, wave.saved(), strict=True):
            size = parts[0].size // wave.width + parts[1].size
            self._kept.put([*prompt, *completion.ids], parts, size)

    def _room(self, rows: int, n: int) -> int:
        """How many prompts to take up beside `rows` rows: none until enough rows are free."""
        free = self.slots - rows
        if rows and free < max(n, REFILL * self.slots):
            return 0
        return max(1, free // n)


def load_engine(
    folder: Path, stop_ids: Sequence[int], slots: int, dtype: str = "bfloat16", device: str = "cpu"
) -> TorchEngine | TransformersEngine:
    """The embedded decoder where the architecture allows it, transformers elsewhere."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; give a Hugging Face model folder")
    if folder_is_llama(folder):
        return TorchEngine(load_llama(folder, dtype, device), stop_ids, slots)
    return TransformersEngine(load_transformers(folder, dtype, device), stop_ids, slots)


def set_threads(threads: int | Literal["auto"]) -> int:
    """Threads torch uses inside one operation; "auto" is one a core we may run on."""
    count = usable_cores() if threads == "auto" else threads
    torch.set_num_threads(count)
    return count
