# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Decode a wave of prompts, G samples each, with one prefill a prompt.

Attention of a sampled token has two parts: the prompt's keys and values, stored once a group and
met by all its samples in one batched product, and the sample's own, in a buffer of its own row.
One softmax runs over both. Axis letters: P groups (prompts), W live samples a group, R = P·W
rows, K key/value heads, H query heads, Q = H/K, C head size, L prompt length, S sampled so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.llama import Llama, Shape, rms_norm, rope_tables, rotate

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Products:
    """The matrix products of a model, maybe prepacked: (qkv, o, gate_up, down) a layer, head."""

    layers: list[tuple[Linear, Linear, Linear, Linear]]
    head: Linear


def _linear(weight: Tensor, rows: int, packed: bool) -> Linear:
    if not packed:
        return lambda x: F.linear(x, weight)
    ops = torch.ops.mkldnn
    reordered = ops._reorder_linear_weight(weight, rows)
    return lambda x: ops._linear_pointwise(x, reordered, None, "none", [], "")


def can_prepack(weight: Tensor) -> bool:
    """Whether oneDNN's weight layout is there for this tensor; the ops are private, so we try."""
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return False
    try:
        probe = weight.new_ones(32, 32)
        return bool(torch.isfinite(_linear(probe, 8, True)(weight.new_ones(8, 32))).all())
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False


def products(model: Llama, rows: int, packed: bool) -> Products:
    """Products for about `rows` rows at once; prepacked ones copy the weights as they are now."""

    def make(weight: Tensor) -> Linear:
        return _linear(weight.detach(), rows, packed)

    layers = [(make(b.qkv), make(b.o), make(b.gate_up), make(b.down)) for b in model.layers]
    return Products(layers, make(model.head))


@dataclass
class Cache:
    """Keys and values of a wave. Prompt: (P·K, C, L) and (P·K, L, C) a layer; own: (R, K, S, C)."""

    prompt_k: list[Tensor]
    prompt_v: list[Tensor]
    own_k: list[Tensor]
    own_v: list[Tensor]
    prompt_mask: Tensor  # (P, 1, 1, 1, L), 0 or -inf
    lengths: Tensor  # (P,) prompt lengths
    groups: int
    width: int

    def reserve(self, used: int, limit: int) -> None:
        """Room for one more token in every row, growing by doubling up to `limit`."""
        have = self.own_k[0].shape[2]
        if used < have:
            return
        grow = min(have, limit - have)
        for store in (self.own_k, self.own_v):
            for i, old in enumerate(store):
                store[i] = torch.cat([old, old.new_empty(*old.shape[:2], grow, old.shape[3])], 2)

    def keep(self, groups: Tensor, rows: Tensor, width: int, kv_heads: int) -> None:
        """Keep the given groups (P',) and rows (P'·width,), in that order."""
        if len(groups) < self.groups:
            heads = (
                groups[:, None] * kv_heads + torch.arange(kv_heads, device=groups.device)
            ).flatten()
            self.prompt_k = [t.index_select(0, heads) for t in self.prompt_k]
            self.prompt_v = [t.index_select(0, heads) for t in self.prompt_v]
            self.prompt_mask = self.prompt_mask.index_select(0, groups)
            self.lengths = self.lengths.index_select(0, groups)
        self.own_k = [t.index_select(0, rows) for t in self.own_k]
        self.own_v = [t.index_select(0, rows) for t in self.own_v]
        self.groups, self.width = len(groups), width


def _mlp(x: Tensor, shape: Shape, gate_up: Linear, down: Linear) -> Tensor:
    both = gate_up(x)
    gate, up = both[..., : shape.mlp], both[..., shape.mlp :]
    return down(F.silu(gate).mul_(up))


