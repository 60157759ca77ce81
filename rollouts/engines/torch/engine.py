# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The embedded engines: our own decoder for Llama-shaped models; for the rest transformers' own
generation, with our sampling in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from assay.machine import usable_cores
from assay.task import derive_seed
from rollouts.engines.engine import EmbeddedEngine, ModelError, context_of
from rollouts.engines.torch import cpu_decode, llama
from rollouts.engines.torch.cpu_decode import Branches
from rollouts.engines.torch.gpu_decode import Passes, Wave, new_cache
from rollouts.engines.torch.llama import Llama, Products
from rollouts.engines.torch.load import FAILURES, folder_is_llama, load_llama, load_transformers
from rollouts.engines.torch.prefill import Kept, Past, prefill, trunk
from rollouts.engines.torch.sampling import completion, draw, pick, uniforms
from rollouts.trajectory import Completion, Sampling

REFILL = 0.25  # share of the rows that must be free before waiting prompts are taken up
KEEP_BYTES = 1 << 30  # of keys and values kept between the turns of conversations


class TorchEngine(EmbeddedEngine):
    """Waves of up to `slots` samples over our own decoder. Samples of a prompt share its prefill,
    and on a CPU every step until they draw different tokens.

    `stop_ids` end a sample (the stop token is part of the completion). Weights are read from
    `model` in place; call `update_weights()` after they change, so that packed copies follow.
    Up to `keep_bytes` of keys and values stay for prompts that go on from a row (prefill.py).
    """

    def __init__(
        self,
        model: Llama,
        stop_ids: Sequence[int],
        slots: int = 128,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        super().__init__(slots, model.shape.positions)
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
        for (prompt, done), parts in zip(rows, wave.saved(), strict=True):
            size = parts[0].size // wave.width + parts[1].size
            self._kept.put([*prompt, *done.ids], parts, size)

    def _room(self, rows: int, n: int) -> int:
        """How many prompts to take up beside `rows` rows: none until enough rows are free."""
        free = self.slots - rows
        if rows and free < max(n, REFILL * self.slots):
            return 0
        return max(1, free // n)


# --- models that our decoder does not compute

PAD = 0  # any id: padding is masked
PROBE, STEPS = (5, 19), 3  # lengths of the prompts that are tried side by side, and tokens
# Mean difference of log-probabilities, in their standard deviations, that rounding explains.
NEAR = {torch.float32: 1e-3, torch.bfloat16: 3e-2}
Together = Literal["padded", "equal", "alone"]  # which prompts are answered side by side
SAID: dict[Together, str] = {
    "equal": "prompts of one length are answered side by side: padding changes what it computes",
    "alone": "one prompt is answered at a time: others beside it change what it computes",
}
_found: WeakKeyDictionary[Any, Together] = WeakKeyDictionary()  # of each model


def about(engine: str, weight: Tensor) -> dict[str, str]:
    """The engine, the version of torch, and where and in which format its weights are."""
    dtype = str(weight.dtype).removeprefix("torch.")
    return {
        "engine": engine,
        "version": torch.__version__,
        "device": weight.device.type,
        "dtype": dtype,
    }


@dataclass(frozen=True)
class Row:
    """One answer that is asked for: of which prompt, which sample, and the prompt itself."""

    at: int
    sample: int
    prompt: Sequence[int]


class Draws:
    """Takes the place of transformers' sampling: each row draws from its own numbers. Both laws
    are kept, and the loop ends with the last row."""

    def __init__(self, sampling: Sampling, u: Tensor, stop_ids: Tensor) -> None:
        self.sampling, self.u, self.stop_ids = sampling, u, stop_ids
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self.alive = torch.ones(len(u), dtype=torch.bool, device=u.device)
        self.length = torch.full((len(u),), u.shape[1], device=u.device)

    def scores(self, ids: Tensor, logits: Tensor) -> Tensor:
        """A logits processor: of float32 logits (B, V) those of the tokens that are drawn."""
        found = pick(logits, self.sampling, self.u[:, len(self.kept)])
        self.kept.append(found)
        return torch.full_like(logits, float("-inf")).scatter_(1, found[0][:, None], 0.0)

    def ended(self, ids: Tensor, scores: Any) -> Tensor:
        """A stopping criterion: which rows (B,) have ended."""
        now = self.alive & torch.isin(self.kept[-1][0], self.stop_ids)
        self.length[now] = len(self.kept)
        self.alive &= ~now
        return ~self.alive

    def completions(self) -> Iterator[Completion]:
        columns = (torch.stack(column, 1).tolist() for column in zip(*self.kept, strict=True))
        rows = zip(*columns, self.length.tolist(), (~self.alive).tolist(), strict=True)
        return (completion(*row) for row in rows)


class TransformersEngine(EmbeddedEngine):
    """Any causal LM through transformers' `generate`, up to `slots` answers side by side.

    Prompts are padded on the left. Some models compute something else then (no attention mask
    reaches their state): of those, prompts of one length are taken together, or one at a time.
    Which they are is found by trying, once a model. A sample draws from (its prompt's seed, its
    number) alone.
    """

    def __init__(self, model: Any, stop_ids: Sequence[int], slots: int = 32) -> None:
        from transformers import GenerationConfig

        self.model, self.stop_ids = model, list(stop_ids)
        # adapters are in its layers; peft's own `generate` adds nothing to that
        self._core: Any = model.get_base_model() if hasattr(model, "peft_config") else model
        self._core.generation_config = GenerationConfig()  # a folder's own law is not ours
        super().__init__(slots, context_of(self._core.config.to_dict()))
        if self._core not in _found:
            _found[self._core] = self._try()
        self.together = _found[self._core]

    def about(self) -> dict[str, str]:
        return about("transformers", next(self.model.parameters()))

    def update_weights(self) -> None:
        """Nothing to do: the module's own weights are used."""

    def release(self) -> None:
        """Nothing is kept between calls."""

    @torch.inference_mode()
    def _all(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        rows = [Row(i, j, prompt) for i, prompt in enumerate(prompts) for j in range(n)]
        rows.sort(key=lambda row: (len(row.prompt), row.at, row.sample))
        found: list[list[Completion]] = [[] for _ in prompts]
        stops = torch.tensor(self.stop_ids, device=self._core.device)
        for part in self._batches(rows, sampling.max_new_tokens):
            limit = self._limit(part[0], sampling.max_new_tokens)
            u = uniforms([derive_seed(seeds[row.at], row.sample) for row in part], limit)
            draws = Draws(sampling, u.to(self._core.device), stops)
            self._run([row.prompt for row in part], limit, draws)
            for row, done in zip(part, draws.completions(), strict=True):
                found[row.at].append(done)
        return found

    def _limit(self, row: Row, limit: int) -> int:
        return min(limit, self.context - len(row.prompt)) if self.context else limit

    def _batches(self, rows: Sequence[Row], limit: int) -> Iterator[list[Row]]:
        """Up to `slots` rows each. Rows whose context ends first stay with those of their length:
        no place beyond the context may be computed, not even after a row's end."""
        part: list[Row] = []
        slots = 1 if self.together == "alone" else self.slots
        for row in rows:
            same = bool(part) and len(row.prompt) == len(part[-1].prompt)
            joins = same or (self.together == "padded" and self._limit(row, limit) == limit)
            if part and (len(part) == slots or not joins):
                yield part
                part = []
            part.append(row)
        if part:
            yield part

    def _run(
        self, prompts: Sequence[Sequence[int]], limit: int, draws: Draws | None = None
    ) -> list[Tensor]:
        """Up to `limit` new tokens a row, by `draws`; without, the greedy ones, and the logits
        (B, V) of each step."""
        from transformers import GenerationConfig

        width = max(map(len, prompts))
        lists = [[PAD] * (width - len(p)) + list(p) for p in prompts]
        ids = torch.tensor(lists, device=self._core.device)
        lengths = torch.tensor([[len(p)] for p in prompts], device=ids.device)
        mask = (torch.arange(width, device=ids.device) >= width - lengths).long()
        settings: Any = GenerationConfig(
            max_new_tokens=limit,
            do_sample=False,
            use_cache=True,
            pad_token_id=PAD,
            return_dict_in_generate=draws is None,
            output_logits=draws is None,
        )
        more: dict[str, Any] = {}
        if draws is not None:
            more = {"logits_processor": [draws.scores], "stopping_criteria": [draws.ended]}
        found = self._core.generate(ids, attention_mask=mask, generation_config=settings, **more)
        return list(found.logits) if draws is None else []

    @torch.inference_mode()
    def _try(self) -> Together:
        """How a prompt's tokens stay the same ones beside other prompts. Asked of a model when it
        is loaded, so that a run that is resumed finds the same."""
        kind, vocab = self._core.config.model_type, self._core.config.get_text_config().vocab_size
        sizes = [
            min(size, max(1, self.context - STEPS)) if self.context else size for size in PROBE
        ]
        short, long = ([(7 * i + 3) % vocab for i in range(size)] for size in sizes)
        try:
            alone = self._run([short], STEPS)
        except FAILURES as error:
            raise ModelError(
                f"model_type {kind!r}: transformers' own generation fails "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); serve the model "
                "elsewhere and give its address"
            ) from None
        tries: dict[Together, list[list[int]]] = {"padded": [short, long], "equal": [short, short]}
        found: list[Together] = [how for how, rows in tries.items() if self._same(alone, rows)]
        how = found[0] if found else "alone"
        if how in SAID:
            print(f"model_type {kind!r}: {SAID[how]}", file=sys.stderr)
        return how

    def _same(self, alone: list[Tensor], rows: list[list[int]]) -> bool:
        """Whether the first of these rows has the laws that it has alone, but for rounding."""
        try:
            beside = [logits[:1] for logits in self._run(rows, STEPS)]
        except FAILURES:
            return False
        near = NEAR.get(self._core.dtype, NEAR[torch.bfloat16])
        for one, other in zip(alone, beside, strict=False):
            a, b = (logits.float().log_softmax(-1) for logits in (one, other))
            if (
                bool(a.isfinite().all())
                and float((a - b).abs().mean()) > near * float(a.std()) + 1e-6
            ):
                return False
            if int(one.argmax()) != int(other.argmax()):
                break  # a tie: from here on they read different tokens
        return True


# --- which engine


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
