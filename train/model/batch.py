# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The scorer of a loop, a step's scored rollouts with their advantages, and what
of them is packed to be learned from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.family import score_answer
from assay.task import Score, Task
from configs.schema import GrpoConfig
from rollouts.trajectory import NO_NUMBERS, Trajectory, completion_ids
from train.model.loss import centre, overlong_penalty, spread
from train.model.packing import Segment

Groups = list[list[Trajectory]]  # P prompts, G rollouts each
Scorer = Callable[[Sequence[Task], Groups], list[list[Score]]]


def scorer(weights: Mapping[str, Any] | None = None) -> Scorer:
    """(P tasks, their G rollouts each) → scores, under the run's reward settings by family."""

    def score(tasks: Sequence[Task], groups: Groups) -> list[list[Score]]:
        return [
            [score_answer(task, t.answer(), weights) for t in group]
            for task, group in zip(tasks, groups, strict=True)
        ]

    return score


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


def ends_of(groups: Groups) -> dict[str, float]:
    """Shares of the rollouts that said nothing, that ran out of turns, and that the model could not
    draw, for the log."""
    whole = [t for group in groups for t in group if t.failure is None]
    empty = [not (t.text.strip() or t.files or t.tool_calls) for t in whole]
    late = [t.stop == "turns" for t in whole]
    broken = [t.failure == NO_NUMBERS for group in groups for t in group]
    count = max(len(whole), 1)
    return {
        "response/empty": sum(empty) / count,
        "response/out_of_turns": sum(late) / count,
        "response/nan": sum(broken) / max(len(broken), 1),
    }


def rollout_lines(every: Batch, batch: Batch, config: GrpoConfig) -> list[dict[str, Any]]:
    """One JSON-ready dict per rollout. Settings that make a difference between the score and what
    is learned add it: the reward that was used, the mask, and whether the group was in the batch.
    """
    lines: list[dict[str, Any]] = []
    learned = {id(group) for group in batch.groups}  # a task may stand in a step twice
    for p, (task, group, row) in enumerate(
        zip(every.tasks, every.groups, every.scores, strict=True)
    ):
        for g, (t, score) in enumerate(zip(group, row, strict=True)):
            line = t.to_json(score, task)
            if config.overlong == "soft" and score.outcome is not None:
                line["reward_used"] = float(every.used_PG[p, g])
            if config.overlong == "mask":
                line["masked"] = t.stop == "length"
            if config.dynamic_sampling:
                line["learned"] = id(group) in learned
            lines.append(line)
    return lines
