# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Dr.GRPO, top to bottom: sample, score, centre, loss, step, log, save; and `assay grpo` around it.

What is left out of textbook PPO, and why: no critic (the group's mean is the baseline), no
division by the group's spread (it over-weights tasks that are nearly always or never solved), no
per-answer length division under `dr_grpo` (it favours long wrong answers), no KL term unless asked
for, and groups whose rewards are all equal never reach the backward pass: their advantage is 0.

Suffixes: P prompts, G rollouts per prompt, B = P·G rollouts, M sampled tokens of the whole batch,
N trained tokens of one micro-batch.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.task import Task, derive_seed
from configs.loader import dump
from configs.schema import GrpoConfig, GrpoRunConfig, warmup_steps, weights_of
from rollouts.engines.engine import TrainedEngine
from rollouts.environment import Budget, Maker
from rollouts.environments import EnvironmentFactory, read_prompts, tool_settings
from rollouts.episode import rollout
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling
from train.lengths import for_rl, rl_before
from train.memory import Heap, give_back_memory, grpo_report, local_report
from train.model.batch import (
    Batch,
    Groups,
    Scorer,
    batch_of,
    cuts_of,
    ends_of,
    joined,
    lengths_of,
    part,
    rollout_lines,
    scorer,
    segments_of,
)
from train.model.loss import (
    kl_penalty,
    policy_loss,
    sampling_weight,
    token_weight,
)
from train.model.optim import MasterAdamW, backward, learning_rate
from train.model.order import balanced_batch, drawn, fitting, instead, strata
from train.model.packing import Packed, Segment, micro_batches, pack
from train.model.policy import Policy, device_of, layout_of
from train.model.source import resolve_model
from train.run.data import (
    asked_for,
    audit_tasks,
    inputs_of,
    training_tasks,
    validation_tasks,
    with_folder,
    with_validation,
)
from train.run.log import rollout_metrics
from train.run.run import Loop, Run, Validation, held, settled
from train.run.trained_on import marks_from, trained_before


def train_grpo(
    policy: Policy,
    tasks: Sequence[Task],
    tokenizer: ChatTokenizer,
    score: Scorer,
    config: GrpoConfig,
    loop: Loop,
    maker: Maker | None = None,
    reference: Policy | None = None,
) -> None:
    """Train `policy` in place, from the newest checkpoint if there is one.

    `score` sees all rollouts of a step at once: in some families siblings decide too. `maker` gives
    tasks with tools their environments; `reference` is needed for a KL term. Raises `TaskError`
    when no prompt leaves room for an answer.
    """
    tasks = fitting(tasks, tokenizer, config)
    print(describe(config), flush=True)
    optimiser = MasterAdamW(policy.named(), config.betas, config.weight_decay, loop.rounding)
    engine = policy.engine(tokenizer.stop_ids, loop.slots)
    pools = strata(tasks, config.balance)
    start, heap = loop.checkpoints.restore(optimiser, config.steps), Heap()
    loop.log.resume("rl", start)
    ask = Ask(tasks, engine, tokenizer, score, config, loop.seed, maker)
    warmup = warmup_steps(config.warmup, config.steps)
    for step in range(start, config.steps):
        began = time.perf_counter()
        # 1. Sample and score. The seed depends on `step` alone: a resumed run draws the same.
        rows = balanced_batch(step, pools, config.prompts_per_step, loop.seed)
        first = ask(rows, step)

        # 2. Flat groups give way to further prompts, where asked for.
        batch, every = refilled(first, ask, pools, step)
        sampled = time.perf_counter()

        # 3. Learn. Gradients are added up over micro-batches of at most `micro_tokens` tokens.
        lr = learning_rate(step, config.steps, config.lr, warmup, config.schedule)
        learned = update(
            policy,
            optimiser,
            batch,
            config,
            lr=lr,
            micro_tokens=loop.micro_tokens,
            reference=reference,
        )
        engine.update_weights()  # the next step samples from the new policy
        heap.settle()

        # 4. Evaluate where that is due, log, save.
        done, now = step + 1, time.perf_counter()
        metrics = metrics_of(first, batch, every, config) | learned
        metrics |= {"lr": lr, "time/rollout": sampled - began, "time/train": now - sampled}
        metrics["time/step"] = now - began  # without validation, as in SFT
        loop.validate(done, config.steps)
        loop.log.step("rl", done, config.steps, metrics, rollout_lines(every, batch, config))
        loop.checkpoints.after_step(done, config.steps, config.save_every, optimiser)
    loop.log.end("rl")


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
        f"batch: {prompts} prompts × {n} rollouts = {prompts * n} rollouts per step, "
        f"{prompts // config.mini_batch} optimiser step(s) of {config.mini_batch * n}; "
        f"T={config.temperature:g} top_p={config.top_p:g} top_k={config.top_k}, "
        f"≤ {config.max_new_tokens or 'auto'} new tokens, lr {config.lr:g} {config.schedule}, "
        f"{config.steps} steps"
        + (f"; equally many of every {config.balance}" if config.balance != "none" else "")
        + "".join(f"\n{line}" for line in _also(config))
    )


