# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Decoding on a GPU: one token for every row at once, repeated from a recording.

Attention of a sampled token has two parts: the prompt's keys and values, stored once a group and
met by all its samples in one batched product, and the sample's own, in a buffer of its own row.
One softmax runs over both. On a CPU cpu_decode.py does this for rows that are not equally far. Axis
letters: P groups (prompts), W rows a group, R = P·W rows, K key/value heads, H query heads,
Q = H/K, C head size, L prompt length, S room for sampled.

A pass of a small model is some thousand short operations, and a GPU does each faster than Python
asks for it. A CUDA graph asks for all of them at once. What it has recorded holds for the same
tensors only, so it is made anew where a wave begins or ends, loses rows or needs more columns.
`ASSAY_GRAPHS=off` does without.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.task import derive_seed
from rollouts.engines.torch.llama import (
    Layer,
    Llama,
    LlamaShape,
    Products,
    rope_tables,
    split_heads,
)
from rollouts.engines.torch.prefill import Past, Prompts, cut
from rollouts.engines.torch.sampling import completion, draw, uniforms
from rollouts.trajectory import Completion, Sampling

# Own keys grow by this many columns, the unused ones masked. A graph is recorded anew each time.
ROOM = 64


SPARE = 0.8  # rows are gathered when at most this share of them is alive


GPU_EVERY = 8  # tokens between two looks at what has ended: a look waits for the device


LEAST = 4  # passes in a row that are worth a recording


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


def _attend(shape: LlamaShape, cache: Cache, index: int, q: Tensor) -> Tensor:
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
    shape: LlamaShape,
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


