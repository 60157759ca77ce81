"""Dr.GRPO, top to bottom: sample, score, centre, loss, step, log, save. `assay grpo`.

What is left out of textbook PPO, and why: no critic (the group's mean is the baseline), no
division by the group's spread (it over-weights tasks that are nearly always or never solved), no
per-answer length division under `dr_grpo` (it favours long wrong answers), no KL term unless asked
for, and groups whose rewards are all equal never reach the backward pass: their advantage is 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs.schema import GrpoConfig
from rewards.families import score_groups
from rewards.seeds import derive_seed
from rewards.task import Score, Task, TaskError
from rollouts.engines.torch import TorchEngine, TransformersEngine
from rollouts.environment import Budget, Maker
from rollouts.episode import completion_ids, rollout, to_json
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling, Trajectory
from rollouts.workshop import run_now
from train.model.batch import Segment, micro_batches, pack, to_rows
from train.model.loss import centre, kl_penalty, policy_loss, sampling_weight, spread
from train.model.optim import MasterAdamW, learning_rate
from train.model.order import rows_of_step, strata
from train.model.policy import Policy, device_of
from train.run.log import RunLog, rollout_metrics
from train.run.resume import Checkpoints
from train.run.setup import give_back_memory

Scorer = Callable[[Task, Trajectory], Score]


@dataclass(frozen=True)
class Batch:
    """Scored rollouts of one step. P prompts, G rollouts each; `scores` and `groups` align."""

    tasks: list[Task]
    groups: list[list[Trajectory]]
    scores: list[list[Score]]
    adv_PG: Tensor
    valid_PG: Tensor


def sample(
    tasks: list[Task],
    engine: TorchEngine | TransformersEngine,
    tokenizer: ChatTokenizer,
    score: Scorer,
    config: GrpoConfig,
    seed: int,
    maker: Maker | None = None,
    weights: Mapping[str, Any] | None = None,
) -> Batch:
    """Roll out and score. A rollout without an outcome (infrastructure) gets no advantage.

    `weights` are the reward settings by family: some let siblings in the batch decide too.
    """
    sampling = Sampling(config.max_new_tokens, config.temperature, config.top_k, config.top_p, seed)
    n = config.rollouts_per_prompt
    budget = Budget(turns=config.turns, seconds=config.tool_seconds, tokens=config.max_length)
    groups = run_now(
        rollout(tasks, engine, tokenizer, sampling, n, seed, maker=maker, budget=budget)
    )
    scores = [[score(task, t) for t in group] for task, group in zip(tasks, groups, strict=True)]
    scores = score_groups(tasks, scores, weights)
    valid = torch.tensor([[s.outcome is not None for s in row] for row in scores])
    rewards = torch.tensor([[s.reward or 0.0 for s in row] for row in scores], dtype=torch.float32)
    adv = centre(rewards, valid)
    if config.divide_by_std:
        adv = adv / (spread(rewards, valid) + 1e-6)
    return Batch(tasks, groups, scores, adv, valid)


def rollout_lines(batch: Batch) -> list[dict[str, Any]]:
    """One line of the step's rollouts file an answer."""
    return [
        to_json(t, s, task)
        for task, group, row in zip(batch.tasks, batch.groups, batch.scores, strict=True)
        for t, s in zip(group, row, strict=True)
    ]


def segments_of(batch: Batch, prompts: Sequence[int]) -> list[Segment]:
    """Groups of the given prompts with an advantage, as segments; rows number P·G rollouts."""
    n = batch.adv_PG.shape[1]
    segments: list[Segment] = []
    for p in prompts:
        parts = {g: completion_ids(t) for g, t in enumerate(batch.groups[p])}
        kept = [g for g in range(n) if float(batch.adv_PG[p, g]) != 0.0 and parts[g][1]]
        # environments may open differently a sample; what is shared is what is equal
        for prompt in dict.fromkeys(tuple(parts[g][0]) for g in kept):
            own = [g for g in kept if tuple(parts[g][0]) == prompt]
            completions, masks = ([parts[g][i] for g in own] for i in (1, 2))
            segments.append(Segment(list(prompt), completions, [p * n + g for g in own], masks))
    return segments


def padded(values: list[list[float]], width: int) -> Tensor:
    """(B, width) float32, zeros after each row's end."""
    out = torch.zeros(len(values), width)
    for row, line in enumerate(values):
        out[row, : len(line)] = torch.tensor(line)
    return out


@torch.no_grad()
def recompute(
    policy: Policy,
    segments: list[Segment],
    config: GrpoConfig,
    micro_tokens: int,
    shape: tuple[int, int],
) -> Tensor:
    """Log-probabilities (B, T) of the policy as it is now, before any update of this batch."""
    out = torch.zeros(shape)
    for micro in micro_batches(segments, micro_tokens):
        packed = pack(micro, device_of(policy))
        logp_N, _ = policy.logp(packed, config.temperature)
        out[packed.row.cpu(), packed.column.cpu()] = logp_N.float().cpu()
    return out


