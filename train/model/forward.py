# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""A differentiable forward over packed groups: by torch's own operations, then by compiled kernels
(rollouts/engines/torch/c/training.c), which compute the same with fewer roundings and in fewer
passes over memory.

Letters: T positions, D hidden size, H query and K key heads, C head size,
G = H/K, R rows of a block of L positions, J keys that a row sees, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rollouts.engines.torch.kernels import Kernels
from rollouts.engines.torch.llama import Layer, Llama, LlamaShape, positioned, rms_norm, rope_tables
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
        x = x + F.linear(
            _plain_attention(heads, packed, moves, masks, shape), layer.o, layer.o_bias
        )
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


def _blocks(block: Tensor, shape: LlamaShape, r: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (R·K, Q·L, C), keys and values (R·K, L, C) of padded rows (R·L, H + 2K, C)."""
    k, g, c = shape.kv_heads, shape.repeat, shape.head_dim
    block = block.view(r, length, -1, c)
    q, keys, values = block.split([shape.heads, k, k], 2)
    q = q.reshape(r, length, k, g, c).permute(0, 2, 3, 1, 4).reshape(r * k, g * length, c)
    keys, values = (t.transpose(1, 2).reshape(r * k, length, c) for t in (keys, values))
    return q, keys, values


def _plain_attend(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, shape: LlamaShape, causal: bool
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
    heads: Tensor, packed: Packed, moves: Moves, masks: tuple[Tensor, Tensor], shape: LlamaShape
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


# --- by compiled kernels

LOGIT_ROWS = 512  # fewer cost more: each block of rows reads the whole head


def fused_hidden(model: Llama, packed: Packed, kernels: Kernels, recompute: bool = False) -> Tensor:
    """What `plain_hidden` computes."""
    shape = model.shape
    rope = rope_tables(shape, packed.positions, model.embed.dtype)
    masks = [Seen(mask, model.embed.dtype) for mask in (packed.stem_mask, packed.branch_mask)]
    still = (torch.ones_like(rope[0]), torch.zeros_like(rope[1]))

    def through(layer: Layer, x: Tensor, more: Tensor | None) -> tuple[Tensor, Tensor]:
        x, normed = AddNorm.apply(x, more, layer.norm_attn, shape.eps, kernels)
        heads = linear(normed, layer.qkv, layer.qkv_bias, kernels)
        turned = rope
        if layer.norm_q is not None:  # normed by torch, and turned with it
            heads = _normed(heads, layer, shape, rope)
            turned = still
        mixed = _attention(heads, turned, packed, masks, shape, kernels)
        mixed = linear(mixed, layer.o, layer.o_bias, kernels)
        x, normed = AddNorm.apply(x, mixed, layer.norm_mlp, shape.eps, kernels)
        gated = Gated.apply(linear(normed, layer.gate_up, None, kernels), kernels)
        return x, linear(gated, layer.down, None, kernels)

    x: Tensor = F.embedding(packed.ids, model.embed)
    more: Tensor | None = None
    for layer in model.layers:
        x, more = again(through, layer, x, more) if recompute else through(layer, x, more)
    _, normed = AddNorm.apply(x, more, model.norm, shape.eps, kernels)
    return normed.index_select(0, packed.source)


class Seen:
    """An additive mask (R, L, J) of 0 and -inf, and the columns up to each line's last 0 (R, L)."""

    def __init__(self, mask: Tensor, dtype: torch.dtype) -> None:
        self.mask = mask.to(dtype).contiguous()
        places = torch.arange(1, mask.shape[-1] + 1)
        self.ends = ((mask == 0) * places).amax(-1) if mask.numel() else places[:0]


def _normed(heads: Tensor, layer: Layer, shape: LlamaShape, rope: tuple[Tensor, Tensor]) -> Tensor:
    """(T, (H+2K)·C) with queries and keys normed and rotated."""
    cut = shape.heads + shape.kv_heads
    turn, keep = heads.view(len(heads), -1, shape.head_dim).split([cut, shape.kv_heads], 1)
    turn = positioned(turn, layer, shape, *(table[:, None] for table in rope))
    return torch.cat([turn, keep], 1).flatten(1)


def _attention(
    heads: Tensor,
    rope: tuple[Tensor, Tensor],
    packed: Packed,
    masks: list[Seen],
    shape: LlamaShape,
    kernels: Kernels,
) -> Tensor:
    """(T, H·C); branches see their stem's keys before their own."""
    blocks = (packed.stems, packed.branches) if len(packed.branches) else (packed.stems,)
    found = Blocks.apply(heads, rope, blocks, packed.place, shape, kernels)
    q, keys, values = found[:3]
    results = [_attend(q, keys, values, masks[0], kernels, True)]
    if len(blocks) > 1:
        size = (len(packed.stems), shape.kv_heads, -1, shape.head_dim)
        keys, values = (
            torch.cat([stem.view(size).index_select(0, packed.stem_of).flatten(0, 1), own], 1)
            for stem, own in zip((keys, values), found[4:], strict=True)
        )
        results.append(_attend(found[3], keys, values, masks[1], kernels, False))
    return Flat.apply(blocks, packed.place, shape, kernels, *results)


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, seen: Seen, kernels: Kernels, causal: bool
) -> Tensor:
    """(R·K, G·L, C), by whichever is fastest here."""
    if kernels.multiplies:
        return AttendTiled.apply(q, keys, values, seen, kernels)
    if is_long(seen.mask):
        return long_attention(q, keys, values, seen.mask, causal)
    return Attend.apply(q, keys, values, seen, kernels)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, kernels: Kernels) -> Tensor:
    """What `F.linear` computes; of a bias torch takes care."""
    found: Tensor = Linear.apply(x, weight, kernels)
    return found if bias is None else found + bias