class Wave:
    """Groups of `width` samples, all at the same token, each with a row of its own.

    Nothing here waits for the device but `settle`, and that only every few tokens; rows that have
    ended are computed until then. `take` changes tensors in place and nothing else: see `Passes`.
    (On a CPU: `Branches`.)
    """

    def __init__(
        self,
        cache: Cache,
        seeds: Sequence[int],
        width: int,
        limit: int,
        stop_ids: Tensor,
        saving: bool,
    ) -> None:
        self.saving = saving
        self.cache, self.limit, self.stop_ids = cache, limit, stop_ids
        self.width, self.total, self.t = width, len(seeds) * width, 0
        device = stop_ids.device
        drawn = uniforms([derive_seed(s, j) for s in seeds for j in range(width)], limit)
        self._u = drawn.to(device)
        # one row more than there are samples: draws that have ended write there
        self._ids = torch.zeros(self.total + 1, limit, dtype=torch.long, device=device)
        self._full = torch.zeros(self.total + 1, limit, device=device)
        self._narrow = torch.zeros_like(self._full)
        self._length = torch.full((self.total + 1,), limit, device=device)
        self._samples = torch.arange(self.total, device=device)  # which sample each row is of
        self._alive = torch.ones(self.total, dtype=torch.bool, device=device)
        self.token = torch.zeros(self.total, dtype=torch.long, device=device)
        self._next = torch.zeros(1, dtype=torch.long, device=device)  # `t`, as the device counts
        self.done = False
        self._prompt: dict[int, Past] = {}
        self._own: dict[int, Past] = {}

    @property
    def lines(self) -> int:
        """Rows of logits that it wants."""
        return len(self._samples)

    @property
    def drawn(self) -> int:
        """Samples that take a token in each step."""
        return len(self._samples)

    def asked(self) -> tuple[Tensor, Tensor]:
        """What decides each next token (B,), and which line of the logits it is from."""
        lines = torch.arange(self.lines, device=self._u.device)
        return self._u[self._samples, self._next.expand(self.lines)], lines

    @torch.inference_mode()
    def take(self, token: Tensor, full: Tensor, narrow: Tensor) -> None:
        """One token a row (B,), with both log-probabilities."""
        place = torch.where(self._alive, self._samples, self.total)
        at = self._next.expand(self.lines)
        for store, values in ((self._ids, token), (self._full, full), (self._narrow, narrow)):
            store.index_put_((place, at), values)
        ended = self._alive & (token[:, None] == self.stop_ids).any(-1)
        self._next += 1
        own = torch.where(ended, self._samples, self.total)
        self._length.index_put_((own,), self._next.expand(self.lines))
        self._alive &= ~ended
        self.token.copy_(token)

    @property
    def ahead(self) -> int:
        """How many tokens can be taken before `settle` has to look at what has ended."""
        every = GPU_EVERY if self._alive.is_cuda else 1
        return min(self.limit - self.t, every - self.t % every)

    def settle(self, tokens: int) -> None:
        """After so many tokens, at most `ahead`: count them, and drop rows that have ended."""
        self.t += tokens
        self.done = self.t == self.limit
        if not (self.done or (self._alive.is_cuda and self.t % GPU_EVERY)):
            self._drop()

    def _drop(self) -> None:
        """Drop finished rows if that is worth a copy. Groups keep equal width, so a few of them may
        stay on."""
        live = int(self._alive.sum())
        self.done = live == 0
        if self.done or live > SPARE * len(self._samples):
            return
        grid = self._alive.view(self.cache.groups, self.cache.width)
        per_group = grid.sum(1)
        width = int(per_group.max())
        groups = per_group.nonzero()[:, 0]
        if width * len(groups) >= len(self._samples):
            return
        # live rows first, in their old order; then enough finished ones to fill the width
        order = torch.argsort((~grid[groups]).long(), dim=1, stable=True)[:, :width]
        kept = (groups[:, None] * self.cache.width + order).flatten()
        if self.saving:
            stay = set(kept.tolist())
            self._save([row for row in range(len(self._samples)) if row not in stay])
        self.cache.keep(groups, kept, width)
        self._samples, self._alive = self._samples[kept], self._alive[kept]
        self.token = self.token[kept]

    def _save(self, rows: Sequence[int]) -> None:
        """Copy the keys and values of some rows' samples, before their rows change."""
        cache, lengths, samples = self.cache, self._length.tolist(), self._samples.tolist()
        prompts = cache.lengths.tolist()
        for row in rows:
            sample = samples[row]
            group, at, fed = row // cache.width, sample // self.width, lengths[sample] - 1
            if at not in self._prompt:
                self._prompt[at] = cut(cache.prompt_k, cache.prompt_v, group, prompts[group])
            self._own[sample] = cut(cache.own_k, cache.own_v, row, fed)

    def saved(self) -> list[list[Past]]:
        """The keys and values of each sample, in (group, sample) order, once `done`: of its
        prompt, which its group shares, and of what it sampled, less the last token."""
        samples = self._samples.tolist()
        self._save([row for row, sample in enumerate(samples) if sample not in self._own])
        return [[self._prompt[i // self.width], self._own[i]] for i in range(self.total)]

    def completions(self) -> list[list[Completion]]:
        """What the samples of each group are, in order, once `done`."""
        length = self._length[: self.total]
        last = self._ids[torch.arange(self.total, device=length.device), length - 1]
        columns = (
            self._ids[: self.total].tolist(),
            self._full.tolist(),
            self._narrow.tolist(),
            length.tolist(),
            torch.isin(last, self.stop_ids).tolist(),
        )
        rows = [completion(*row) for row in zip(*columns, strict=False)]
        return [rows[at : at + self.width] for at in range(0, self.total, self.width)]


class Passes:
    """Next tokens of the waves of one call, on a GPU by a graph."""

    def __init__(self, model: Llama, products: Products, sampling: Sampling) -> None:
        self.model, self.products, self.sampling = model, products, sampling
        off = os.environ.get("ASSAY_GRAPHS", "").lower() in ("off", "0", "no", "false")
        self._records = model.embed.is_cuda and not off
        self._graph: torch.cuda.CUDAGraph | None = None
        self._of: list[tuple[Wave, int]] = []

    def run(self, waves: Sequence[Wave]) -> None:
        """As many tokens for all waves as can be drawn before one of them has to settle."""
        for wave in waves:
            if not wave.cache.room:
                wave.cache.grow()
        count = min(min(wave.ahead, wave.cache.room) for wave in waves)
        left = count
        if self._records and not self._holds(waves) and count >= LEAST:
            self._once(waves)  # loads what a recording may not
            left -= 1
            self._record(waves)
        for _ in range(left):
            if self._graph is not None and self._holds(waves):
                self._graph.replay()
            else:
                self._once(waves)
        for wave in waves:
            wave.cache.used += count
            wave.settle(count)

    def _once(self, waves: Sequence[Wave]) -> None:
        ids = torch.cat([w.token for w in waves])
        logits = step(self.model, self.products, [w.cache for w in waves], ids)
        draw(waves, logits, self.sampling, self.products.kernels)

    def _holds(self, waves: Sequence[Wave]) -> bool:
        """Whether the recording is of these waves, with the tensors that they have now."""
        return self._of == [(wave, wave.cache.moved) for wave in waves]

    def _record(self, waves: Sequence[Wave]) -> None:
        """Record one pass; nothing is computed. All recordings of a call use the same memory, so
        the last one is kept until there is a new one."""
        graph = torch.cuda.CUDAGraph()
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            pool = None if self._graph is None else self._graph.pool()
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._once(waves)
            finally:
                graph.capture_end()
        here.wait_stream(aside)
        self._graph, self._of = graph, [(wave, wave.cache.moved) for wave in waves]
