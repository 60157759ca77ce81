# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The matrix products of a model; and, on a GPU, one token for every row at once.

Attention of a sampled token has two parts: the prompt's keys and values, stored once a group and
met by all its samples in one batched product, and the sample's own, in a buffer of its own row.
One softmax runs over both. On a CPU ragged.py does this for rows that are not equally far. Axis
letters: P groups (prompts), W rows a group, R = P·W rows, K key/value heads, H query heads,
Q = H/K, C head size, L prompt length, S room for sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.chain import Chain, Tiles, chain
from rollouts.engines.torch.kernels import kernels_for
from rollouts.engines.torch.llama import Layer, Llama, Shape, rms_norm, rope_tables, split_heads

Linear = Callable[[Tensor], Tensor]

# Own keys grow by this many columns, the unused ones masked. A graph is recorded anew each time.
ROOM = 64


@dataclass(frozen=True)
class Products:
    """The matrix products of a model, maybe prepacked: (qkv, o, gated, down) a layer, head; what
    computes between them, where that is compiled (None: torch); and both in one call a layer, where
    the products are compiled too. `gated` is silu(gate) · up of (N, D)."""

    layers: list[tuple[Linear, Linear, Linear, Linear]]
    head: Linear
    kernels: Kernels | None = None
    chain: Chain | None = None

    def add_norm(
        self, x: Tensor, more: Tensor | None, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """x + more (N, D), and its norm. `x` itself may be changed."""
        if self.kernels is not None:
            return x, self.kernels.add_norm(x, more, weight, eps)
        x = x if more is None else x + more
        return x, rms_norm(x, weight, eps)


def _linear(
    weight: Tensor,
    rows: int,
    packed: bool,
    bias: Tensor | None = None,
    kernels: Kernels | None = None,
) -> Linear:
    if not packed:
        return lambda x: F.linear(x, weight, bias)
    ours = None if kernels is None else kernels.packed(weight)
    if kernels is not None and ours is not None:
        return Tiles(kernels, weight, ours, bias)
    ops = torch.ops.mkldnn
    reordered = ops._reorder_linear_weight(weight, rows)
    return lambda x: ops._linear_pointwise(x, reordered, bias, "none", [], "")


def _gated(weight: Tensor, rows: int, packed: bool, kernels: Kernels | None) -> Linear:
    """silu(gate) · up (N, M) of x (N, D), from the weight of both (2M, D)."""
    ours = kernels.packed_gates(weight) if packed and kernels is not None else None
    if kernels is not None and ours is not None:
        return Tiles(kernels, weight, ours, None, gates=True)
    both = _linear(weight, rows, packed)
    return lambda x: gated(kernels, both(x))


def gated(kernels: Kernels | None, both: Tensor) -> Tensor:
    """silu(gate) · up (N, M) of both (N, 2M)."""
    if kernels is not None:
        return kernels.silu_mul(both)
    gate, up = both.chunk(2, -1)
    return F.silu(gate).mul_(up)


def can_prepack(weight: Tensor) -> bool:
    """Whether oneDNN's weight layout is there for this tensor; the ops are private, so we try."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.bfloat16, torch.float32):
        return False
    try:
        probe = weight.new_ones(32, 32)
        return bool(torch.isfinite(_linear(probe, 8, True)(weight.new_ones(8, 32))).all())
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False


def products(model: Llama, rows: int, packed: bool) -> Products:
    """Products for about `rows` rows at once; prepacked ones copy the weights as they are now."""
    kernels = kernels_of(model)

    def make(weight: Tensor, bias: Tensor | None = None) -> Linear:
        bias = None if bias is None else bias.detach()
        return _linear(weight.detach(), rows, packed, bias, kernels)

    layers = [
        (
            make(b.qkv, b.qkv_bias),
            make(b.o, b.o_bias),
            _gated(b.gate_up.detach(), rows, packed, kernels),
            make(b.down),
        )
        for b in model.layers
    ]
    head = make(model.head)
    every = [*(product for layer in layers for product in layer), head]
    return Products(layers, head, kernels, chain(model, every))


def kernels_of(model: Llama) -> Kernels | None:
    """The compiled kernels that this model uses here; None: torch's own operations."""
    shape = model.shape
    return kernels_for(model.embed, (shape.hidden, shape.mlp), shape.head_dim)


@dataclass
class Prompts:
    """Keys and values of prompts, a tensor a layer (P, K, L, C), and the prompts' lengths (P,).
    The first `shared` columns are the same in all of them."""

    k: list[Tensor]
    v: list[Tensor]
    lengths: Tensor
    shared: int = 0


@dataclass
class Cache:
    """Keys and values of a wave, a tensor a layer. Prompt: (P, K, L, C); own: (R, K, S, C)."""

    prompt_k: list[Tensor]
    prompt_v: list[Tensor]
    own_k: list[Tensor]
    own_v: list[Tensor]
    mask: Tensor  # (P, 1, 1, 1, L + S), 0 or -inf
    lengths: Tensor  # (P,) prompt lengths
    groups: int
    width: int
    column: Tensor  # (1,) how many columns of `own` are filled, where the device counts them
    used: int = 0  # the same, where Python does
    moved: int = 0  # how often these tensors were replaced by others

    @property
    def rows(self) -> int:
        return self.groups * self.width

    @property
    def positions(self) -> Tensor:
        """(R,) the place in its text of what each row feeds next."""
        return (self.lengths + self.column).repeat_interleave(self.width)

    @property
    def room(self) -> int:
        """Columns that are not filled."""
        return self.own_k[0].shape[2] - self.used

    def open(self) -> None:
        """Let every row see one more column."""
        self.mask.index_fill_(-1, self.column + self.prompt_k[0].shape[2], 0)

    @torch.inference_mode()
    def grow(self) -> None:
        """Make room for more columns."""
        for store in (self.own_k, self.own_v):
            for i, old in enumerate(store):
                # zeros: what is masked is still multiplied
                more = old.new_zeros(self.rows, old.shape[1], ROOM, old.shape[3])
                store[i] = torch.cat([old, more], 2)
        shut = self.mask.new_full((self.groups, 1, 1, 1, ROOM), float("-inf"))
        self.mask = torch.cat([self.mask, shut], -1)
        self.moved += 1

    def keep(self, groups: Tensor, rows: Tensor, width: int) -> None:
        """Keep the given groups (P',) and rows (P'·width,), in that order."""
        if len(groups) < self.groups:
            self.prompt_k = [t.index_select(0, groups) for t in self.prompt_k]
            self.prompt_v = [t.index_select(0, groups) for t in self.prompt_v]
            self.mask = self.mask.index_select(0, groups)
            self.lengths = self.lengths.index_select(0, groups)
        self.own_k = [t.index_select(0, rows) for t in self.own_k]
        self.own_v = [t.index_select(0, rows) for t in self.own_v]
        self.groups, self.width = len(groups), width
        self.moved += 1


def new_cache(prompts: Prompts, width: int) -> Cache:
    """A wave's cache from its prompts, nothing sampled yet."""
    lengths = prompts.lengths
    groups, kv_heads, longest, size = prompts.k[0].shape
    beyond = torch.arange(longest, device=lengths.device)[None] >= lengths[:, None]
    mask = prompts.k[0].new_zeros(groups, longest).masked_fill(beyond, float("-inf"))
    none = prompts.k[0].new_empty(groups * width, kv_heads, 0, size)
    own_k, own_v = [none] * len(prompts.k), [none] * len(prompts.k)
    mask = mask.view(groups, 1, 1, 1, longest)
    column = torch.zeros(1, dtype=torch.long, device=lengths.device)
    return Cache(prompts.k, prompts.v, own_k, own_v, mask, lengths, groups, width, column)


def _attend(shape: Shape, cache: Cache, index: int, q: Tensor) -> Tensor:
    """Attention of one new token a row: q (R, H, C), already scaled, over prompt and own keys."""
    p, w, k, g = cache.groups, cache.width, shape.kv_heads, shape.repeat
    rows, c = p * w, shape.head_dim
    prompt_k, prompt_v, own_k, own_v = (
        store[index].flatten(0, 1)
        for store in (cache.prompt_k, cache.prompt_v, cache.own_k, cache.own_v)
    )
    size = prompt_k.shape[1]
    grouped = q.reshape(p, w, k, g, c).transpose(1, 2).reshape(p * k, w * g, c)
    on_prompt = torch.bmm(grouped, prompt_k.transpose(1, 2)).view(p, k, w, g, size)
    on_own = torch.bmm(q.reshape(rows * k, g, c), own_k.transpose(1, 2))
    on_own = on_own.view(p, w, k, g, -1).transpose(1, 2)
    share = torch.cat([on_prompt, on_own], -1).add_(cache.mask).softmax(-1)
    from_prompt = torch.bmm(share[..., :size].reshape(p * k, w * g, size), prompt_v)
    own_share = share[..., size:].transpose(1, 2).reshape(rows * k, g, -1)
    from_own = torch.bmm(own_share, own_v).view(rows, k * g * c)
    mixed = from_prompt.view(p, k, w, g, c).transpose(1, 2).reshape(rows, k * g * c)
    return mixed + from_own


@torch.inference_mode()
def step(model: Llama, run: Products, caches: Sequence[Cache], ids: Tensor) -> Tensor:
    """Feed one token to each row, the waves' rows one after another; logits (rows, V).

    Python waits for nothing here and changes no numbers of its own, so a GPU can do it again from
    a recording.
    """
    shape = model.shape
    for cache in caches:
        cache.open()
    positions = torch.cat([c.positions for c in caches])
    tables = rope_tables(shape, positions, model.embed.dtype)
    x, more = model.embed[ids], None
    for index, (layer, (qkv, o, gated, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        x, normed = run.add_norm(x, more, layer.norm_attn, shape.eps)
        mixed = _mixed(shape, layer, caches, index, qkv(normed), tables)
        x, normed = run.add_norm(x, o(mixed), layer.norm_mlp, shape.eps)
        more = down(gated(normed))
    for cache in caches:
        cache.column += 1
    return run.head(run.add_norm(x, more, model.norm, shape.eps)[1])


def _mixed(
    shape: Shape,
    layer: Layer,
    caches: Sequence[Cache],
    index: int,
    projected: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """Attention of a layer (R, H·C); the new keys and values are stored."""
    q, k, v = split_heads(projected, layer, shape, tables)
    sides = (q * shape.head_dim**-0.5, k, v)
    sizes = [cache.rows for cache in caches]
    parts = zip(caches, *(side.split(sizes) for side in sides), strict=True)
    mixed: list[Tensor] = []
    for cache, own_q, own_k, own_v in parts:
        cache.own_k[index].index_copy_(2, cache.column, own_k[:, :, None])
        cache.own_v[index].index_copy_(2, cache.column, own_v[:, :, None])
        mixed.append(_attend(shape, cache, index, own_q))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]
