# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""A step's scored rollouts with their advantages, and how they are packed into flat micro-batches
in which a prompt stands once before all its completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs.training import GrpoConfig
from rewards.task import Score, Task
from rollouts.record import to_json
from rollouts.trajectory import Trajectory, completion_ids
from train.model.loss import centre, overlong_penalty, spread
from train.model.starts import GOLD_STEPS

Groups = list[list[Trajectory]]  # P prompts, G rollouts each


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
        """Positions this segment takes: the prompt once, and each different completion once."""
        return len(self.prompt) + sum(map(len, set(map(tuple, self.completions))))


@dataclass(frozen=True)
class Packed:
    """A flat micro-batch: T positions, U of them predicted, S stems, B branches.

    A stem is what starts a sequence: a prompt, together with its completion if it has only one.
    Rollouts with the same completion share it: N tokens of rollouts are U tokens here.
    A branch is one of several completions of a stem; it looks at the whole stem and at itself,
    never at a sibling. Attention runs on padded blocks of stems (S, P) and branches (B, C):

    `ids`, `positions` (T,): branches restart at their prompt's length. `stems`: flat positions
    (S, P); `stem_mask` (S, P, P) additive, 0 or -inf. `branches` (B, C), `stem_of` (B,),
    `branch_mask` (B, C, P + C). `place` (T,): where each flat position sits in the stems' and
    branches' blocks laid out one after the other. `source` (U,): position whose hidden state
    predicts `target` (U,). `expand` (N,): which of the U each token of a rollout is; `row`,
    `column` (N,): which rollout, and which of the tokens that its model wrote. `spans`: rollout →
    (prompt's start, its end, completion's start, its end).
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
    expand: Tensor
    row: Tensor
    column: Tensor
    spans: dict[int, tuple[int, int, int, int]]


def pack(segments: Sequence[Segment], device: str | torch.device = "cpu") -> Packed:
    """Lay segments out one after another. Prompts must hold at least one token."""
    ids: list[int] = []
    positions: list[int] = []
    source: dict[int, int] = {}  # place of a predicted token → the position before it
    learned: list[int] = []  # such a place for each token of a rollout
    row, column = list[int](), list[int]()
    stems, branches = list[range](), list[range]()
    stem_of: list[int] = []
    spans: dict[int, tuple[int, int, int, int]] = {}
    for segment in segments:
        start, size = len(ids), len(segment.prompt)
        ids += segment.prompt
        positions += range(size)
        begun: dict[tuple[int, ...], int] = {}  # completion → its place
        masks = segment.masks or [[1] * len(c) for c in segment.completions]
        for completion, which, mask in zip(segment.completions, segment.rows, masks, strict=True):
            first = begun.setdefault(tuple(completion), len(ids))
            spans[which] = (start, start + size, first, first + len(completion))
            if first == len(ids):
                ids += completion
                positions += range(size, size + len(completion))
            scored = [i for i, m in enumerate(mask) if m]
            source |= {first + i: (first + i if i else start + size) - 1 for i in scored}
            learned += [first + i for i in scored]
            row += [which] * len(scored)
            column += range(len(scored))
        alone = len(begun) == 1
        stems.append(range(start, len(ids) if alone else start + size))
        if not alone:
            branches += [range(first, first + len(c)) for c, first in begun.items()]
            stem_of += [len(stems) - 1] * len(begun)

    unit = {place: u for u, place in enumerate(source)}

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
        source=tensor(list(source.values())),
        target=tensor([ids[place] for place in source]),
        expand=tensor([unit[place] for place in learned]),
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


# --- the scored rollouts of a step --------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Scored rollouts of one step; `scores`, `groups` and both tensors align."""

    tasks: Sequence[Task]
    groups: Groups
    scores: list[list[Score]]
    adv_PG: Tensor

    valid_PG: Tensor
    """False where a rollout has no outcome (infrastructure): no advantage, and no part in means."""

    used_PG: Tensor
    """The rewards that the advantages are made of: as scored, less what `rl.overlong` takes."""

    rows: Sequence[int] = ()
    """Where the tasks stand among all; P."""


def batch_of(
    tasks: Sequence[Task],
    groups: Groups,
    scores: list[list[Score]],
    config: GrpoConfig,
    rows: Sequence[int] = (),
) -> Batch:
    """The rollouts with their advantages.

    What `rl.overlong` does to answers that were cut off follows DAPO (Yu et al. 2025, arXiv
    2503.14476, section 3.4): `mask` takes their advantage and leaves them in the group's mean,
    `soft` takes from the reward. The score itself is not changed.
    """
    valid = torch.tensor([[s.outcome is not None for s in row] for row in scores])
    rewards = torch.tensor([[s.reward or 0.0 for s in row] for row in scores], dtype=torch.float32)
    if config.overlong == "soft":
        rewards = rewards + length_penalty(tasks, groups, config)
    adv = centre(rewards, valid)
    if config.divide_by_std:
        adv = adv / (spread(rewards, valid) + 1e-6)
    if config.overlong == "mask":
        adv = adv.masked_fill(torch.tensor(cuts_of(groups)), 0.0)
    return Batch(tasks, groups, scores, adv, valid, rewards, rows)