def _also(config: GrpoConfig) -> Iterator[str]:
    """One line for every setting beside the objective that is on."""
    if config.dynamic_sampling:
        yield f"flat groups: further prompts instead, in up to {config.dynamic_sampling} rounds"
    if config.overlong == "mask":
        yield "cut-off answers: no advantage"
    if config.overlong == "soft":
        buffer = config.overlong_buffer or "a fifth of the limit"
        yield f"long answers: the reward falls by up to 1 over the last tokens ({buffer})"


def budget_of(config: GrpoConfig) -> Budget:
    """What an episode with tools may use. The tools' own texts name these bounds too."""
    return Budget(turns=config.turns, seconds=config.tool_seconds, tokens=config.max_length)


def sample(
    tasks: Sequence[Task],
    engine: TrainedEngine,
    tokenizer: ChatTokenizer,
    config: GrpoConfig,
    seed: int,
    maker: Maker | None = None,
) -> Groups:
    """G rollouts of each of P tasks."""
    sampling = Sampling(config.max_new_tokens, config.temperature, config.top_k, config.top_p, seed)
    n, budget = config.rollouts_per_prompt, budget_of(config)
    return asyncio_run(
        rollout(tasks, engine, tokenizer, sampling, n, seed, maker=maker, budget=budget)
    )


@dataclass(frozen=True)
class Ask:
    """What turns P rows of a step into scored rollouts. Rewards are centred there: the mean reward
    of a prompt's G rollouts is the baseline."""

    tasks: Sequence[Task]
    engine: TrainedEngine
    tokenizer: ChatTokenizer
    score: Scorer
    config: GrpoConfig
    seed: int
    maker: Maker | None

    def __call__(self, rows: Sequence[int], step: int) -> Batch:
        asked = [self.tasks[i] for i in rows]
        seed = derive_seed(self.seed, "rollouts", step)
        groups = sample(asked, self.engine, self.tokenizer, self.config, seed, self.maker)
        self.engine.release()
        give_back_memory()  # blocks that decoding freed: the backward pass wants other sizes
        return batch_of(asked, groups, self.score(asked, groups), self.config, rows)


def refilled(
    first: Batch,
    ask: Ask,
    pools: Sequence[Sequence[int]],
    step: int,
) -> tuple[Batch, Batch]:
    """(the batch to learn from, everything that was sampled for it).

    Dynamic sampling (DAPO, Yu et al. 2025, arXiv 2503.14476, section 3.2): groups without any
    advantage give way to groups of further prompts that have one, for at most
    `rl.dynamic_sampling` rounds. What stays flat stays in the batch, and counts in its size.
    """
    batch = every = first
    places = list(range(len(first.tasks)))  # where the batch's groups stand in `every`
    for again in range(ask.config.dynamic_sampling):
        flat = [p for p in range(len(batch.tasks)) if not batch.adv_PG[p].any()]
        stale = [batch.rows[p] for p in flat]
        rows = instead(ask.seed, step, again, pools, stale, {*every.rows})
        if not rows:
            break
        more = ask(rows, step)
        teaching = [len(every.rows) + p for p in range(len(rows)) if more.adv_PG[p].any()]
        every = joined(every, more)
        for p, place in zip(flat, teaching, strict=False):
            places[p] = place
        batch = part(every, places)
    return batch, every


@dataclass(frozen=True)
class Frame:
    """What the token terms of one batch are computed against. Its M sampled tokens stand one
    rollout after another; `start_B` is where each begins."""

    adv_B: Tensor
    lengths_B: Tensor
    start_B: Tensor
    sampling_M: Tensor

    old_M: Tensor | None
    """None with one optimiser step per batch: old is new, and the ratio is 1."""