@torch.inference_mode()
def prefill(
    model: Llama, run: Products, prompts: Sequence[Sequence[int]], width: int, room: int
) -> tuple[Tensor, Cache]:
    """Run all prompts flat, once each. Returns last-position logits (P, V) and the wave's cache."""
    shape, device = model.shape, model.embed.device
    lengths = [len(p) for p in prompts]
    longest, groups = max(lengths), len(prompts)
    flat = torch.tensor([t for p in prompts for t in p], device=device)
    positions = torch.cat([torch.arange(n, device=device) for n in lengths])
    cos, sin = rope_tables(shape, positions, model.embed.dtype)
    cos, sin = cos[:, None], sin[:, None]
    x = model.embed[flat]
    k_all: list[Tensor] = []
    v_all: list[Tensor] = []
    for layer, (qkv, o, gate_up, down) in zip(model.layers, run.layers, strict=True):
        heads = qkv(rms_norm(x, layer.norm_attn, shape.eps)).view(len(x), -1, shape.head_dim)
        turned = rotate(heads[:, : shape.heads + shape.kv_heads], cos, sin)
        q, k = turned[:, : shape.heads], turned[:, shape.heads :]
        v = heads[:, shape.heads + shape.kv_heads :]
        prompt_k = x.new_zeros(groups, shape.kv_heads, shape.head_dim, longest)
        prompt_v = x.new_zeros(groups, shape.kv_heads, longest, shape.head_dim)
        mixed = torch.empty_like(q)
        start = 0
        for group, n in enumerate(lengths):
            one = slice(start, start + n)
            qs, ks, vs = (t[one].transpose(0, 1) for t in (q, k, v))
            prompt_k[group, :, :, :n] = ks.transpose(1, 2)
            prompt_v[group, :, :n] = vs
            ks, vs = (t.repeat_interleave(shape.repeat, 0)[None] for t in (ks, vs))
            out = F.scaled_dot_product_attention(qs[None], ks, vs, is_causal=True)
            mixed[one] = out[0].transpose(0, 1)
            start += n
        k_all.append(prompt_k.view(-1, shape.head_dim, longest))
        v_all.append(prompt_v.view(-1, longest, shape.head_dim))
        x = x + o(mixed.reshape(len(x), -1))
        x = x + _mlp(rms_norm(x, layer.norm_mlp, shape.eps), shape, gate_up, down)
    sizes = torch.tensor(lengths, device=device)
    last = x[sizes.cumsum(0) - 1]
    beyond = torch.arange(longest, device=device)[None] >= sizes[:, None]
    mask = x.new_zeros(groups, longest).masked_fill(beyond, float("-inf"))
    own = [x.new_empty(groups * width, shape.kv_heads, room, shape.head_dim) for _ in model.layers]
    own_v = [torch.empty_like(t) for t in own]
    cache = Cache(k_all, v_all, own, own_v, mask.view(groups, 1, 1, 1, -1), sizes, groups, width)
    return run.head(rms_norm(last, model.norm, shape.eps)), cache


def _attend(shape: Shape, cache: Cache, index: int, q: Tensor, used: int) -> Tensor:
    """Attention of one new token a row: q (R, H, C), already scaled, over prompt and own keys."""
    p, w, k, g = cache.groups, cache.width, shape.kv_heads, shape.repeat
    rows, c = p * w, shape.head_dim
    grouped = q.reshape(p, w, k, g, c).transpose(1, 2).reshape(p * k, w * g, c)
    on_prompt = torch.bmm(grouped, cache.prompt_k[index]).view(p, k, w, g, -1)
    own_k = cache.own_k[index][:, :, :used]
    on_own = torch.matmul(q.reshape(rows, k, g, c), own_k.transpose(2, 3))
    on_own = on_own.view(p, w, k, g, used).transpose(1, 2)
    share = torch.cat([on_prompt + cache.prompt_mask, on_own], -1).softmax(-1)
    size = on_prompt.shape[-1]
    from_prompt = torch.bmm(
        share[..., :size].reshape(p * k, w * g, size), cache.prompt_v[index]
    ).view(p, k, w, g, c)
    own_share = share[..., size:].transpose(1, 2).reshape(rows, k, g, used)
    from_own = torch.matmul(own_share, cache.own_v[index][:, :, :used])
    mixed = from_prompt.transpose(1, 2).reshape(rows, k, g, c) + from_own
    return mixed.reshape(rows, -1)


@torch.inference_mode()
def step(model: Llama, run: Products, cache: Cache, ids: Tensor, used: int, limit: int) -> Tensor:
    """Feed one token a row (R,), the sample's token number `used` (from 0); logits (R, V)."""
    shape = model.shape
    cache.reserve(used, limit)
    positions = (cache.lengths + used).repeat_interleave(cache.width)
    cos, sin = rope_tables(shape, positions, model.embed.dtype)
    cos, sin = cos[:, None], sin[:, None]
    x = model.embed[ids]
    scale = shape.head_dim**-0.5
    cut = shape.heads + shape.kv_heads
    for index, (layer, (qkv, o, gate_up, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        heads = qkv(rms_norm(x, layer.norm_attn, shape.eps)).view(len(x), -1, shape.head_dim)
        turned = rotate(heads[:, :cut], cos, sin)
        cache.own_k[index][:, :, used] = turned[:, shape.heads :]
        cache.own_v[index][:, :, used] = heads[:, cut:]
        x = x + o(_attend(shape, cache, index, turned[:, : shape.heads] * scale, used + 1))
        x = x + _mlp(rms_norm(x, layer.norm_mlp, shape.eps), shape, gate_up, down)
    return run.head(rms_norm(x, model.norm, shape.eps))
