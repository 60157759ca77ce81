# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""A differentiable forward over packed groups by torch's own operations. fused.py is the same by
compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rollouts.engines.torch.llama import Layer, Llama, Shape, positioned, rms_norm, rope_tables
from train.model.packing import Packed

# Keys from which on torch's kernel is faster than products of whole blocks, on a CPU: 1.2 times at
# 230 in float32 and 512 in bfloat16, 3.1 and 2.2 times at 2,048; at 128 it is 0.85 and 0.5 times.
LONG = 256


def is_long(mask: Tensor) -> bool:
    """Whether a block with this mask (R, L, J) is better left to torch. On a GPU always."""
    return mask.device.type != "cpu" or mask.shape[-1] >= LONG


def long_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """(R·K, G·L, C) of queries like that, and keys and values (R·K, J, C), under an additive mask
    (R, L, J). `causal`: L is J, and the mask is a causal one.

    Memory grows with L + J, not with their product.
    """
    rows, length, reach = mask.shape
    kv_heads, repeat, size = len(q) // rows, q.shape[1] // length, q.shape[-1]
    # torch repeats heads itself only in some of its kernels, and not in those that take a mask
    wide = (rows, kv_heads, repeat, reach, size)
    keys, values = (
        t.view(rows, kv_heads, 1, reach, size).expand(wide).flatten(1, 2) for t in (keys, values)
    )
    query = q.view(rows, kv_heads * repeat, length, size)
    if causal:
        found = F.scaled_dot_product_attention(query, keys, values, is_causal=True)
    else:
        found = F.scaled_dot_product_attention(query, keys, values, mask[:, None].to(q.dtype))
    return found.reshape(q.shape)


def plain_hidden(model: Llama, packed: Packed, recompute: bool = False) -> Tensor:
    """Last hidden states (U, D) of the positions that predict a target. `recompute`: of each layer
    only its input is kept for the gradients."""
    shape = model.shape
    cos, sin = rope_tables(shape, packed.positions, model.embed.dtype)
    rope = (cos[:, None], sin[:, None])
    masks = (packed.stem_mask.to(cos.dtype), packed.branch_mask.to(cos.dtype))
    moves = Moves.of(packed)
    cut = shape.heads + shape.kv_heads

    def through(layer: Layer, x: Tensor) -> Tensor:
        heads = F.linear(rms_norm(x, layer.norm_attn, shape.eps), layer.qkv, layer.qkv_bias)
        turn, keep = heads.view(len(x), -1, shape.head_dim).split([cut, shape.kv_heads], 1)
        heads = torch.cat([positioned(turn, layer, shape, *rope), keep], 1)
        x = x + F.linear(_plain_attention(heads, packed, moves, masks, shape), layer.o, layer.o_bias)
        both = F.linear(rms_norm(x, layer.norm_mlp, shape.eps), layer.gate_up)
        gate, up = both.split(shape.mlp, -1)
        return x + F.linear(F.silu(gate) * up, layer.down)

    x = F.embedding(packed.ids, model.embed)
    for layer in model.layers:
        x = again(through, layer, x) if recompute else through(layer, x)
    return rms_norm(x.index_select(0, packed.source), model.norm, shape.eps)


def again(compute: Callable[..., Any], *given: Any) -> Any:
    """`compute(*given)`, of which nothing but what it was given is kept: the gradients compute it
    a second time. No layer here draws random numbers, so none are put back."""
    return checkpoint(compute, *given, use_reentrant=False, preserve_rng_state=False)


@dataclass(frozen=True)
class Moves:
    """Between flat positions (T,) and all padded blocks, stems and then branches, one after another
    (A,): `at` is the position at each place (A,), `place` the place of each position (T,), `real`
    (A, 1) whether a place is one, and not padding."""

    at: Tensor
    place: Tensor
    real: Tensor

    @classmethod
    def of(cls, packed: Packed) -> Moves:
        at = torch.cat([packed.stems.flatten(), packed.branches.flatten()])
        real = packed.place[at] == torch.arange(len(at), device=at.device)
        return cls(at, packed.place, real[:, None])


class ToBlocks(torch.autograd.Function):
    """(A, …) of x (T, …). What padding holds is never read: its gradient is 0, and each position's
    is at its one place. torch would add all of them up, on a GPU slowly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, moves: Moves) -> Tensor:
        ctx.moves = moves
        return x.index_select(0, moves.at)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        return grads[0].index_select(0, ctx.moves.place), None


class FromBlocks(torch.autograd.Function):
    """(T, …) of what is at the places x (A, …)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, moves: Moves) -> Tensor:
        ctx.moves = moves
        return x.index_select(0, moves.place)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        found = grads[0].index_select(0, ctx.moves.at)
        return found.masked_fill_(~ctx.moves.real, 0.0), None


def _blocks(block: Tensor, shape: Shape, r: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (R·K, Q·L, C), keys and values (R·K, L, C) of padded rows (R·L, H + 2K, C)."""
    k, g, c = shape.kv_heads, shape.repeat, shape.head_dim
    block = block.view(r, length, -1, c)
    q, keys, values = block.split([shape.heads, k, k], 2)
    q = q.reshape(r, length, k, g, c).permute(0, 2, 3, 1, 4).reshape(r * k, g * length, c)
    keys, values = (t.transpose(1, 2).reshape(r * k, length, c) for t in (keys, values))
    return q, keys, values


def _plain_attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, shape: Shape, causal: bool
) -> Tensor:
    """(R·L, H·C) from the blocks above and an additive mask (R, L, J) over the J keys."""
    r, length, reach = mask.shape
    k, g, c = shape.kv_heads, shape.repeat, shape.head_dim
    if is_long(mask):
        out = long_attention(q, keys, values, mask, causal)
    else:
        wide = mask[:, None, None].expand(r, k, g, length, reach).reshape(r * k, g * length, reach)
        scores = torch.baddbmm(wide, q, keys.transpose(1, 2), alpha=c**-0.5)
        out = torch.bmm(scores.softmax(-1), values)
    return out.view(r, k, g, length, c).permute(0, 3, 1, 2, 4).reshape(r * length, -1)


def _plain_attention(
    heads: Tensor, packed: Packed, moves: Moves, masks: tuple[Tensor, Tensor], shape: Shape
) -> Tensor:
    """(T, H·C) from rotated queries and keys and plain values (T, H + 2K, C), by padded blocks."""
    moved: Tensor = ToBlocks.apply(heads, moves)
    stems, branches = moved.split([packed.stems.numel(), packed.branches.numel()])
    q, keys, values = _blocks(stems, shape, *packed.stems.shape)
    out = _plain_attend(q, keys, values, masks[0], shape, True)
    if len(packed.branches):
        own_q, own_k, own_v = _blocks(branches, shape, *packed.branches.shape)
        size = (len(packed.stems), shape.kv_heads, -1, shape.head_dim)

        def behind_stem(stem: Tensor, own: Tensor) -> Tensor:
            picked = stem.view(size).index_select(0, packed.stem_of).flatten(0, 1)
            return torch.cat([picked, own], 1)

        both = behind_stem(keys, own_k), behind_stem(values, own_v)
        out = torch.cat([out, _plain_attend(own_q, *both, masks[1], shape, False)])
    found: Tensor = FromBlocks.apply(out, moves)
    return found
