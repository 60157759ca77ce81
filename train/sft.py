# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""Supervised fine-tuning: the loop that `assay sft` and the demo call.

Loss: minus the mean log-probability of the answer's tokens (stop token included), over all answer
tokens of an optimiser step, whatever micro-batches it is cut into. Prompt tokens carry no loss.
Rows whose prompts begin alike (the same system message) share the computation of that beginning.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from configs.checks import warmup_steps
from configs.schema import SftConfig
from train.examples import Example, fitting
from train.model.optim import MasterAdamW, backward, learning_rate
from train.model.order import batch_of
from train.model.packing import Segment, micro_batches, pack
from train.model.policy import Policy, device_of, layout_of
from train.run.loop import Loop
from train.run.memory import Heap


def train_sft(
    policy: Policy, examples: Sequence[Example], config: SftConfig, loop: Loop, every: int
) -> None:
    """Train in place, from the newest checkpoint if there is one; save `every` steps.

    Raises `TaskError` when no example fits.
    """
    kept = fitting(examples, config.max_length)
    steps = sft_steps(len(kept), config)
    optimiser = MasterAdamW(policy.named(), config.betas, config.weight_decay, loop.rounding)
    start, device = loop.checkpoints.restore(optimiser, steps), device_of(policy)
    loop.log.resume("sft", start)
    heap, warmup = Heap(), warmup_steps(config.warmup, steps)
    for step in range(start, steps):
        began = time.perf_counter()

        # 1. The step's rows: a function of the seed and `step` alone, so a resumed run agrees.
        batch = [kept[i] for i in batch_of(step, len(kept), config.batch_size, loop.seed)]
        tokens = sum(e.scored for e in batch)
        segments = [
            Segment(e.prompt, [e.answer], [i], None if e.mask is None else [e.mask])
            for i, e in enumerate(batch)
        ]

        # 2. Learn. Gradients add up over micro-batches: `micro_tokens` changes memory only.
        total = 0.0
        for micro in micro_batches(segments, loop.micro_tokens, layout_of(policy)):
            logp_N, _ = policy.logp(pack(micro, device))
            loss = -logp_N.sum() / tokens
            backward(loss)
            optimiser.collect()
            total += float(loss.detach())
        lr = learning_rate(step, steps, config.lr, warmup, "cosine")
        norm = optimiser.step(lr, config.grad_clip)
        heap.settle()

        # 3. Evaluate where that is due, log, save.
        took, done = time.perf_counter() - began, step + 1
        metrics = {
            "loss": total,
            "grad_norm": norm,
            "lr": lr,
            "time/step": took,
            "time/tokens_per_second": sum(s.tokens for s in segments) / took,
        }
        loop.validate(done, steps)
        loop.log.step("sft", done, steps, metrics)
        loop.checkpoints.after_step(done, steps, every, optimiser)
    loop.log.end("sft")


def sft_steps(count: int, config: SftConfig) -> int:
    """Optimiser steps: the epochs' rows over the batch, rounded up (the last batch runs on)."""
    return -(-count * config.epochs // config.batch_size)
