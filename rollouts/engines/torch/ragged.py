# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Decoding on a CPU: a few tokens for every row, and rows that are not equally far.

Products run over the tokens of all rows at once. Attention has two parts: the prompt's keys and
values, which its rows share, and those of a row's own tokens. One softmax runs over both. Axis
letters: P prompts, R rows there is room for, F of them fed, N tokens a row, T tokens of all, K
key/value heads, H query heads, Q = H/K, C head size, L prompt length, S room for sampled tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from rollouts.engines.torch.bindings import Kernels
from rollouts.engines.torch.chain import FEW, Chain
from rollouts.engines.torch.decode import Products, Prompts
from rollouts.engines.torch.llama import Layer, Llama, Shape, rope_tables, split_heads

ROOM = 32  # own keys grow by a half, and by so many columns at least


class Store:
    """Keys and values of a wave: of its prompts, and of what its rows sampled, (R, K, S, C) a
    layer."""

    def __init__(self, prompts: Prompts) -> None:
        prompt_rows, kv_heads, _, size = prompts.k[0].shape
        none = prompts.k[0].new_zeros(prompt_rows, kv_heads, 0, size)
        self.prompts, self.rows, self.columns = prompts, prompt_rows, 0
        self.lengths: list[int] = prompts.lengths.tolist()
        self.own_k, self.own_v = [none] * len(prompts.k), [none] * len(prompts.k)

    def make_room(self, rows: int, columns: int) -> None:
        """Have at least these rows and columns. What is new is zero: what is masked is multiplied
        all the same."""
        if rows <= self.rows and columns <= self.columns:
            return
        if columns > self.columns:
            least = max(columns, self.columns + max(ROOM, self.columns // 2))
            columns = -(-least // ROOM) * ROOM
        size = max(rows, self.rows), max(columns, self.columns)
        for side in (self.own_k, self.own_v):
            for index, old in enumerate(side):
                new = old.new_zeros(size[0], old.shape[1], size[1], old.shape[3])
                new[: self.rows, :, : self.columns] = old
                side[index] = new
        self.rows, self.columns = size

    def copy(self, sources: Sequence[int], targets: Sequence[int], columns: int) -> None:
        """Let rows have the first columns of others. No row is both a source and a target."""
        for side in (self.own_k, self.own_v):
            for tensor in side:
                tensor[targets, :, :columns] = tensor[sources, :, :columns]


@dataclass(frozen=True)
class Fed:
    """The rows of a wave that are fed: (prompt, row of the store, its columns so far, new tokens)
    each, a prompt's rows one after another; and all their tokens."""

    store: Store
    rows: list[tuple[int, int, int, int]]
    ids: list[int]

    def places(self) -> list[int]:
        """(T,) where each token stands in its text."""
        lengths = self.store.lengths
        starts = [(lengths[prompt] + filled, tokens) for prompt, _, filled, tokens in self.rows]
        return [start + t for start, tokens in starts for t in range(tokens)]


@torch.inference_mode()
def feed(model: Llama, run: Products, fed: Sequence[Fed]) -> Tensor:
    """Logits (T, V) after each token; their keys and values are stored."""
    shape = model.shape
    ids = torch.tensor([token for part in fed for token in part.ids])
    at = torch.tensor([place for part in fed for place in part.places()])
    tables = rope_tables(shape, at, model.embed.dtype)
    x, more = model.embed[ids], None
    if run.chain is not None and len(ids) <= FEW:
        return _chained(model, run, run.chain, fed, x, tables)
    plans = [torch.tensor(part.rows) for part in fed]
    blocks = [_block(part, x.dtype) for part in fed] if run.kernels is None else []
    for index, (layer, (qkv, o, gated, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        x, normed = run.add_norm(x, more, layer.norm_attn, shape.eps)
        projected = qkv(normed)
        if run.kernels is None:
            mixed = attend(shape, layer, index, fed, blocks, projected, tables)
        else:
            mixed = projected.new_empty(len(x), shape.heads * shape.head_dim)
            for part in _waves(fed, plans, projected, mixed, *tables):
                _attend_compiled(run.kernels, layer, index, shape.eps, *part)
        x, normed = run.add_norm(x, o(mixed), layer.norm_mlp, shape.eps)
        more = down(gated(normed))
    return run.head(run.add_norm(x, more, model.norm, shape.eps)[1])


def _chained(
    model: Llama,
    run: Products,
    links: Chain,
    fed: Sequence[Fed],
    x: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """The layers for x (T, D), two calls a layer; logits (T, V)."""
    shape = model.shape
    _, normed = run.add_norm(x, None, model.layers[0].norm_attn, shape.eps)
    projected = run.layers[0][0](normed)
    mixed = x.new_empty(len(x), shape.heads * shape.head_dim)
    logits, scratch = x.new_empty(len(x), len(model.head)), links.scratch_for(x)
    plans = [torch.tensor(part.rows) for part in fed]
    waves = _waves(fed, plans, projected, mixed, *tables)
    for index, layer in enumerate(model.layers):
        for part in waves:
            _attend_compiled(links.kernels, layer, index, shape.eps, *part)
        last = index + 1 == len(model.layers)
        links.run(index, mixed, x, scratch, logits if last else projected)
    return logits


def _waves(
    fed: Sequence[Fed], plans: Sequence[Tensor], *sides: Tensor
) -> list[tuple[Store, Tensor, *tuple[Tensor, ...]]]:
    """Each wave's store, rows and part of the sides (T, …)."""
    parts = zip(*(side.split([len(part.ids) for part in fed]) for side in sides), strict=True)
    whole = zip(fed, plans, parts, strict=True)
    return [(part.store, plan, *sides) for part, plan, sides in whole]


def _attend_compiled(
    kernels: Kernels,
    layer: Layer,
    index: int,
    eps: float,
    store: Store,
    rows: Tensor,
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
        (store.prompts.k[index], store.prompts.v[index]),
        (store.own_k[index], store.own_v[index]),
        rows,
        store.prompts.lengths,
        eps,
        store.prompts.shared,
    )


@dataclass(frozen=True)
class Block:
    """How the fed tokens of a wave lie in a block (P', W, N): the prompts that have fed rows, as
    many rows of each, as many tokens of each row. What is too much is computed and left."""

    sizes: tuple[int, int, int]
    prompts: Tensor  # (P',)
    rows: Tensor  # (P'·W,) rows of the store
    inside: Tensor  # (T,) the place of each token in the flat block
    row: Tensor  # (T,) where in the store a token's keys and values go
    column: Tensor  # (T,)
    reach: int  # columns of the store
    mask: Tensor  # (P', 1, W, N, 1, L + S), 0 or -inf


def _block(part: Fed, dtype: torch.dtype) -> Block:
    """The block of a wave's fed tokens."""
    groups = [(prompt, list(rows)) for prompt, rows in groupby(part.rows, lambda row: row[0])]
    wide, most = max(len(rows) for _, rows in groups), max(row[3] for row in part.rows)
    sizes = (len(groups), wide, most)
    longest = part.store.prompts.k[0].shape[2]
    reach = max(filled + tokens for *_, filled, tokens in part.rows)
    places = torch.zeros(len(groups), wide, dtype=torch.long)
    seen = torch.full(sizes, reach)
    inside: list[int] = []
    column: list[int] = []
    for at, (_, rows) in enumerate(groups):
        for w, (_, place, filled, tokens) in enumerate(rows):
            places[at, w] = place
            seen[at, w, :tokens] = filled + 1 + torch.arange(tokens)
            inside += range((at * wide + w) * most, (at * wide + w) * most + tokens)
            column += range(filled, filled + tokens)
    lengths = torch.tensor([part.store.lengths[prompt] for prompt, _ in groups])
    beyond = (torch.arange(longest) >= lengths[:, None])[:, None, None].expand(*sizes, -1)
    later = torch.arange(reach) >= seen[..., None]
    hidden = torch.cat([beyond, later], -1)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    row = [place for _, place, _, tokens in part.rows for _ in range(tokens)]
    return Block(
        sizes,
        torch.tensor([prompt for prompt, _ in groups]),
        places.flatten(),
        torch.tensor(inside),
        torch.tensor(row),
        torch.tensor(column),
        reach,
        mask[:, None, :, :, None],
    )


def attend(
    shape: Shape,
    layer: Layer,
    index: int,
    fed: Sequence[Fed],
    blocks: Sequence[Block],
    projected: Tensor,
    tables: tuple[Tensor, Tensor],
) -> Tensor:
    """Attention of a layer (T, H·C), in torch; the new keys and values are stored."""
    q, k, v = split_heads(projected, layer, shape, tables)
    sides = (q * shape.head_dim**-0.5, k, v)
    parts = zip(*(side.split([len(part.ids) for part in fed]) for side in sides), strict=True)
    mixed: list[Tensor] = []
    for part, block, (own_q, own_k, own_v) in zip(fed, blocks, parts, strict=True):
        part.store.own_k[index][block.row, :, block.column] = own_k
        part.store.own_v[index][block.row, :, block.column] = own_v
        mixed.append(_attend(shape, part.store, block, index, own_q))
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _attend(shape: Shape, store: Store, block: Block, index: int, q: Tensor) -> Tensor:
    """Attention of q (T, H, C), already scaled, over prompt and own keys."""
    (p, w, n), k, g, c = block.sizes, shape.kv_heads, shape.repeat, shape.head_dim
    padded = q.new_zeros(p * w * n, shape.heads, c).index_copy_(0, block.inside, q)
    asked = padded.view(p, w, n, k, g, c)
    prompt_k, prompt_v = (
        (t if p == len(t) else t.index_select(0, block.prompts)).flatten(0, 1)
        for t in (store.prompts.k[index], store.prompts.v[index])
    )
    own_k, own_v = (
        t[:, :, : block.reach].index_select(0, block.rows).flatten(0, 1)
        for t in (store.own_k[index], store.own_v[index])
    )
    size = prompt_k.shape[1]
    of_prompt = asked.permute(0, 3, 1, 2, 4, 5).reshape(p * k, w * n * g, c)
    of_row = asked.permute(0, 1, 3, 2, 4, 5).reshape(p * w * k, n * g, c)
    on_prompt = torch.bmm(of_prompt, prompt_k.transpose(1, 2)).view(p, k, w, n, g, size)
    on_own = torch.bmm(of_row, own_k.transpose(1, 2)).view(p, w, k, n, g, block.reach)
    scores = torch.cat([on_prompt, on_own.transpose(1, 2)], -1)
    share = scores.add_(block.mask).softmax(-1)
    from_prompt = torch.bmm(share[..., :size].reshape(p * k, w * n * g, size), prompt_v)
    own_share = share[..., size:].transpose(1, 2).reshape(p * w * k, n * g, block.reach)
    from_own = torch.bmm(own_share, own_v).view(p, w, k, n, g, c).transpose(2, 3)
    mixed = from_prompt.view(p, k, w, n, g, c).permute(0, 2, 3, 1, 4, 5) + from_own
    return mixed.reshape(p * w * n, k * g * c).index_select(0, block.inside)
