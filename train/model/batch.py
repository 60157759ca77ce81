"""Pack groups into flat micro-batches in which a prompt stands once before all its completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """One prompt and the completions that continue it; `rows` says which rollout each one is.

    `masks`, one a completion, are 1 on tokens the model wrote and 0 on what tools put between
    them: those are read, but carry no loss. None: the model wrote everything.
    """

    prompt: list[int]
    completions: list[list[int]]
    rows: list[int]
    masks: list[list[int]] | None = None

    @property
    def tokens(self) -> int:
        """Positions this segment takes when the prompt is shared."""
        return len(self.prompt) + sum(map(len, self.completions))


@dataclass(frozen=True)
class Packed:
    """A flat micro-batch: T positions, N of them predicted, S stems, B branches.

    A stem is what starts a sequence: a prompt, together with its completion if it has only one.
    A branch is one of several completions of a stem; it looks at the whole stem and at itself,
    never at a sibling. Attention runs on padded blocks of stems (S, P) and branches (B, C):

    `ids`, `positions` (T,): branches restart at their prompt's length. `stems`: flat positions
    (S, P); `stem_mask` (S, P, P) additive, 0 or -inf. `branches` (B, C), `stem_of` (B,),
    `branch_mask` (B, C, P + C). `place` (T,): where each flat position sits in the stems' and
    branches' blocks laid out one after the other. `source` (N,): position whose hidden state
    predicts `target` (N,); `row`, `column` (N,): which rollout and which of the tokens that its
    model wrote that is. `spans`: rollout → (prompt's start, its end, completion's start, its end).
    """

    ids: Tensor
    positions: Tensor
    stems: Tensor
    stem_mask: Tensor
    branches: Tensor
    stem_of: Tensor
    branch_mask: Tensor
    place: Tensor
    source: Tensor
    target: Tensor
    row: Tensor
    column: Tensor
    spans: dict[int, tuple[int, int, int, int]]


def pack(segments: Sequence[Segment], device: str | torch.device = "cpu") -> Packed:
    """Lay segments out one after another. Prompts must hold at least one token."""
    ids: list[int] = []
    positions: list[int] = []
    source: list[int] = []
    target: list[int] = []
    row: list[int] = []
    column: list[int] = []
    stems: list[range] = []
    branches: list[range] = []
    stem_of: list[int] = []
    spans: dict[int, tuple[int, int, int, int]] = {}
    for segment in segments:
        start, size = len(ids), len(segment.prompt)
        ids += segment.prompt
        positions += range(size)
        masks = segment.masks or [[1] * len(c) for c in segment.completions]
        for completion, which, mask in zip(segment.completions, segment.rows, masks, strict=True):
            first = len(ids)
            spans[which] = (start, start + size, first, first + len(completion))
            ids += completion
            positions += range(size, size + len(completion))
            before = [start + size - 1, *range(first, first + len(completion) - 1)]
            scored = [i for i, m in enumerate(mask) if m]
            source += [before[i] for i in scored]
            target += [completion[i] for i in scored]
            row += [which] * len(scored)
            column += range(len(scored))
            if len(segment.completions) > 1:
                branches.append(range(first, len(ids)))
                stem_of.append(len(stems))
        alone = len(segment.completions) == 1
        stems.append(range(start, len(ids) if alone else start + size))

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    stem_block, stem_len, branch_block, branch_len = *_block(stems), *_block(branches)
    stem_mask = _causal(stem_len, stem_block.shape[1])
    seen = _fill_mask(stem_len[tensor(stem_of).cpu()], stem_block.shape[1])
    own = _causal(branch_len, branch_block.shape[1])
    reach = seen[:, None, :].expand(-1, own.shape[1], -1)
    return Packed(
        ids=tensor(ids),
        positions=tensor(positions),
        stems=stem_block.to(device),
        stem_mask=stem_mask.to(device),
        branches=branch_block.to(device),
        stem_of=tensor(stem_of),
        branch_mask=torch.cat([reach, own], 2).to(device),
        place=_place(len(ids), stem_block, stem_len, branch_block, branch_len).to(device),
        source=tensor(source),
        target=tensor(target),
        row=tensor(row),
        column=tensor(column),
        spans=spans,
    )


def _block(spans: Sequence[range]) -> tuple[Tensor, Tensor]:
    """(rows, width) flat positions padded with 0, and the lengths (rows,)."""
    lengths = torch.tensor([len(s) for s in spans], dtype=torch.long)
    block = torch.zeros(len(spans), max(map(len, spans), default=0), dtype=torch.long)
    for i, span in enumerate(spans):
        block[i, : len(span)] = torch.arange(span.start, span.stop)
    return block, lengths


def _fill_mask(lengths: Tensor, width: int) -> Tensor:
    """(rows, width): 0 inside each row's length, -inf beyond."""
    beyond = torch.arange(width)[None, :] >= lengths[:, None]
    return torch.zeros(len(lengths), width).masked_fill(beyond, float("-inf"))


def _causal(lengths: Tensor, width: int) -> Tensor:
    """(rows, width, width): a query sees itself and what came before it.

    Padded queries see their row's earlier positions too: their values are never read, and a row
    of nothing but -inf would turn into NaN.
    """
    future = torch.ones(width, width, dtype=torch.bool).triu(1)
    mask = torch.zeros(width, width).masked_fill(future, float("-inf"))
    return mask.expand(len(lengths), width, width)


def _place(
    total: int, stems: Tensor, stem_len: Tensor, branches: Tensor, branch_len: Tensor
) -> Tensor:
    """(T,): index of each flat position in cat(stems.flatten(), branches.flatten())."""
    place = torch.zeros(total, dtype=torch.long)
    base = 0
    for block, lengths in ((stems, stem_len), (branches, branch_len)):
        inside = torch.arange(block.shape[1])[None, :] < lengths[:, None]
        place[block[inside]] = inside.flatten().nonzero()[:, 0] + base
        base += block.numel()
    return place


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
