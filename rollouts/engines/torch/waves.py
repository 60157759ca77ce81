# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""A wave on a GPU: prompts that were taken up together, and what their samples have drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from assay.seeds import derive_seed
from rollouts.engines.torch.decode import Cache
from rollouts.engines.torch.kept import Past
from rollouts.engines.torch.sampling import uniforms
from rollouts.trajectory import NO_NUMBERS, Completion, Stop

SPARE = 0.8  # rows are gathered when at most this share of them is alive
GPU_EVERY = 8  # tokens between two looks at what has ended: a look waits for the device


class Wave:
    """Groups of `width` samples, all at the same token, each with a row of its own.

    Nothing here waits for the device but `settle`, and that only every few tokens; rows that have
    ended are computed until then. `take` changes tensors in place and nothing else: see graph.py.
    (On a CPU: branches.py.)
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


def cut(k: list[Tensor], v: list[Tensor], row: int, length: int) -> Past:
    """The first `length` columns of one row, all layers together."""
    return Past(*(torch.stack([t[row, :, :length] for t in store]) for store in (k, v)))


def completion(
    ids: list[int], full: list[float], narrow: list[float], size: int, done: bool
) -> Completion:
    """The first `size` tokens of a row; `done`: the last of them is a stop token. Tokens drawn from
    logits that are no numbers are no answer."""
    stop: Stop = "eos" if done else "length"
    failure = NO_NUMBERS if any(map(math.isnan, full[:size])) else None
    return Completion(ids[:size], full[:size], narrow[:size], stop, failure)