def update(
    policy: Policy,
    optimiser: MasterAdamW,
    batch: Batch,
    config: GrpoConfig,
    *,
    lr: float,
    micro_tokens: int,
    reference: Policy | None = None,
) -> dict[str, float]:
    """All optimiser steps of one batch. Returns loss, grad norm, and means over trained tokens."""
    with_kl = reference is not None  # that term needs no advantage: flat groups count in it
    frame = frame_of(policy, batch, config, micro_tokens, with_kl)
    totals: Counter[str] = Counter()
    norms: list[float] = []
    for first in range(0, len(batch.tasks), config.mini_batch):
        chosen = range(first, min(first + config.mini_batch, len(batch.tasks)))
        rollouts = max(1, int(batch.valid_PG[first : first + config.mini_batch].sum()))
        segments = segments_of(batch, chosen, with_kl)
        for micro in micro_batches(segments, micro_tokens, layout_of(policy)):
            loss, sums = micro_loss(policy, micro, frame, config, rollouts, reference)
            backward(loss)
            optimiser.collect()
            totals.update({**sums, "loss": float(loss.detach())})
        norms.append(optimiser.step(lr, config.grad_clip))
    tokens = max(totals.pop("tokens", 0.0), 1.0)
    loss_total = totals.pop("loss", 0.0)
    means = {name: value / tokens for name, value in totals.items()}
    return {"loss": loss_total, "grad_norm": largest(norms), **means}


