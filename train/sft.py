# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""Supervised fine-tuning, top to bottom: the loop, and `assay sft` around it.

Loss: minus the mean log-probability of the answer's tokens (stop token included), over all answer
tokens of an optimiser step, whatever micro-batches it is cut into. Prompt tokens carry no loss.
Rows whose prompts begin alike (the same system message) share the computation of that beginning.
A step over many devices is train/backends/deepspeed.py's; all else of the loop is the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from configs.loader import dump
from configs.schema import SftConfig, SftRunConfig, warmup_steps, weights_of
from rollouts.environments import EnvironmentFactory, ToolSettings, read_prompts
from rollouts.prompts import ChatTokenizer
from train.examples import Example, Row, examples_of, fitting, lengths_line, training_rows
from train.lengths import NOT_MEASURED, for_sft, unfitted
from train.memory import Heap, local_report, sft_report
from train.model.batch import scorer
from train.model.optim import MasterAdamW, backward, learning_rate
from train.model.order import batch_of
from train.model.packing import Segment, micro_batches, pack
from train.model.policy import Policy, device_of, layout_of
from train.model.source import local_model, resolve_model
from train.run.data import asked_for, inputs_of, validation_tasks, with_validation
from train.run.log import RunLog
from train.run.run import Loop, Run, Validate, Validation, no_validation, settled
from train.run.trained_on import trained_before


class Learner(Protocol):
    """A model that is trained: a step of it, and where that stands after a restart."""

    def restore(self, last: int) -> int:
        """Load the newest checkpoint; its step, 0 if there is none."""
        ...

    def step(self, batch: Sequence[Example], lr: float) -> tuple[float, float]:
        """(loss, gradient norm before clipping) of one optimiser step."""
        ...

    def after_step(self, step: int, last: int, every: int) -> None:
        """Save where that is due or a stop was asked for; then raises `Stopped`."""
        ...


class OneDevice:
    """The embedded learner. Gradients are added up over micro-batches of at most `micro_tokens`
    tokens."""

    def __init__(self, policy: Policy, config: SftConfig, loop: Loop) -> None:
        self.policy, self.config, self.loop, self.heap = policy, config, loop, Heap()
        named, decay = policy.named(), config.weight_decay
        self.optimiser = MasterAdamW(named, config.betas, decay, loop.rounding)

    def restore(self, last: int) -> int:
        return self.loop.checkpoints.restore(self.optimiser, last)

    def step(self, batch: Sequence[Example], lr: float) -> tuple[float, float]:
        segments = [
            Segment(e.prompt, [e.answer], [i], None if e.mask is None else [e.mask])
            for i, e in enumerate(batch)
        ]
        total, tokens, device = 0.0, sum(e.scored for e in batch), device_of(self.policy)
        for micro in micro_batches(segments, self.loop.micro_tokens, layout_of(self.policy)):
            logp_N, _ = self.policy.logp(pack(micro, device))
            loss = -logp_N.sum() / tokens
            backward(loss)
            self.optimiser.collect()
            total += float(loss.detach())
        norm = self.optimiser.step(lr, self.config.grad_clip)
        self.heap.settle()
        return total, norm

    def after_step(self, step: int, last: int, every: int) -> None:
        self.loop.checkpoints.after_step(step, last, every, self.optimiser)


def train_sft(policy: Policy, examples: Sequence[Example], config: SftConfig, loop: Loop) -> None:
    """Train in place, from the newest checkpoint if there is one. Raises `TaskError` when no
    example fits."""
    learner = OneDevice(policy, config, loop)
    learn(learner, examples, config, loop.seed, loop.log, loop.validate)