@dataclass(frozen=True)
class Frame:
    """What the token terms of one batch are computed against; B = P·G rollouts, T tokens."""

    shape: tuple[int, int]
    adv_B: Tensor
    sampling_BT: Tensor
    old_BT: Tensor | None  # None: one optimiser step a batch, so old is new and the ratio is 1


def frame_of(policy: Policy, batch: Batch, config: GrpoConfig, micro_tokens: int) -> Frame:
    """Advantages and log-probabilities before the first update, padded by rollout."""
    prompts, n = batch.adv_PG.shape
    device = device_of(policy)
    flat = [t for group in batch.groups for t in group]
    drawn = [[x for x, m in zip(t.sampling_logprobs, t.loss_mask, strict=True) if m] for t in flat]
    shape = (prompts * n, max(1, max(map(len, drawn))))
    old_BT = None
    if config.mini_batch < prompts:
        everything = segments_of(batch, range(prompts))
        old_BT = recompute(policy, everything, config, micro_tokens, shape).to(device)
    sampling_BT = padded(drawn, shape[1]).to(device)
    return Frame(shape, batch.adv_PG.flatten().to(device), sampling_BT, old_BT)


def micro_loss(
    policy: Policy,
    segments: list[Segment],
    frame: Frame,
    config: GrpoConfig,
    rollouts: int,
    reference: Policy | None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of one micro-batch, and sums over its tokens for the log."""
    packed = pack(segments, device_of(policy))
    logp_N, entropy_N = policy.logp(packed, config.temperature)
    logp_BT = to_rows(logp_N, packed, *frame.shape)
    mask_BT = to_rows(torch.ones_like(logp_N), packed, *frame.shape) > 0
    before_BT = logp_BT.detach() if frame.old_BT is None else frame.old_BT
    weight_BT = None
    if config.sampling_correction == "token":
        weight_BT = sampling_weight(before_BT, frame.sampling_BT, mask_BT, config.correction_cap)
    loss, clipped = policy_loss(
        logp_BT,
        before_BT,
        frame.adv_B,
        mask_BT,
        normaliser=config.normaliser,
        budget=config.max_new_tokens,
        rollouts=rollouts,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        weight_BT=weight_BT,
    )
    gap = (frame.sampling_BT - before_BT).masked_fill(~mask_BT, 0.0)
    sums = {
        "tokens": float(len(logp_N)),
        "pg_clipfrac": float(clipped) * len(logp_N),
        "entropy": float(entropy_N.sum()),
        "kl/sampler": float(gap.sum()),
    }
    if reference is not None:
        with torch.no_grad():
            ref_N, _ = reference.logp(packed, config.temperature)
        kl_BT = kl_penalty(logp_BT, to_rows(ref_N, packed, *frame.shape), mask_BT)
        loss = loss + config.kl_coef * _reduce(kl_BT, mask_BT, config, rollouts)
        sums["kl/reference"] = float(kl_BT.detach().sum())
    return loss, sums


def update(
    policy: Policy,
    optimiser: MasterAdamW,
    batch: Batch,
    config: GrpoConfig,
    *,
    lr: float,
    micro_tokens: int,
    reference: Policy | None,
) -> dict[str, float]:
    """All optimiser steps of one batch. Returns loss, grad norm, and means over trained tokens."""
    frame = frame_of(policy, batch, config, micro_tokens)
    totals: Counter[str] = Counter()
    norms: list[float] = []
    for first in range(0, len(batch.tasks), config.mini_batch):
        chosen = range(first, min(first + config.mini_batch, len(batch.tasks)))
        rollouts = max(1, int(batch.valid_PG[first : first + config.mini_batch].sum()))
        for micro in micro_batches(segments_of(batch, chosen), micro_tokens):
            loss, sums = micro_loss(policy, micro, frame, config, rollouts, reference)
            loss.backward()
            optimiser.collect()
            totals.update({**sums, "loss": float(loss.detach())})
        norms.append(optimiser.step(lr, config.grad_clip))
    tokens = max(totals.pop("tokens", 0.0), 1.0)
    loss_total = totals.pop("loss", 0.0)
    means = {name: value / tokens for name, value in totals.items()}
    return {"loss": loss_total, "grad_norm": max(norms), **means}


def _reduce(values_BT: Tensor, mask_BT: Tensor, config: GrpoConfig, rollouts: int) -> Tensor:
    """Sum of token terms under the run's normaliser."""
    if config.normaliser == "constant":
        return values_BT.sum() / (config.max_new_tokens * rollouts)
    return (values_BT.sum(1) / mask_BT.sum(1).clamp(min=1)).sum() / rollouts


def fitting(tasks: Sequence[Task], tokenizer: ChatTokenizer, config: GrpoConfig) -> Sequence[Task]:
    """Tasks whose prompt leaves room for an answer. Raises `TaskError` if none does."""
    room = config.max_length - config.max_new_tokens
    # how an episode opens is its environment's affair, and its budget's
    kept = [t for t in tasks if t.tools or len(tokenizer.prompt(t.prompt)) <= room]
    if not kept:
        raise TaskError(
            f"none of {len(tasks)} tasks has a prompt of at most {room} tokens (rl.max_length − "
            "rl.max_new_tokens); raise rl.max_length"
        )
    if len(kept) < len(tasks):
        print(f"{len(tasks) - len(kept)} tasks with longer prompts than {room} tokens left out")
    return kept


def describe(config: GrpoConfig) -> str:
    """The resolved objective and the batch arithmetic, printed before the first step."""
    prompts, n = config.prompts_per_step, config.rollouts_per_prompt
    scale = {
        "constant": f"1/({config.max_new_tokens}·{config.mini_batch * n}) Σ_rollouts Σ_tokens",
        "sequence_mean": f"1/{config.mini_batch * n} Σ_rollouts 1/|tokens| Σ_tokens",
    }[config.normaliser]
    spread = " / std(group)" if config.divide_by_std else ""
    weight = (
        f"min(π_old/q, {config.correction_cap:g})·" if config.sampling_correction == "token" else ""
    )
    kl = f" + {config.kl_coef:g}·KL(π‖π_ref)" if config.kl_coef else ""
    return (
        f"objective ({config.preset}): minimise −{scale} {weight}min(r·A, clip(r, "
        f"{1 - config.clip_low:g}, {1 + config.clip_high:g})·A){kl}, "
        f"A = reward − mean(group){spread}\n"
        f"batch: {prompts} prompts × {n} rollouts = {prompts * n} rollouts a step, "
        f"{prompts // config.mini_batch} optimiser step(s) of {config.mini_batch * n}; "
        f"T={config.temperature:g} top_p={config.top_p:g} top_k={config.top_k}, "
        f"≤ {config.max_new_tokens} new tokens, lr {config.lr:g} {config.schedule}, "
        f"{config.steps} steps"
        + (f"; equally many of every {config.balance}" if config.balance != "none" else "")
    )


def train_grpo(
    policy: Policy,
    tasks: Sequence[Task],
    tokenizer: ChatTokenizer,
    score: Scorer,
    config: GrpoConfig,
    *,
    seed: int,
    micro_tokens: int,
    slots: int,
    log: RunLog,
    checkpoints: Checkpoints,
    reference: Policy | None = None,
    on_eval: Callable[[int], dict[str, float]] | None = None,
    eval_every: int = 0,
    maker: Maker | None = None,
    weights: Mapping[str, Any] | None = None,
) -> None:
    """Train in place, from the newest checkpoint if there is one."""
    tasks = fitting(tasks, tokenizer, config)
    print(describe(config), flush=True)
    optimiser = MasterAdamW(policy.named(), config.betas, weight_decay=config.weight_decay)
    engine = policy.engine(tokenizer.stop_ids, slots)
    groups = strata(tasks, config.balance)
    start = checkpoints.restore(optimiser)
    log.resume("rl", start)
    for step in range(start, config.steps):
        began = time.perf_counter()
        rows = rows_of_step(step, groups, config.prompts_per_step, seed, config.balance)
        draw = derive_seed(seed, "rollouts", step)
        asked = [tasks[i] for i in rows]
        batch = sample(asked, engine, tokenizer, score, config, draw, maker, weights)
        give_back_memory()  # what decoding used, before the backward pass wants its own
        sampled = time.perf_counter()
        lr = learning_rate(step, config.steps, config.lr, config.warmup, config.schedule)
        learned = update(
            policy, optimiser, batch, config, lr=lr, micro_tokens=micro_tokens, reference=reference
        )
        engine.update_weights()
        give_back_memory()
        metrics = rollout_metrics(
            batch.scores,
            [[sum(t.loss_mask) for t in group] for group in batch.groups],
            [[t.stop == "length" for t in group] for group in batch.groups],
        )
        metrics |= learned | {
            "lr": lr,
            "time/rollout": sampled - began,
            "time/train": time.perf_counter() - sampled,
            "time/step": time.perf_counter() - began,
        }
        done = step + 1
        if on_eval is not None and eval_every and done % eval_every == 0:
            metrics |= on_eval(done)
        log.step("rl", done, config.steps, metrics, rollout_lines(batch))
        position = done * config.prompts_per_step
        checkpoints.after_step(done, config.steps, config.save_every, optimiser, position)