class Linear(torch.autograd.Function):
    """x Wᵀ, whose gradients are products of matrices that lie as they are read.

    For W's gradient torch multiplies a transposed view, which takes AMX two to three times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kernels: Kernels) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kernels = kernels
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        return grads[0] @ weight, _weight_grad(grads[0], x, ctx.kernels), None


def _weight_grad(grad: Tensor, x: Tensor, kernels: Kernels) -> Tensor:
    """gradᵀ x; the smaller matrices are turned."""
    if kernels.tiles and grad.shape[1] > 2 * x.shape[1]:
        return kernels.transposed(kernels.transposed(x) @ grad)
    return kernels.transposed(grad) @ x


def fused_logp(
    hidden: Tensor, weight: Tensor, target: Tensor, temperature: float, kernels: Kernels
) -> tuple[Tensor, Tensor]:
    """What `linear_logp` computes; V is a multiple of 16."""
    found: tuple[Tensor, Tensor] = LogProb.apply(hidden, weight, target, temperature, kernels)
    return found


class LogProb(torch.autograd.Function):
    """Log-probabilities and entropies (N,), float32, of hidden states (N, D) and a head (V, D).

    Logits are computed for LOGIT_ROWS rows at a time, always in the same memory, and once more
    for the gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        temperature: float,
        kernels: Kernels,
    ) -> tuple[Tensor, Tensor]:
        peaks, sums, dots, chosen = hidden.new_empty(4, len(target), dtype=torch.float32)
        for part, logits in _logits(hidden, weight):
            kernels.run(
                "law", logits, *logits.shape, temperature, peaks[part], sums[part], dots[part]
            )
            chosen[part] = logits.gather(1, target[part, None])[:, 0]
        spread = sums.log()
        lse = peaks + spread
        ctx.save_for_backward(hidden, weight, target, lse)
        ctx.temperature, ctx.kernels = temperature, kernels
        entropy = spread - dots / sums
        ctx.mark_non_differentiable(entropy)
        return chosen / temperature - lse, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        hidden, weight, target, lse = ctx.saved_tensors
        kernels: Kernels = ctx.kernels
        grad = grads[0].contiguous()
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.empty_like(weight) if len(hidden) else torch.zeros_like(weight)
        for part, logits in _logits(hidden, weight):
            given = (logits, target[part], lse[part], grad[part])
            kernels.run("law_back", *given, *logits.shape, ctx.temperature)
            torch.mm(logits, weight, out=d_hidden[part])
            turned = kernels.transposed(logits)
            if part.start:
                d_weight.addmm_(turned, hidden[part])
            else:
                torch.mm(turned, hidden[part], out=d_weight)
        return d_hidden, d_weight, None, None, None