def learn(
    learner: Learner,
    examples: Sequence[Example],
    config: SftConfig,
    seed: int,
    log: RunLog | None,
    validate: Validate = no_validation,
) -> list[Example]:
    """The loop; returns the examples that fit and were learned from. `log`: None in a process whose
    steps another one logs."""
    kept = fitting(examples, config.max_length)
    # the epochs' rows over the batch, rounded up: the last batch runs on
    steps = -(-len(kept) * config.epochs // config.batch_size)
    start, warmup = learner.restore(steps), warmup_steps(config.warmup, steps)
    if log is not None:
        log.resume("sft", start)
    for step in range(start, steps):
        began = time.perf_counter()
        # 1. The step's rows: a function of the seed and `step` alone, so a resumed run agrees.
        batch = [kept[i] for i in batch_of(step, len(kept), config.batch_size, seed)]

        # 2. Learn.
        lr = learning_rate(step, steps, config.lr, warmup, "cosine")
        loss, norm = learner.step(batch, lr)

        # 3. Evaluate where that is due, log, save.
        took, done = time.perf_counter() - began, step + 1
        validate(done, steps)
        if log is not None:
            metrics = {"loss": loss, "grad_norm": norm, "lr": lr, "time/step": took}
            metrics["time/tokens_per_second"] = sum(e.tokens for e in batch) / took
            log.step("sft", done, steps, metrics)
        learner.after_step(done, steps, config.save_every)
    if log is not None:
        log.end("sft")
    return kept


def run(config: SftRunConfig) -> None:
    """`assay sft` on this machine, on one device."""
    rows = training_rows(config.data, asked_for(config), config.prompts)
    config, said = with_validation(config)
    prompts = read_prompts(config.prompts)
    heldout = prompts.asked(validation_tasks(config))
    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, config.tools.calls, config.model.chat_template_kwargs)
    examples = examples_of(rows, tokenizer, Path(config.data).parent)
    config, why = for_sft(settled(config), [e.tokens for e in examples], source)
    for line in filter(None, (said, why)):
        print(line, flush=True)
    with Run(config, inputs_of(config, source, tokenizer, prompts)) as run:
        kept = [e for e in examples if e.tokens <= config.sft.max_length]
        run.trained = trained_before(source).after("sft", config.data, (e.marks for e in kept))
        policy = run.load(source, train=True, adapters=config.model)
        loop = run.loop("sft")
        if heldout:
            tools = ToolSettings(words=prompts.words)
            shop = EnvironmentFactory(Path(str(config.validation)).parent, tools)
            longest = max(len(e.answer) for e in examples)
            score = scorer(weights_of({}))
            given = (run, heldout, tokenizer, score, config.eval, longest, shop.maker)
            loop = replace(loop, validate=Validation(*given).of(policy))
        train_sft(policy, examples, config.sft, loop)
        print(f"model: {run.save(policy, 'model')}")
        run.finish()


def before(
    config: SftRunConfig, rows: Sequence[tuple[str, Row]], here: bool
) -> tuple[SftRunConfig, str]:
    """The run with a length that fits its data, before anything is loaded, and what is known of the
    lengths of `rows`. `here`: bounded by this machine's memory too."""
    folder = local_model(config.model.path)
    if folder is None or not rows:
        return replace(config, sft=unfitted(config.sft, config.model.path)), NOT_MEASURED
    tokenizer = ChatTokenizer(folder, config.tools.calls, config.model.chat_template_kwargs)
    examples = examples_of(rows, tokenizer, Path(config.data).parent)
    config, why = for_sft(config, [e.tokens for e in examples], folder, here)
    said = lengths_line(examples, config.sft.max_length)
    return config, "\n".join(filter(None, (said, why)))


def dry_run(config: SftRunConfig, backend: str) -> None:
    """Print the settings, the lengths of the data and what memory it will take."""
    config, found = with_validation(config)
    there = Path(config.data).is_file()
    rows = training_rows(config.data, asked_for(config), config.prompts) if there else []
    config, said = before(settled(config), rows, backend == "embedded")
    print("\n".join(filter(None, (dump(config), found, said))))
    by_deepspeed = backend == "deepspeed"
    print(sft_report(config, len(rows) or None) if by_deepspeed else local_report(config))