def micro_loss(
    policy: Policy,
    segments: list[Segment],
    frame: Frame,
    config: GrpoConfig,
    rollouts: int,
    reference: Policy | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of one micro-batch, and sums over its N tokens for the log.

    −Σ_N weight · min(r·A, clip(r)·A), r = π/π_old, weight = 1/(budget·R) or 1/(length·R) for the R
    rollouts of the optimiser step.
    """
    packed = pack(segments, device_of(policy))
    at_N = frame.start_B[packed.row] + packed.column
    logp_N, entropy_N = policy.logp(packed, config.temperature)
    old_N = logp_N.detach() if frame.old_M is None else frame.old_M[at_N]
    counts_N = token_weight(
        config.normaliser,
        frame.lengths_B[packed.row],
        budget=config.max_new_tokens,
        rollouts=rollouts,
    )
    weight_N = counts_N
    if config.sampling_correction == "token":
        kept_N = sampling_weight(old_N, frame.sampling_M[at_N], config.correction_cap)
        weight_N = counts_N * kept_N
    adv_N = frame.adv_B[packed.row]
    clip = {"clip_low": config.clip_low, "clip_high": config.clip_high}
    loss, clipped = policy_loss(logp_N, old_N, adv_N, weight_N, **clip)
    sums = {
        "tokens": float(len(logp_N)),
        "pg_clipfrac": float(clipped),
        "entropy": float(entropy_N.sum()),
        "kl/sampler": float((frame.sampling_M[at_N] - old_N).sum()),
    }
    if reference is not None:
        with torch.no_grad():
            ref_N, _ = reference.logp(packed, config.temperature)
        kl_N = kl_penalty(logp_N, ref_N)
        loss = loss + config.kl_coef * (kl_N * counts_N).sum()
        sums["kl/reference"] = float(kl_N.detach().sum())
    return loss, sums


def frame_of(
    policy: Policy, batch: Batch, config: GrpoConfig, micro_tokens: int, flat_too: bool
) -> Frame:
    """Advantages and log-probabilities as they were before the first update of this batch."""
    device = device_of(policy)
    flat = [t for group in batch.groups for t in group]
    drawn = [[x for x, m in zip(t.sampling_logprobs, t.loss_mask, strict=True) if m] for t in flat]
    lengths_B = torch.tensor([len(line) for line in drawn], device=device)
    frame = Frame(
        adv_B=batch.adv_PG.flatten().to(device),
        lengths_B=lengths_B,
        start_B=lengths_B.cumsum(0) - lengths_B,
        sampling_M=torch.tensor([x for line in drawn for x in line], device=device),
        old_M=None,
    )
    if config.mini_batch >= len(batch.tasks):
        return frame
    everything = segments_of(batch, range(len(batch.tasks)), flat_too)
    old_M = torch.zeros_like(frame.sampling_M)
    with torch.no_grad():
        for micro in micro_batches(everything, micro_tokens, layout_of(policy)):
            packed: Packed = pack(micro, device)
            logp_N, _ = policy.logp(packed, config.temperature)
            old_M[frame.start_B[packed.row] + packed.column] = logp_N.float()
    return replace(frame, old_M=old_M)


def largest(norms: Sequence[float]) -> float:
    """The largest gradient norm; NaN if one is, which `max` may hide."""
    return math.nan if any(map(math.isnan, norms)) else max(norms)


def metrics_of(first: Batch, batch: Batch, every: Batch, config: GrpoConfig) -> dict[str, Any]:
    """What is logged of a step's rollouts: means over everything that was sampled, as scored."""
    found: dict[str, Any] = {
        **rollout_metrics(every.scores, lengths_of(every.groups), cuts_of(every.groups)),
        **ends_of(every.groups),
    }
    if config.dynamic_sampling:
        found["by_group/sampled"] = float(len(every.tasks))
        for name, part in (("before", first), ("after", batch)):
            flat = (part.adv_PG == 0).all(1).float()
            found[f"by_group/flat_{name}"] = float(flat.mean())
    if config.overlong != "keep" and every.valid_PG.any():
        found["reward/used/mean"] = float(every.used_PG[every.valid_PG].mean())
        masked = torch.tensor(cuts_of(every.groups))[every.valid_PG].float().mean()
        found["overlong/masked"] = float(masked) if config.overlong == "mask" else 0.0
    return found


def run(config: GrpoRunConfig) -> None:
    """`assay grpo` on this machine, on one device."""
    config, said = with_validation(config)
    tasks, heldout = training_tasks(config.data, asked=asked_for(config)), validation_tasks(config)
    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, config.tools.calls, config.model.chat_template_kwargs)
    root, prompts = Path(config.data).parent, read_prompts(config.prompts)
    shop = EnvironmentFactory(root, tool_settings(config.tools), config.env)
    tasks = prompts.asked(map(shop.equip, tasks))
    config, why = for_rl(settled(config), tasks, tokenizer, source)
    for line in filter(None, (said, why)):
        print(line, flush=True)
    budget = budget_of(config.rl)
    tools = tool_settings(config.tools, budget, prompts)
    shop = EnvironmentFactory(root, tools, config.env)
    heldout = prompts.asked(map(shop.equip, heldout))
    shop.check([*tasks, *heldout], ids=True)
    weights, rl = weights_of(config.reward), config.rl
    score = scorer(weights)
    with Run(config, inputs_of(config, source, tokenizer, prompts)) as run:
        tasks = fitting(tasks, tokenizer, rl)
        marks = marks_from(drawn(tasks, rl, config.seed), root)
        run.trained = trained_before(source).after("rl", config.data, marks)
        audit_tasks(rl.audit, tasks, root, config.seed, weights, run.out)
        policy = run.load(source, train=True, adapters=config.model)
        reference = run.load(source) if rl.kl_coef else None
        loop = run.loop("rl")
        if heldout:
            beside = EnvironmentFactory(Path(str(config.validation)).parent, tools, config.env)
            asked = (run, heldout, tokenizer, score, config.eval, rl.max_new_tokens, beside.maker)
            loop = replace(loop, validate=Validation(*asked, budget).of(policy))
        train_grpo(policy, tasks, tokenizer, score, rl, loop, shop.maker, reference)
        asyncio_run(shop.close())
        print(f"model: {run.save(policy, 'model')}")
        run.finish()


def on_devices(config: GrpoRunConfig) -> int:
    """`assay grpo --backend verl`: on many GPUs. verl evaluates by itself and keeps no best
    model."""
    from train.backends.verl.main import run as run_verl
    from train.backends.verl.settings import require_verl

    require_verl(config.cluster)
    tasks = training_tasks(config.data, asked=asked_for(config))
    config, said = rl_before(with_folder(config), here=False)
    print("\n".join(filter(None, (said, grpo_report(config)))), flush=True)
    with held(Path(config.out)):  # the audit is made on this machine, before any GPU is taken
        root, weights = Path(config.data).parent, weights_of(config.reward)
        audit_tasks(config.rl.audit, tasks, root, config.seed, weights, Path(config.out))
        return run_verl(config)


def dry_run(config: GrpoRunConfig, backend: str) -> None:
    """Print the settings, the objective and the memory that the run needs."""
    here = backend == "embedded"
    config, found = with_validation(config) if here else (config, "")
    config, said = rl_before(settled(config) if here else config, here)
    for line in filter(None, (dump(config), found, said, describe(config.rl))):
        print(line, flush=True)
    if here:
        print(local_report(config))
        return
    from train.backends.verl.settings import show

    show(config)
