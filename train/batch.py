"""Pack groups into flat micro-batches in which a prompt stands once before all its completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """One prompt and the completions that continue it; `rows` says which rollout each one is."""

    prompt: list[int]
    completions: list[list[int]]
    rows: list[int]

    @property
    def tokens(self) -> int:
        """Positions this segment takes when the prompt is shared."""
        return len(self.prompt) + sum(map(len, self.completions))


@dataclass(frozen=True)
class Packed:
    """A flat micro-batch. T positions in all, N of them predicted.

    `ids`, `positions` (T,): completions restart at their prompt's length. `spans`: start and end
    of each segment. `masks`: per segment (t, t) bool, True where a query may look (its prompt and
    its own branch, up to itself), or None for a single branch, which is plain causal. `source`
    (N,): position whose hidden state predicts `target` (N,); `row`, `column` (N,): which rollout
    and which of its tokens that is.
    """

    ids: Tensor
    positions: Tensor
    spans: list[tuple[int, int]]
    masks: list[Tensor | None]
    source: Tensor
    target: Tensor
    row: Tensor
    column: Tensor


def tree_mask(prompt: int, completions: Sequence[int]) -> Tensor:
    """(t, t) bool: causal, and no completion sees a sibling."""
    branch = torch.cat(
        [torch.zeros(prompt, dtype=torch.long)]
        + [torch.full((size,), i + 1) for i, size in enumerate(completions)]
    )
    causal = torch.ones(len(branch), len(branch), dtype=torch.bool).tril()
    return causal & ((branch[None, :] == 0) | (branch[None, :] == branch[:, None]))


def pack(segments: Sequence[Segment], device: str | torch.device = "cpu") -> Packed:
    """Lay segments out one after another. Prompts must hold at least one token."""
    ids: list[int] = []
    positions: list[int] = []
    source: list[int] = []
    target: list[int] = []
    row: list[int] = []
    column: list[int] = []
    spans: list[tuple[int, int]] = []
    masks: list[Tensor | None] = []
    for segment in segments:
        start, size = len(ids), len(segment.prompt)
        ids += segment.prompt
        positions += range(size)
        for completion, which in zip(segment.completions, segment.rows, strict=True):
            first = len(ids)
            ids += completion
            positions += range(size, size + len(completion))
            if completion:
                source += [start + size - 1, *range(first, first + len(completion) - 1)]
            target += completion
            row += [which] * len(completion)
            column += range(len(completion))
        spans.append((start, len(ids)))
        lone = len(segment.completions) == 1
        mask = None if lone else tree_mask(size, [len(c) for c in segment.completions])
        masks.append(None if mask is None else mask.to(device))

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return Packed(
        ids=tensor(ids),
        positions=tensor(positions),
        spans=spans,
        masks=masks,
        source=tensor(source),
        target=tensor(target),
        row=tensor(row),
        column=tensor(column),
    )


def micro_batches(segments: Sequence[Segment], max_tokens: int) -> Iterator[list[Segment]]:
    """Consecutive segments up to `max_tokens` positions; a larger one goes alone, never cut."""
    held: list[Segment] = []
    used = 0
    for segment in segments:
        if held and used + segment.tokens > max_tokens:
            yield held
            held, used = [], 0
        held.append(segment)
        used += segment.tokens
    if held:
        yield held


def to_rows(values_N: Tensor, packed: Packed, rows: int, width: int) -> Tensor:
    """(rows, width): flat values put back by rollout and token, 0 elsewhere; differentiable."""
    out = values_N.new_zeros(rows, width)
    return out.index_put((packed.row, packed.column), values_N)