def _logits(hidden: Tensor, weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some rows, and their logits, which are gone with the next."""
    held = hidden.new_empty(min(LOGIT_ROWS, len(hidden)), len(weight))
    for at in range(0, len(hidden), LOGIT_ROWS):
        part = slice(at, min(at + LOGIT_ROWS, len(hidden)))
        yield part, torch.mm(hidden[part], weight.t(), out=held[: part.stop - at])


class AddNorm(torch.autograd.Function):
    """(x + more, its root-mean-square norm times `weight`), each (T, D)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, more: Tensor | None, weight: Tensor, eps: float, kernels: Kernels
    ) -> tuple[Tensor, Tensor]:
        rows, size = x.shape
        total = x if more is None else torch.empty_like(x)
        normed, scales = torch.empty_like(x), x.new_empty(rows, dtype=torch.float32)
        kernels.run("add_norm", x, more, weight, total, normed, scales, rows, size, eps)
        ctx.save_for_backward(total, weight, scales)
        ctx.joined, ctx.kernels = more is not None, kernels
        ctx.set_materialize_grads(False)
        return (total.view_as(x) if more is None else total), normed

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        total, weight, scales = ctx.saved_tensors
        d_total = None if grads[0] is None else grads[0].contiguous()
        if grads[1] is None:  # no loss reads the norm
            return d_total, d_total if ctx.joined else None, None, None, None
        rows, size = total.shape
        d_x = torch.empty_like(total)
        d_weight = scales.new_empty(torch.get_num_threads(), size)
        given = (total, weight, scales, grads[1].contiguous(), d_total, d_x, d_weight)
        ctx.kernels.run("norm_back", *given, rows, size)
        return d_x, d_x if ctx.joined else None, d_weight.sum(0).to(weight.dtype), None, None


