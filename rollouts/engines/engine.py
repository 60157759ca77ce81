"""The seam between episodes and whatever produces tokens; the sizes of a model, and answers that
end where its context does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

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


# --- how large a model is, and how many tokens it reads

# Names of the longest sequence in configurations of decoders.
NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "n_ctx",
)

NOTHING = Completion([], [], [], "length")


def context_of(config: Mapping[str, Any]) -> int:
    """Longest sequence that a model was made for, of its config.json, stretched by YaRN or another
    scaling where it has one; 0 where it has no such bound (ALiBi, recurrent models)."""
    part: Mapping[str, Any] = config.get("text_config") or {}
    whole: dict[str, Any] = {**config, **part}
    trained = next((int(whole[name]) for name in NAMES if whole.get(name)), 0)
    scaling: Mapping[str, Any] = whole.get("rope_scaling") or whole.get("rope_parameters") or {}
    first = int(scaling.get("original_max_position_embeddings") or 0)
    return max(trained, int(first * float(scaling.get("factor") or 1)))


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder with gated MLPs and grouped keys and values."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: bool
    positions: int = 0  # longest sequence it was made for; 0: not known

    @property
    def parameters(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        per_layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.layers * per_layer + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def kv_bytes(self) -> int:
        """Of one token, in bf16."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters on all linear layers of the blocks."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * (self.hidden + q) + 2 * (self.hidden + kv)
        return self.layers * rank * (attention + 3 * (self.hidden + self.mlp))


def shape_in(config: Mapping[str, Any]) -> Shape:
    """Of a config.json. Raises `KeyError`, `ValueError` or `TypeError` where it is of another."""
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        mlp=int(config["intermediate_size"]),
        vocab=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        positions=context_of(config),
    )


# --- an engine of this process


class EmbeddedEngine:
    """What the engines of this process have in common. `context`: the tokens that the model reads;
    0: unbounded."""

    def __init__(self, slots: int, context: int) -> None:
        if slots < 1:
            raise ValueError(f"slots={slots}: the engine needs at least one row; set 1 or more")
        self.slots, self.context = slots, context

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`n` completions a prompt; sample j of prompt i draws from (seeds[i], j) alone."""
        return self.generate_now(prompts, sampling, n, seeds)

    def generate_now(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """The same, without a coroutine. An answer ends where the context does, as `length`; so
        does, without a token, that to a prompt that leaves no room, which is said."""
        if any(len(p) == 0 for p in prompts):
            raise ValueError("an empty prompt has nothing to continue; give at least one token")
        context = self.context
        if not context or all(len(p) + sampling.max_new_tokens <= context for p in prompts):
            return self._all(prompts, sampling, n, seeds)
        room = {i: context - len(p) for i, p in enumerate(prompts) if len(p) < context}
        if len(room) < len(prompts):
            count, longest = len(prompts) - len(room), max(map(len, prompts))
            print(
                f"{count} of {len(prompts)} prompts leave no room for an answer in the model's "
                f"context of {context} tokens (the longest has {longest}); they end as cut, "
                "unanswered",
                file=sys.stderr,
            )
        if not room:
            return [[NOTHING] * n for _ in prompts]
        some = replace(sampling, max_new_tokens=min(sampling.max_new_tokens, max(room.values())))
        groups = self._all([prompts[i] for i in room], some, n, [seeds[i] for i in room])
        found = dict(zip(room, groups, strict=True))
        return [
            [_cut(c, room[i]) for c in found[i]] if i in room else [NOTHING] * n
            for i in range(len(prompts))
        ]

    def _all(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`generate_now` of prompts that leave room."""
        raise NotImplementedError


def _cut(whole: Completion, room: int) -> Completion:
    """The first `room` tokens of a completion."""
    if len(whole.ids) <= room:
        return whole
    logprobs = whole.logprobs[:room], whole.sampling_logprobs[:room]
    return Completion(whole.ids[:room], *logprobs, "length")
