"""Supervised fine-tuning: the loop that `assay sft` and the demo call.

Loss: minus the mean log-probability of the answer's tokens (stop token included), over all answer
tokens of an optimiser step, whatever micro-batches it is cut into. Prompt tokens carry no loss.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.schema import SftConfig, SftRunConfig
from rewards.cdr.refinement import gold_answer
from rewards.extras import install_extra
from rewards.task import Task, TaskError
from rollouts.prompts import ChatTokenizer
from train.model.batch import Segment, micro_batches, pack
from train.model.optim import MasterAdamW, learning_rate
from train.model.order import batch_of
from train.model.policy import Policy, device_of
from train.run.data import read_some
from train.run.log import RunLog
from train.run.resume import Checkpoints
from train.run.setup import give_back_memory


@dataclass(frozen=True)
class Example:
    """One training text as ids: the prompt, and what follows it.

    The loss is on the whole answer, or where `mask` is 1: an episode's tool tokens carry none.
    """

    prompt: list[int]
    answer: list[int]
    mask: list[int] | None = None

    @property
    def scored(self) -> int:
        """Tokens that carry loss."""
        return len(self.answer) if self.mask is None else sum(self.mask)


def gold_examples(tasks: Sequence[Task], tokenizer: ChatTokenizer) -> list[Example]:
    """Refinement tasks with their gold answers as the model would write them."""
    return [
        Example(tokenizer.prompt(t.prompt), tokenizer.answer(gold_answer(t.gold))) for t in tasks
    ]


def trace_examples(path: Path) -> list[Example]:
    """Kept rollouts of `assay select`, as the tokens that were sampled. Raises `TaskError` when
    the file has none (rollouts of an endpoint have no ids)."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise TaskError(f"reading parquet needs pyarrow; {install_extra('parquet')}") from None
    try:
        table: Any = pq.read_table(path)
    except (OSError, ValueError) as error:
        raise TaskError(f"{path}: not a parquet file that can be read ({error})") from None
    if not {"ids", "loss_mask"} <= set(table.column_names):
        raise TaskError(f"{path}: no columns 'ids' and 'loss_mask'; give what `assay select` wrote")
    found: list[Example] = []
    for ids, mask in zip(table["ids"].to_pylist(), table["loss_mask"].to_pylist(), strict=True):
        if 1 not in mask:
            raise TaskError(f"{path}: a row has no tokens to learn; were they an endpoint's?")
        start, end = mask.index(1), len(mask) - mask[::-1].index(1)
        found.append(Example(ids[:start], ids[start:end], mask[start:end]))
    return found


def read_examples(config: SftRunConfig, tokenizer: ChatTokenizer) -> list[Example]:
    """The run's tasks with their gold answers, or the traces of a parquet that `assay select`
    wrote. Raises `TaskError` for gold that is no text."""
    if config.data.endswith(".parquet"):
        return trace_examples(Path(config.data))
    tasks = read_some(config.data, "data")
    bad = next((t for t in tasks if t.family != "refinement"), None)
    if bad is not None:
        raise TaskError(
            f"{config.data}: task {bad.id} is of family {bad.family}, whose gold is no text to "
            "imitate; build its set by rejection sampling"
        )
    return gold_examples(tasks, tokenizer)


def sft_steps(count: int, config: SftConfig) -> int:
    """Optimiser steps: the epochs' rows over the batch, rounded up (the last batch runs on)."""
    return -(-count * config.epochs // config.batch_size)


def train_sft(
    policy: Policy,
    examples: Sequence[Example],
    config: SftConfig,
    *,
    seed: int,
    micro_tokens: int,
    log: RunLog,
    checkpoints: Checkpoints,
    every: int,
) -> None:
    """Train in place, from the newest checkpoint if there is one. Raises `TaskError` on no data."""
    fitting = [e for e in examples if len(e.prompt) + len(e.answer) <= config.max_length]
    if not fitting:
        raise TaskError(
            f"none of {len(examples)} examples fits sft.max_length={config.max_length}; raise it"
        )
    if len(fitting) < len(examples):
        left = len(examples) - len(fitting)
        print(f"{left} examples longer than sft.max_length={config.max_length} left out")
    steps = sft_steps(len(fitting), config)
    optimiser = MasterAdamW(policy.named(), config.betas, weight_decay=config.weight_decay)
    start, device = checkpoints.restore(optimiser), device_of(policy)
    log.resume("sft", start)
    for step in range(start, steps):
        began = time.perf_counter()
        rows = batch_of(step, len(fitting), config.batch_size, seed)
        batch = [fitting[i] for i in rows]
        tokens = sum(e.scored for e in batch)
        segments = [
            Segment(e.prompt, [e.answer], [i], None if e.mask is None else [e.mask])
            for i, e in enumerate(batch)
        ]
        total = 0.0
        for micro in micro_batches(segments, micro_tokens):
            logp_N, _ = policy.logp(pack(micro, device))
            loss = -logp_N.sum() / tokens
            loss.backward()
            optimiser.collect()
            total += float(loss.detach())
        lr = learning_rate(step, steps, config.lr, config.warmup, "cosine")
        norm = optimiser.step(lr, config.grad_clip)
        give_back_memory()
        took = time.perf_counter() - began
        metrics = {
            "loss": total,
            "grad_norm": norm,
            "lr": lr,
            "time/step": took,
            "time/tokens_per_second": sum(s.tokens for s in segments) / took,
        }
        log.step("sft", step + 1, steps, metrics)
        checkpoints.after_step(step + 1, steps, every, optimiser, (step + 1) * config.batch_size)