class Gated(torch.autograd.Function):
    """silu(gate) · up (T, M) of (T, 2M), gates first."""

    @staticmethod
    def forward(ctx: Any, both: Tensor, kernels: Kernels) -> Tensor:
        ctx.save_for_backward(both)
        ctx.kernels = kernels
        return kernels.silu_mul(both)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        (both,) = ctx.saved_tensors
        d_both = torch.empty_like(both)
        rows, size = both.shape
        ctx.kernels.run("silu_back", both, grads[0].contiguous(), d_both, rows, size // 2)
        return d_both, None


class Blocks(torch.autograd.Function):
    """Queries (R·K, G·L, C), keys and values (R·K, L, C) of each block of rows, from heads
    (T, (H+2K)·C) as projected; queries and keys are rotated."""

    @staticmethod
    def forward(
        ctx: Any,
        heads: Tensor,
        rope: tuple[Tensor, Tensor],
        blocks: tuple[Tensor, ...],
        place: Tensor,
        shape: LlamaShape,
        kernels: Kernels,
    ) -> tuple[Tensor, ...]:
        ctx.given = rope, blocks, place, shape, kernels, heads.shape
        k, g, c = shape.kv_heads, shape.repeat, shape.head_dim
        out: list[Tensor] = []
        for rows in blocks:
            r, length = rows.shape
            q = heads.new_empty(r * k, g * length, c)
            keys, values = heads.new_empty(r * k, length, c), heads.new_empty(r * k, length, c)
            sizes = (rows.numel(), length, shape.heads, k, c)
            kernels.run("to_blocks", heads, *rope, rows, q, keys, values, *sizes)
            out += [q, keys, values]
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        rope, blocks, place, shape, kernels, size = ctx.given
        d_heads, first = grads[0].new_empty(size), 0  # every position stands in one of the blocks
        for i, rows in enumerate(blocks):
            given = [grad.contiguous() for grad in grads[3 * i : 3 * i + 3]]
            sizes = (len(d_heads), rows.shape[1], shape.heads, shape.kv_heads, shape.head_dim)
            where = (place, first, rows.numel(), d_heads)
            kernels.run("from_blocks", *given, *rope, *where, *sizes)
            first += rows.numel()
        return d_heads, None, None, None, None, None


class Attend(torch.autograd.Function):
    """(R·K, G·L, C) from queries, keys and values (R·K, J, C) where they are seen."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, keys: Tensor, values: Tensor, seen: Seen, kernels: Kernels
    ) -> Tensor:
        rows, length, reach = seen.mask.shape
        ctx.kernels, ctx.ends = kernels, seen.ends
        shares = torch.bmm(q, keys.transpose(1, 2))
        repeat = shares.numel() // seen.mask.numel()
        ctx.sizes = (rows, repeat, length, reach, q.shape[-1] ** -0.5)
        kernels.run("shares", shares, seen.mask, seen.ends, *ctx.sizes)
        ctx.save_for_backward(q, keys, values, shares)
        return torch.bmm(shares, values)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        q, keys, values, shares = ctx.saved_tensors
        d_values = torch.bmm(shares.transpose(1, 2), grads[0])
        d_scores = torch.bmm(grads[0], values.transpose(1, 2))
        ctx.kernels.run("shares_back", shares, d_scores, ctx.ends, *ctx.sizes)
        d_q, d_keys = torch.bmm(d_scores, keys), torch.bmm(d_scores.transpose(1, 2), q)
        return d_q, d_keys, d_values, None, None


class AttendTiled(torch.autograd.Function):
    """The same by AMX, which keeps no shares: of each query its greatest score and sum alone."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, keys: Tensor, values: Tensor, seen: Seen, kernels: Kernels
    ) -> Tensor:
        rows, length, reach = seen.mask.shape
        kv_heads, size = len(q) // rows, q.shape[-1]
        out, stats = torch.empty_like(q), q.new_empty(*q.shape[:2], 2, dtype=torch.float32)
        ctx.sizes = (rows, kv_heads, q.shape[1] // length, length, reach, size, size**-0.5)
        ctx.seen, ctx.kernels = seen, kernels
        given = (q, keys, values, seen.mask, seen.ends)
        kernels.run("attend_blocks", *given, out, stats, *ctx.sizes)
        ctx.save_for_backward(q, keys, values, out, stats)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        q, keys, values, out, stats = ctx.saved_tensors
        given = (q, keys, values, ctx.seen.mask, ctx.seen.ends, out, stats, grads[0].contiguous())
        found = tuple(torch.empty_like(x) for x in (q, keys, values))
        ctx.kernels.run("attend_blocks_back", *given, *found, *ctx.sizes)
        return *found, None, None


class Flat(torch.autograd.Function):
    """(T, H·C) of the positions, out of results (R·K, G·L, C) of each block."""

    @staticmethod
    def forward(
        ctx: Any,
        blocks: tuple[Tensor, ...],
        place: Tensor,
        shape: LlamaShape,
        kernels: Kernels,
        *results: Tensor,
    ) -> Tensor:
        ctx.blocks, ctx.place, ctx.shape, ctx.kernels = blocks, place, shape, kernels
        flat = results[0].new_empty(len(place), shape.heads * shape.head_dim)
        _move(ctx, results, flat, 0)
        return flat

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        shape, flat = ctx.shape, grads[0].contiguous()
        out = tuple(
            flat.new_empty(len(b) * shape.kv_heads, shape.repeat * b.shape[1], shape.head_dim)
            for b in ctx.blocks
        )
        _move(ctx, out, flat, 1)
        return None, None, None, None, *out


def _move(ctx: Any, results: tuple[Tensor, ...], flat: Tensor, into: int) -> None:
    """Between results in blocks and by position."""
    shape, first = ctx.shape, 0
    for rows, result in zip(ctx.blocks, results, strict=True):
        sizes = (len(flat), rows.shape[1], shape.heads, shape.kv_heads, shape.head_dim)
        ctx.kernels.run("move_heads", result, flat, ctx.place, first, rows.numel(), *sizes, into)
        first += rows.numel()