def length_penalty(tasks: Sequence[Task], groups: Groups, config: GrpoConfig) -> Tensor:
    """`rl.overlong=soft`, (P, G) in [−1, 0]. The limit is that of a message, with tools that of the
    whole episode; whatever was cut off has reached it."""
    most_P = [config.max_length if task.tools else config.max_new_tokens for task in tasks]
    used_PG = [
        [most if t.stop == "length" else len(t.ids) if task.tools else t.sampled for t in group]
        for task, most, group in zip(tasks, most_P, groups, strict=True)
    ]
    buffer_P = [config.overlong_buffer or max(1, most // 5) for most in most_P]
    most_P1, buffer_P1 = (torch.tensor(x)[:, None] for x in (most_P, buffer_P))
    return overlong_penalty(torch.tensor(used_PG), most_P1, buffer_P1)


def joined(one: Batch, other: Batch) -> Batch:
    """The groups of both."""
    return Batch(
        [*one.tasks, *other.tasks],
        [*one.groups, *other.groups],
        [*one.scores, *other.scores],
        torch.cat([one.adv_PG, other.adv_PG]),
        torch.cat([one.valid_PG, other.valid_PG]),
        torch.cat([one.used_PG, other.used_PG]),
        [*one.rows, *other.rows],
    )


def part(batch: Batch, places: Sequence[int]) -> Batch:
    """The groups at `places`, in that order."""
    index = torch.tensor(places)
    return Batch(
        [batch.tasks[p] for p in places],
        [batch.groups[p] for p in places],
        [batch.scores[p] for p in places],
        batch.adv_PG[index],
        batch.valid_PG[index],
        batch.used_PG[index],
        [batch.rows[p] for p in places],
    )


def segments_of(batch: Batch, prompts: Sequence[int], flat_too: bool = False) -> list[Segment]:
    """Rollouts of the given prompts that teach something, as segments; rows number P·G rollouts.

    Those are the ones with an advantage; with `flat_too` all valid ones, for terms of the loss that
    need no advantage (KL).
    """
    n = batch.adv_PG.shape[1]
    teaches_PG: list[list[bool]] = (batch.valid_PG if flat_too else batch.adv_PG != 0).tolist()
    segments: list[Segment] = []
    for p in prompts:
        parts = {g: completion_ids(t) for g, t in enumerate(batch.groups[p])}
        kept = [g for g in range(n) if teaches_PG[p][g] and parts[g][1]]
        # environments may open differently per sample; only identical prompts share one
        for prompt in dict.fromkeys(tuple(parts[g][0]) for g in kept):
            own = [g for g in kept if tuple(parts[g][0]) == prompt]
            completions, masks = ([parts[g][i] for g in own] for i in (1, 2))
            segments.append(Segment(list(prompt), completions, [p * n + g for g in own], masks))
    return segments


def lengths_of(groups: Groups) -> list[list[int]]:
    """Tokens that the model wrote."""
    return [[sum(t.loss_mask) for t in group] for group in groups]


def cuts_of(groups: Groups) -> list[list[bool]]:
    """Whether a token limit ended the rollout."""
    return [[t.stop == "length" for t in group] for group in groups]


def outcomes_of(batch: Batch, begun: bool = False) -> list[list[float]]:
    """What each prompt's rollouts reached, without failures of the infrastructure. Tasks that were
    begun for the model say nothing of the whole: only with `begun` they count."""
    return [
        [s.outcome for s in row if s.outcome is not None and (begun or GOLD_STEPS not in task.meta)]
        for task, row in zip(batch.tasks, batch.scores, strict=True)
    ]


def rollout_lines(every: Batch, batch: Batch, config: GrpoConfig) -> list[dict[str, Any]]:
    """One JSON-ready dict per rollout. Settings that make a difference between the score and what
    is learned add it: the reward that was used, the mask, and whether the group was in the batch.
    """
    lines: list[dict[str, Any]] = []
    for p, (task, group, row) in enumerate(
        zip(every.tasks, every.groups, every.scores, strict=True)
    ):
        for g, (t, score) in enumerate(zip(group, row, strict=True)):
            line = to_json(t, score, task)
            if config.overlong == "soft" and score.outcome is not None:
                line["reward_used"] = float(every.used_PG[p, g])
            if config.overlong == "mask":
                line["masked"] = t.stop == "length"
            if config.dynamic_sampling:
                line["learned"] = every.rows[p] in batch.rows
            lines.append(line)
    return lines
