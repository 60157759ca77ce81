# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeArgument=false
"""A training step of a model of any size without its memory: what it would hold.

torch's fake tensors have a shape and no content. The step is the real one: transformers' layers,
gradient checkpointing as the backend switches it on, and the backend's own loss. Flash attention
alone has a stand-in, because its kernel needs a GPU: it keeps and makes tensors of the same sizes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rollouts.engines.engine import Shape


class _Flash(torch.autograd.Function):
    """What FlashAttention 2 keeps, its output, and in the backward pass the gradient of the queries
    in float32 before it is rounded."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v, _, _ = ctx.saved_tensors
        whole = torch.empty_like(q, dtype=torch.float32)
        return whole.to(q.dtype), torch.empty_like(k), torch.empty_like(v)


def _attend(module: Any, q: Any, k: Any, v: Any, mask: Any, **_: Any) -> tuple[Any, None]:
    assert mask is None  # as in a real run: the kernel needs none
    return _Flash.apply(q, k, v).transpose(1, 2).contiguous(), None


class Live(TorchDispatchMode):
    """Bytes of all storages that operations have made and that are still there. `there`: tensors
    that do not count, such as the weights."""

    def __init__(self, there: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in there}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


@dataclass(frozen=True)
class Step:
    """Bytes beside the weights: kept after the forward pass, and at most."""

    kept: int
    peak: int


def fake_model(shape: Shape, dtype: torch.dtype) -> Any:
    """A Qwen3 of this shape, as a backend trains it. Call under `FakeTensorMode`."""
    from transformers import (
        AttentionInterface,
        AttentionMaskInterface,
        AutoModelForCausalLM,
        Qwen3Config,
    )

    from train.backends.deepspeed import recompute

    AttentionInterface.register("stand_in", _attend)
    AttentionMaskInterface.register("stand_in", lambda *_, **__: None)
    sizes = {"num_hidden_layers": shape.layers, "hidden_size": shape.hidden}
    sizes |= {"num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads}
    sizes |= {"head_dim": shape.head_dim, "intermediate_size": shape.mlp, "vocab_size": shape.vocab}
    sizes |= {"tie_word_embeddings": shape.tied, "max_position_embeddings": shape.positions}
    words: Any = {"dtype": dtype, "attn_implementation": "stand_in"}
    model: Any = AutoModelForCausalLM.from_config(Qwen3Config(**sizes), **words)
    recompute(model)
    return model


def step(shape: Shape, tokens: int, loss: Callable[[Any, torch.Tensor], torch.Tensor]) -> Step:
    """One forward and backward pass over `tokens`. Gradients of weights leave at once, as under
    ZeRO and FSDP, where each is cut over the devices as soon as it is there."""
    with FakeTensorMode():
        model, ids = fake_model(shape, torch.bfloat16), torch.zeros(tokens, dtype=torch.long)
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", None))
        with Live([*model.parameters(), *model.buffers(), ids]) as live:
            value = loss(model, ids)
            kept = live.now
            value.backward()
    return Step(kept, live.peak)
