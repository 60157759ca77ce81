# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""One token for every row: products over all rows at once, attention wave by wave.

Attention of a sampled token has two parts: the prompt's keys and values, stored once a group and
met by all its samples in one batched product, and the sample's own, in a buffer of its own row.
One softmax runs over both. Samples of a group that drew the same tokens so far are one row; where
they part, the row is copied. Axis letters: P groups (prompts), W rows a group, R = P·W rows, F of
them fed, K key/value heads, H query heads, Q = H/K, C head size, L prompt length, S room for
sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.chain import FEW, Chain, Tiles, chain
from rollouts.engines.torch.kernels import kernels_for
from rollouts.engines.torch.llama import Layer, Llama, Shape, positioned, rms_norm, rope_tables

Linear = Callable[[Tensor], Tensor]

# Own keys grow by this many columns. They stay contiguous, with the unused columns masked: a
# bfloat16 product over a slice of a larger buffer costs several times more.
ROOM = 16


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
    used: int = 0  # columns of `own` that are filled
    fed: Tensor | None = None  # (F,) rows that go on, in order; None: all of them
    shared: int = 0  # columns of `prompt`, from the first on, that are the same in all groups

    @property
    def rows(self) -> int:
        return self.groups * self.width

    @property
    def positions(self) -> Tensor:
        """(F,) the place of each row's newest column in its text."""
        every = (self.lengths + self.used - 1).repeat_interleave(self.width)
        return every if self.fed is None else every[self.fed]

    @torch.inference_mode()
    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Make some rows what others are; no row is both."""
        for store in (self.own_k, self.own_v):
            for tensor in store:
                tensor[targets] = tensor[sources]

    def reserve(self) -> None:
        """Open one more column, in every row."""
        size = self.own_k[0].shape[2]
        if self.used == size:
            for store in (self.own_k, self.own_v):
                for i, old in enumerate(store):
                    # zeros: what is masked is still multiplied
                    store[i] = torch.cat(
                        [old, old.new_zeros(self.rows, old.shape[1], ROOM, old.shape[3])], 2
                    )
            shut = self.mask.new_full((self.groups, 1, 1, 1, ROOM), float("-inf"))
            self.mask = torch.cat([self.mask, shut], -1)
        self.mask[..., self.prompt_k[0].shape[2] + self.used] = 0
        self.used += 1

    def keep(self, groups: Tensor, rows: Tensor, width: int) -> None:
        """Keep the given groups (P',) and rows (P'·width,), in that order; a row may come twice.
        All are fed then."""
        if len(groups) < self.groups:
            self.prompt_k = [t.index_select(0, groups) for t in self.prompt_k]
            self.prompt_v = [t.index_select(0, groups) for t in self.prompt_v]
            self.mask = self.mask.index_select(0, groups)
            self.lengths = self.lengths.index_select(0, groups)
        self.own_k = [t.index_select(0, rows) for t in self.own_k]
        self.own_v = [t.index_select(0, rows) for t in self.own_v]
        self.groups, self.width, self.fed = len(groups), width, None


def new_cache(prompt_k: list[Tensor], prompt_v: list[Tensor], lengths: Tensor, width: int) -> Cache:
    """A wave's cache from its prompts' keys and values (P, K, L, C), nothing sampled yet."""
    groups, kv_heads, longest, size = prompt_k[0].shape
    beyond = torch.arange(longest, device=lengths.device)[None] >= lengths[:, None]
    mask = prompt_k[0].new_zeros(groups, longest).masked_fill(beyond, float("-inf"))
    none = prompt_k[0].new_empty(groups * width, kv_heads, 0, size)
    own_k, own_v = [none] * len(prompt_k), [none] * len(prompt_k)
    mask = mask.view(groups, 1, 1, 1, longest)
    return Cache(prompt_k, prompt_v, own_k, own_v, mask, lengths, groups, width)


def _attend(shape: Shape, cache: Cache, index: int, q: Tensor) -> Tensor:
    """Attention of one new token a row: q (F, H, C), already scaled, over prompt and own keys."""
    if cache.fed is not None:  # in blocks of all rows: the products of a layer are what costs
        q = q.new_zeros(cache.rows, *q.shape[1:]).index_copy_(0, cache.fed, q)
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
    mixed = mixed + from_own
    return mixed if cache.fed is None else mixed.index_select(0, cache.fed)


@torch.inference_mode()
def step(model: Llama, run: Products, caches: Sequence[Cache], ids: Tensor) -> Tensor:
    """Feed one token to each fed row, the waves' rows one after another; logits (rows, V)."""
    shape = model.shape
    for cache in caches:
        cache.reserve()
    positions = torch.cat([c.positions for c in caches])
    tables = rope_tables(shape, positions, model.embed.dtype)
    if run.chain is not None and len(ids) <= FEW:
        return _chained(model, run, run.chain, caches, model.embed[ids], tables)
    x, more = model.embed[ids], None
    for index, (layer, (qkv, o, gated, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        x, normed = run.add_norm(x, more, layer.norm_attn, shape.eps)
        if run.kernels is None:
            mixed = _mixed(shape, layer, caches, index, qkv(normed), tables)
        else:
            mixed = _compiled(shape, run.kernels, layer, caches, index, qkv(normed), tables)
        x, normed = run.add_norm(x, o(mixed), layer.norm_mlp, shape.eps)
        more = down(gated(normed))
    return run.head(run.add_norm(x, more, model.norm, shape.eps)[1])


def _sizes(caches: Sequence[Cache]) -> list[int]:
    """Fed rows of each wave."""
    return [c.rows if c.fed is None else len(c.fed) for c in caches]


def _mixed(
    shape: Shape,
    layer: Layer,
    caches: Sequence[Cache],
    index: int,
    projected: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """Attention of a layer (F, H·C), in torch; the new keys and values are stored."""
    cos, sin = tables[0][:, None], tables[1][:, None]
    cut = shape.heads + shape.kv_heads
    heads = projected.view(len(projected), -1, shape.head_dim)
    turned = positioned(heads[:, :cut], layer, shape, cos, sin)
    q = turned[:, : shape.heads] * shape.head_dim**-0.5
    sides = (q, turned[:, shape.heads :], heads[:, cut:])
    parts = zip(caches, *(side.split(_sizes(caches)) for side in sides), strict=True)
    mixed: list[Tensor] = []
    for cache, own_q, own_k, own_v in parts:
        at = slice(None) if cache.fed is None else cache.fed
        cache.own_k[index][at, :, cache.used - 1] = own_k
        cache.own_v[index][at, :, cache.used - 1] = own_v
        mixed.append(_attend(shape, cache, index, own_q))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _compiled(
    shape: Shape,
    kernels: Kernels,
    layer: Layer,
    caches: Sequence[Cache],
    index: int,
    projected: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """The same by the compiled kernels."""
    out = projected.new_empty(len(projected), shape.heads * shape.head_dim)
    for part in _waves(caches, projected, out, *tables):
        _attend_compiled(kernels, layer, index, shape.eps, *part)
    return out


def _waves(caches: Sequence[Cache], *sides: Tensor) -> list[tuple[Cache, *tuple[Tensor, ...]]]:
    """Each wave's cache and rows of the sides."""
    parts = zip(*(side.split(_sizes(caches)) for side in sides), strict=True)
    return [(cache, *part) for cache, part in zip(caches, parts, strict=True)]


def _attend_compiled(
    kernels: Kernels,
    layer: Layer,
    index: int,
    eps: float,
    cache: Cache,
    heads: Tensor,
    into: Tensor,
    cos: Tensor,
    sin: Tensor,
) -> None:
    kernels.attend(
        heads,
        into,
        (cos, sin),
        (layer.norm_q, layer.norm_k),
        (cache.prompt_k[index], cache.prompt_v[index]),
        (cache.own_k[index], cache.own_v[index]),
        cache.fed,
        cache.lengths,
        cache.used,
        eps,
        cache.shared,
    )


def _chained(
    model: Llama,
    run: Products,
    links: Chain,
    caches: Sequence[Cache],
    x: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """The layers for x (rows, D), two calls a layer; logits (rows, V)."""
    shape = model.shape
    _, normed = run.add_norm(x, None, model.layers[0].norm_attn, shape.eps)
    projected = run.layers[0][0](normed)
    mixed = x.new_empty(len(x), shape.heads * shape.head_dim)
    logits, scratch = x.new_empty(len(x), len(model.head)), links.scratch_for(x)
    waves = _waves(caches, projected, mixed, *tables)
    for index, layer in enumerate(model.layers):
        for part in waves:
            _attend_compiled(links.kernels, layer, index, shape.eps, *part)
        last = index + 1 == len(model.layers)
        links.run(index, mixed, x, scratch, logits if last else projected)
    return logits
