# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""A wave: prompts that were taken up together, and what their samples have drawn so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rewards.seeds import derive_seed
from rollouts.engines.torch.decode import Cache
from rollouts.engines.torch.kept import Past
from rollouts.engines.torch.sampling import uniforms
from rollouts.trajectory import Completion, Stop

SPARE = 0.8  # rows are gathered when at most this share of them is alive
GPU_EVERY = 8  # tokens between two looks at what has ended: a look waits for the device


class Wave:
    """Groups of `width` samples, all at the same token.

    On a CPU the samples of a group that drew the same so far are one row of the cache, and only
    rows that go on are fed. On a GPU each sample has a row of its own, and nothing here waits for
    the device but `compact`, and that only every few tokens; rows that have ended are computed
    until then. A *draw* is a sample that takes a token; B of them.
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
        self.merges = cache.width == 1  # else every sample has its own row
        device = stop_ids.device
        drawn = uniforms([derive_seed(s, j) for s in seeds for j in range(width)], limit)
        self._u = drawn.to(device)
        # one row more than there are samples: draws that have ended write there
        self._ids = torch.zeros(self.total + 1, limit, dtype=torch.long, device=device)
        self._full = torch.zeros(self.total + 1, limit, device=device)
        self._narrow = torch.zeros_like(self._full)
        self._length = torch.full((self.total + 1,), limit, device=device)
        self._samples = torch.arange(self.total, device=device)  # which sample each draw is of
        self._alive = torch.ones(self.total, dtype=torch.bool, device=device)
        self.at = self._samples // (width if self.merges else 1)
        """(B,) which of the fed rows each draw is from."""
        self.done = False
        self._prompt: dict[int, Past] = {}
        self._own: dict[int, Past] = {}

    @property
    def draws(self) -> Tensor:
        """(B,) what decides each next token."""
        return self._u[self._samples, self.t]

    def record(self, token: Tensor, full: Tensor, narrow: Tensor) -> None:
        """Take one token a draw (B,), with both log-probabilities."""
        self.token = token
        place = torch.where(self._alive, self._samples, self.total)
        self._ids[place, self.t] = token
        self._full[place, self.t], self._narrow[place, self.t] = full, narrow
        ended = self._alive & torch.isin(token, self.stop_ids)
        self.t += 1
        self._length[torch.where(ended, self._samples, self.total)] = self.t
        self._alive = self._alive & ~ended
        self.done = self.t == self.limit

    def compact(self) -> None:
        """Settle which rows are fed next, and see whether any is left. `token` is then what each
        of them is fed (F,)."""
        if self.done:
            return
        if self.merges:
            self._branch()
        elif not (self._alive.is_cuda and self.t % GPU_EVERY):
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
        self.token, self.at = self.token[kept], torch.arange(len(kept), device=kept.device)

    def _branch(self) -> None:
        """Give each different token of a row a row of its own."""
        if self.saving:
            self._save((~self._alive).nonzero()[:, 0].tolist())
        alive, self._alive = self._alive, self._alive[self._alive]
        self.done = len(self._alive) == 0
        if self.done:
            return
        self._samples, at, token = self._samples[alive], self.at[alive], self.token[alive]
        high = int(token.max()) + 1
        nodes, self.at = torch.unique(at * high + token, return_inverse=True)
        self.token = nodes % high
        parents = self.rows()[nodes // high]  # rows of the cache, in order
        order = self._place(parents)
        # nodes count in the order of their rows from here on
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        self.token, self.at = self.token[order], back[self.at]

    def _place(self, parents: Tensor) -> Tensor:
        """Find a row of the cache for each node, given its parent's; the nodes in the order of
        their rows."""
        cache = self.cache
        groups, sizes = torch.unique(parents // cache.width, return_counts=True)
        width = int(sizes.max())
        small = width * len(groups) <= SPARE * cache.rows
        if width > cache.width or small:
            wide = min(2 * width, self.width) if width > cache.width else width
            start = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
            inside = torch.arange(len(parents)) - start
            group = torch.repeat_interleave(torch.arange(len(groups)), sizes)
            new = group * wide + inside
            filled = (groups * cache.width).repeat_interleave(wide)
            filled[new] = parents
            cache.keep(groups, filled, wide)
            cache.fed = None if len(new) == cache.rows else new
            return torch.arange(len(parents))
        rows = parents.tolist()
        taken, again = set(rows), [i for i in range(1, len(rows)) if rows[i] == rows[i - 1]]
        for i in again:
            first = rows[i] - rows[i] % cache.width
            free = next(r for r in range(first, first + cache.width) if r not in taken)
            rows[i] = free
            taken.add(free)
        found = torch.tensor(rows)
        if again:
            cache.copy(parents[again], found[again])
        fed, order = found.sort()
        cache.fed = None if len(fed) == cache.rows else fed
        return order

    def rows(self) -> Tensor:
        """(F,) the rows of the cache that are fed."""
        fed = self.cache.fed
        return torch.arange(self.cache.rows, device=self.at.device) if fed is None else fed

    @property
    def drawn(self) -> int:
        """Samples that take a token in each step."""
        return len(self._samples)

    @property
    def live(self) -> int:
        """Samples that go on."""
        return int(self._alive.sum())

    def left(self) -> Iterator[tuple[int, list[int], list[float], Past]]:
        """Of each row that goes on: its sample, the ids so far, what decides all its draws, and the
        keys and values of its prompt and of all ids but the last."""
        prompts, rows = self.cache.lengths.tolist(), self.rows()[self.at].tolist()
        for draw in self._alive.nonzero()[:, 0].tolist():
            sample, row = int(self._samples[draw]), rows[draw]
            group = row // self.cache.width
            prompt = _cut(self.cache.prompt_k, self.cache.prompt_v, group, prompts[group])
            own = _cut(self.cache.own_k, self.cache.own_v, row, self.t - 1)
            if self.saving:
                self._prompt.setdefault(sample // self.width, prompt)
            both = (torch.cat(pair, 2) for pair in ((prompt.k, own.k), (prompt.v, own.v)))
            yield (
                sample,
                self._ids[sample, : self.t].tolist(),
                self._u[sample].tolist(),
                Past(*both),
            )

    def ended(
        self, sample: int, ids: list[int], full: list[float], narrow: list[float], own: Past
    ) -> None:
        """Take the rest of a sample of `left`: all its ids, log-probabilities of those that were
        drawn since, keys and values of all ids but the last."""
        size = len(ids)
        new = slice(size - len(full), size)
        self._ids[sample, new] = torch.tensor(ids[new])
        self._full[sample, new] = torch.tensor(full)
        self._narrow[sample, new] = torch.tensor(narrow)
        self._length[sample] = size
        self._alive[self._samples == sample] = False
        if self.saving:
            self._own[sample] = own
        self.done = not bool(self._alive.any())

    def _save(self, draws: Sequence[int]) -> None:
        """Copy the keys and values of some draws' samples, before their rows change."""
        cache, lengths, samples = self.cache, self._length.tolist(), self._samples.tolist()
        prompts, rows = cache.lengths.tolist(), self.rows()[self.at].tolist()
        for draw in draws:
            sample, row = samples[draw], rows[draw]
            group, at, fed = row // cache.width, sample // self.width, lengths[sample] - 1
            if at not in self._prompt:
                self._prompt[at] = _cut(cache.prompt_k, cache.prompt_v, group, prompts[group])
            self._own[sample] = _cut(cache.own_k, cache.own_v, row, fed)

    def saved(self) -> list[list[Past]]:
        """The keys and values of each sample, in (group, sample) order, once `done`: of its
        prompt, which its group shares, and of what it sampled, less the last token."""
        samples = self._samples.tolist()
        self._save([draw for draw, sample in enumerate(samples) if sample not in self._own])
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


def _cut(k: list[Tensor], v: list[Tensor], row: int, length: int) -> Past:
    """The first `length` columns of one row, all layers together."""
    return Past(*(torch.stack([t[row, :, :length] for t in store]) for store in (k, v)))


def completion(
    ids: list[int], full: list[float], narrow: list[float], size: int, done: bool
) -> Completion:
    """The first `size` tokens of a row; `done`: the last of them is a stop token."""
    stop: Stop = "eos" if done else "length"
    return Completion(ids[:size], full[:size], narrow[:size], stop)
