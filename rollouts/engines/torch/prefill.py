# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Keys and values of prompts: what they begin with alike once, what is known not at all.

Tokens run in pieces of a bounded size, and so are activations, whatever the prompts' lengths.
Axis letters as in cpu_decode.py; T tokens of a piece, N tokens of it a prompt.

Finished rows are kept for the next turn of their conversation. A prompt that begins with a whole
earlier row (its prompt and all it sampled) runs only what comes after. Shorter matches are not
taken: a first turn then never depends on what ran before it, so a run that goes on after a stop
computes the same bits as one that was never stopped. The same holds of the bound: whether a row is
still here depends only on rows that came later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.llama import (
    Layer,
    Llama,
    LlamaShape,
    Products,
    rms_norm,
    rope_tables,
    split_heads,
)


@dataclass
class Prompts:
    """Keys and values of prompts, a tensor a layer (P, K, L, C), and the prompts' lengths (P,).
    The first `shared` columns are the same in all of them."""

    k: list[Tensor]
    v: list[Tensor]
    lengths: Tensor
    shared: int = 0


@dataclass(frozen=True)
class Past:
    """Keys and values (layers, K, L, C) of L tokens in a row."""

    k: Tensor
    v: Tensor

    @property
    def length(self) -> int:
        return self.k.shape[2]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.k.nbytes + self.v.nbytes


def cut(k: list[Tensor], v: list[Tensor], row: int, length: int) -> Past:
    """The first `length` columns of one row, all layers together."""
    return Past(*(torch.stack([t[row, :, :length] for t in store]) for store in (k, v)))


@dataclass(frozen=True)
class _Row:
    parts: list[Past]
    tokens: int
    size: int


def _key(ids: Sequence[int]) -> bytes:
    return blake2b(np.asarray(ids, dtype=np.int64).tobytes()).digest()


class Kept:
    """Finished rows by their ids, up to `limit` bytes; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self._rows: dict[bytes, _Row] = {}  # oldest first
        self._lengths: Counter[int] = Counter()

    def put(self, ids: Sequence[int], parts: list[Past], size: int) -> None:
        """Keep a row. `parts` hold all its tokens but the last, which was never fed; `size` is
        what they count in bytes: several rows may share a part."""
        key = _key(ids)
        self._drop(key)
        self._rows[key] = _Row(parts, len(ids), size)
        self._lengths[len(ids)] += 1
        self.size += size
        while self.size > self.limit:
            self._drop(next(iter(self._rows)))

    def take(self, prompts: Sequence[Sequence[int]]) -> list[list[Past]]:
        """What is known of each prompt, [] for nothing. Rows found here are given away."""
        keys = [self._find(prompt) for prompt in prompts]
        found = [self._rows[key].parts if key else [] for key in keys]
        for key in keys:
            if key:
                self._drop(key)
        return found

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        self._rows.clear()
        self._lengths.clear()
        self.size = 0

    def _find(self, prompt: Sequence[int]) -> bytes | None:
        """The key of the longest row that the prompt begins with."""
        data = np.asarray(prompt, dtype=np.int64)
        running, at, found = blake2b(), 0, None
        for length in sorted(self._lengths):
            if length > len(prompt):
                break
            running.update(data[at:length].tobytes())
            at, key = length, running.digest()
            found = key if key in self._rows else found
        return found

    def _drop(self, key: bytes) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self.size -= row.size
            self._lengths[row.tokens] -= 1
            self._lengths += Counter()  # without zeros


PIECE, GPU_PIECE = 2048, 16384  # tokens; a GPU wants few large operations
SHORTEST = 4  # a common beginning of fewer tokens is not worth a pass of its own


def common_length(prompts: Sequence[Sequence[int]]) -> int:
    """How many first tokens all prompts share, less what leaves each a token of its own."""
    rows = [tuple(p) for p in prompts]
    first, last = min(rows), max(rows)  # in dictionary order, so these differ first
    most = min(map(len, prompts)) - 1
    return next((i for i in range(most) if first[i] != last[i]), most)


def trunk(model: Llama, run: Products, prompts: Sequence[Sequence[int]]) -> Past | None:
    """The common beginning of several prompts, computed once; None where there is none."""
    size = common_length(prompts) if len(prompts) > 1 else 0
    if size < SHORTEST:
        return None
    _, made = prefill(model, run, [prompts[0][:size]], [[]])
    return Past(torch.cat(made.k), torch.cat(made.v))


@dataclass(frozen=True)
class _Piece:
    """Prompts first..last-1 (of a wave), each from its token `begin` to before its token `end`."""

    first: int
    last: int
    begin: list[int]
    end: list[int]


def _pieces(begin: Sequence[int], end: Sequence[int], size: int) -> Iterator[_Piece]:
    """Consecutive prompts together, up to `size` tokens; a longer prompt is cut."""
    held, used = 0, 0
    for i, (a, b) in enumerate(zip(begin, end, strict=True)):
        if used and used + b - a > size:
            yield _Piece(held, i, list(begin[held:i]), list(end[held:i]))
            held, used = i, 0
        if b - a > size:
            cuts = [*range(a, b, size), b]
            for x, y in pairwise(cuts):
                yield _Piece(i, i + 1, [x], [y])
            held, used = i + 1, 0
        else:
            used += b - a
    if used:
        yield _Piece(held, len(begin), list(begin[held:]), list(end[held:]))


@torch.inference_mode()
def prefill(
    model: Llama,
    run: Products,
    prompts: Sequence[Sequence[int]],
    past: Sequence[Sequence[Past]],
) -> tuple[Tensor, Prompts]:
    """Run what `past` does not hold of each prompt; it never holds the last token.

    Returns last-position logits (P, V), and the prompts' keys and values.
    """
    shape, device = model.shape, model.embed.device
    # attention pads the prompts of a piece to the longest one, so those of a length run together
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    prompts, past = [prompts[i] for i in order], [past[i] for i in order]
    ends = [len(p) for p in prompts]
    size = (len(prompts), shape.kv_heads, max(ends), shape.head_dim)
    # zeros: what is masked is still multiplied
    keys = [model.embed.new_zeros(size) for _ in model.layers]
    values = [model.embed.new_zeros(size) for _ in model.layers]
    begin = [_restore(keys, values, i, parts) for i, parts in enumerate(past)]
    last: list[Tensor] = []
    for piece in _pieces(begin, ends, GPU_PIECE if device.type == "cuda" else PIECE):
        last.append(_run_piece(model, run, prompts, piece, keys, values))
    lengths = torch.tensor(ends, device=device)
    hidden = torch.cat(last)
    if order != sorted(order):
        back = torch.tensor(order, device=device).argsort()
        hidden, lengths = hidden[back], lengths[back]
        for store in (keys, values):
            for index, tensor in enumerate(store):
                store[index] = tensor[back]
    logits = run.head(rms_norm(hidden, model.norm, shape.eps))
    alike = past[0] and all(parts and parts[0] is past[0][0] for parts in past)
    return logits, Prompts(keys, values, lengths, past[0][0].length if alike else 0)


def _restore(keys: list[Tensor], values: list[Tensor], row: int, parts: Sequence[Past]) -> int:
    """Copy what is known of a prompt, part after part; how many tokens that was."""
    at = 0
    for part in parts:
        for store, given in ((keys, part.k), (values, part.v)):
            for layer, t in enumerate(store):
                t[row, :, at : at + part.length] = given[layer]
        at += part.length
    return at


def _run_piece(
    model: Llama,
    run: Products,
    prompts: Sequence[Sequence[int]],
    piece: _Piece,
    keys: list[Tensor],
    values: list[Tensor],
) -> Tensor:
    """Hidden states (E, D) of the E prompts that end in a piece, at their last tokens; fills `keys`
    and `values`."""
    shape, device, dtype = model.shape, model.embed.device, model.embed.dtype
    rows = range(piece.first, piece.last)
    lines = list(zip(rows, piece.begin, piece.end, strict=True))
    flat = [t for row, a, b in lines for t in prompts[row][a:b]]
    position = torch.tensor([j for _, a, b in lines for j in range(a, b)], device=device)
    tables = rope_tables(shape, position, dtype)
    spans = torch.tensor(list(zip(piece.begin, piece.end, strict=True)))
    ended = torch.tensor([b == len(prompts[row]) for row, _, b in lines])
    last = ((spans[:, 1] - spans[:, 0]).cumsum(0) - 1)[ended].to(device)
    padding = None if _reads(run) else _padding(piece, device, dtype)
    x, more = model.embed[torch.tensor(flat, device=device)], None
    for index, (layer, (qkv, o, gated, down)) in enumerate(
        zip(model.layers, run.layers, strict=True)
    ):
        x, normed = run.add_norm(x, more, layer.norm_attn, shape.eps)
        k, v = (t[index][piece.first : piece.last] for t in (keys, values))
        if padding is None:
            assert run.kernels is not None
            norms = (layer.norm_q, layer.norm_k)
            mixed = run.kernels.read_prompts(qkv(normed), tables, norms, k, v, spans, shape.eps)
        else:
            mixed = _mixed(shape, layer, qkv(normed), tables, position, padding, k, v)
        if index + 1 == len(model.layers):  # nothing else reads what it makes of other tokens
            x, mixed = x[last], mixed[last]
        x, normed = run.add_norm(x, o(mixed), layer.norm_mlp, shape.eps)
        more = down(gated(normed))
    return x if more is None else x + more


def _reads(run: Products) -> bool:
    """Whether compiled kernels attend to prompts here."""
    return run.kernels is not None and run.kernels.multiplies


@dataclass(frozen=True)
class _Padding:
    """How the tokens of a piece lie in a block (P, N) of its prompts; `which` and `inside` (T,)
    are the place of each. `mask` is (P, 1, N, J), None where a causal one does."""

    which: Tensor
    inside: Tensor
    mask: Tensor | None
    prompts: int
    longest: int
    reach: int
    even: bool


def _padding(piece: _Piece, device: torch.device, dtype: torch.dtype) -> _Padding:
    sizes = [b - a for a, b in zip(piece.begin, piece.end, strict=True)]
    which = torch.tensor([i for i, size in enumerate(sizes) for _ in range(size)], device=device)
    inside = torch.tensor([j for size in sizes for j in range(size)], device=device)
    longest, reach = max(sizes), max(piece.end)
    mask = None if not any(piece.begin) else _mask(piece, longest, reach, device, dtype)
    return _Padding(which, inside, mask, len(sizes), longest, reach, min(sizes) == longest)


def _mixed(
    shape: LlamaShape,
    layer: Layer,
    projected: Tensor,
    tables: tuple[Tensor, Tensor],
    position: Tensor,
    padding: _Padding,
    k: Tensor,
    v: Tensor,
) -> Tensor:
    """Attention of a piece (T, H·C), in torch; `k` and `v` get the new keys and values."""
    which, inside = padding.which, padding.inside
    q, k[which, :, position], v[which, :, position] = split_heads(projected, layer, shape, tables)
    size = (padding.prompts, padding.longest, shape.heads, shape.head_dim)
    if padding.even:
        q = q.reshape(size)
    else:
        padded = q.new_zeros(size)
        padded[which, inside] = q
        q = padded
    k, v, grouped = k[:, :, : padding.reach], v[:, :, : padding.reach], shape.repeat > 1
    if grouped and q.is_cuda and not (padding.mask is None and q.dtype == torch.bfloat16):
        # flash attention alone repeats heads itself, and takes neither masks nor float32; what no
        # such kernel takes, torch computes with all scores in memory
        k, v = (t.repeat_interleave(shape.repeat, 1) for t in (k, v))
        grouped = False
    mixed = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k,
        v,
        attn_mask=padding.mask,
        is_causal=padding.mask is None,
        enable_gqa=grouped,
    ).transpose(1, 2)
    total = len(projected)
    return mixed.reshape(total, -1) if padding.even else mixed[which, inside].view(total, -1)


def _mask(
    piece: _Piece, longest: int, reach: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """(P, 1, N, J): 0 where a token sees a key, which is up to itself; -inf elsewhere."""
    begin = torch.tensor(piece.begin, device=device)
    query = begin[:, None, None, None] + torch.arange(longest, device=device)[:, None]
    hidden = torch.arange(reach, device=device) > query
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))
