# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""One run: a folder that this process holds, its settings, record, log, checkpoints, stop flag and
validation.

`assay demo`, `assay sft` and `assay grpo` begin with `with Run(config) as run:`.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from filelock import FileLock, Timeout

from assay import record as provenance
from assay.task import Score, Task
from configs.loader import ConfigError, locked_difference, to_dict
from configs.machine import EngineConfig, ModelConfig, ValidationConfig
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig
from rollouts.engines.torch.engine import set_threads
from rollouts.engines.torch.load import choose_device, choose_dtype, computes_bfloat16
from rollouts.environment import Budget, Maker
from rollouts.prompts import ChatTokenizer, keep_template, template_arguments
from rollouts.sampler import Asked, Batch, Plan, sample
from rollouts.trajectory import Sampling, Trajectory
from train.memory import BYTES_A_PARAMETER, choose_allocation, require_memory
from train.model.batch import Scorer, cuts_of, lengths_of
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy
from train.run.checkpoint import Checkpoints, StopFlag, Stopped, require_disk
from train.run.log import RunLog, rollout_metrics
from train.run.record import (
    has_begun,
    hashes_of,
    note_in_record,
    now,
    read_run_record,
    refuse_other_inputs,
    write_run_record,
)
from train.run.trained_on import Trained, write_trained

Config = TypeVar("Config", DemoConfig, SftRunConfig, GrpoRunConfig)
Trainable = LlamaPolicy | TransformersPolicy
DONE = "DONE"  # a file: tells a job script that there is nothing to go on with
LOCK, HOLDER = ".lock", ".lock-holder"

# (finished step, last step): evaluates when that is due, and logs what it finds
Validate = Callable[[int, int], None]


def no_validation(step: int, last: int) -> None:
    """A run without a validation file."""


@dataclass(frozen=True)
class Loop:
    """What a training loop is given beside its model, its data and its own section of settings."""

    seed: int
    log: RunLog
    checkpoints: Checkpoints

    micro_tokens: int = 4096
    """Tokens in one forward and backward pass. Fewer need less memory; gradients are then added up
    in another order."""

    slots: int = 64
    """Answers decoded side by side."""

    rounding: str = "spread"
    """How float32 weights become bfloat16 ones: nearest or spread (train/model/optim.py)."""

    validate: Validate = no_validation


class Run(Generic[Config]):
    """Use as a context: entering takes the folder, leaving it gives it back.

    Entering raises `ConfigError` when another process holds the folder, when it holds a run with
    other locked settings or other inputs, or when the disk has less than `disk` bytes; nothing is
    written then. `inputs`: what the run works on, paths by their content, texts as they are.
    """

    def __init__(
        self,
        config: Config,
        inputs: Mapping[str, Path | str] | None = None,
        disk: int = 4_000_000_000,
    ) -> None:
        self.out, self.disk = Path(config.out), disk
        self.inputs: Mapping[str, Path | str] = dict(inputs or {})
        self.started = now()
        self.config: Config = config
        self.stop = StopFlag()
        self.trained: Trained | None = None  # what goes beside the models that are saved
        self._leave = ExitStack()

    def __enter__(self) -> Run[Config]:
        with ExitStack() as entered:
            require_disk(self.out, self.disk, "checkpoints and models of this run")
            entered.enter_context(held(self.out))
            self.config = settled(self.config)
            refuse_other_run(self.config, self.out)
            self.bind(self.inputs)
            self.stop.listen()
            entered.callback(self.stop.deaf)
            self.device = prepare(self.config.engine)
            seed_globals(self.config.seed)
            (self.out / DONE).unlink(missing_ok=True)
            provenance.made(self.out)
            self.record()
            self.log = RunLog(self.out, self.config.log, to_dict(self.config))
            entered.callback(self.log.close)
            self._leave = entered.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._leave.close()

    def bind(self, inputs: Mapping[str, Path | str]) -> None:
        """Further `inputs`. Raises `ConfigError` where a run that has begun here worked on
        something else."""
        self.inputs = hashes_of(inputs)
        refuse_other_inputs(self.inputs, self.out)

    def record(self, **more: Any) -> None:
        """Write config.yaml and run.json; the inputs are hashed."""
        write_run_record(self.out, self.config, self.inputs, self.started, **more)

    def load(
        self, folder: Path, train: bool = False, adapters: ModelConfig | None = None
    ) -> Trainable:
        """The model in `folder`, after asking whether it fits. run.json says by what it trains."""
        policy = load_checked(folder, self.config.engine, self.device, train, adapters)
        if train:
            compiled = isinstance(policy, LlamaPolicy) and policy.kernels is not None
            note_in_record(self.out, kernels="compiled" if compiled else "torch")
        return policy

    def loop(self, stage: str, validate: Validate = no_validation) -> Loop:
        """What the training loop of a stage needs of this run."""
        config, folder = self.config, self.out / "checkpoints" / stage
        checkpoints = Checkpoints(folder, config, config.checkpoint.keep, self.stop)
        limits = (config.engine.micro_tokens, config.engine.slots, config.engine.rounding)
        return Loop(config.seed, self.log, checkpoints, *limits, validate)

    def save(self, policy: Trainable, name: str, notes: Mapping[str, Any] | None = None) -> Path:
        """Write the model as `out/name`, whole or not at all; `notes` are JSON files in it."""
        arguments = self.config.model.chat_template_kwargs
        return save_model(self.out / name, policy.save, arguments, self.trained, notes)

    def saved(self, name: str) -> Path | None:
        """`out/name`, if that model is there."""
        put_back(self.out / name)
        return self.out / name if (self.out / name).is_dir() else None

    def remove(self, name: str) -> None:
        """Delete the model `out/name`."""
        put_back(self.out / name)
        shutil.rmtree(self.out / name, ignore_errors=True)

    def between(self, stage: str) -> None:
        """Raise `Stopped` after a finished stage when that was asked for."""
        if self.stop():
            raise Stopped(stage, self.stop.asked)

    def finish(self) -> None:
        """There is nothing to go on with."""
        (self.out / DONE).touch()


# --- the folder


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Hold the run folder until the block ends, or the process does, however it ends.

    Raises `ConfigError` in one sentence when another process holds it: two would tear each other's
    checkpoints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(folder / LOCK, timeout=0), folder / HOLDER
    try:
        lock.acquire()
    except Timeout:
        who = holder.read_text(encoding="utf-8").strip() if holder.is_file() else ""
        raise ConfigError(
            f"{folder}: {who or 'another process'} is running in this folder; wait for it to end, "
            "or set another out="
        ) from None
    try:
        holder.write_text(f"process {os.getpid()} on {platform.node()}\n")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def refuse_other_run(config: Any, out: Path) -> None:
    """Raise `ConfigError` naming the locked settings in which a run that has begun here differs."""
    old = read_run_record(out).get("config")
    before = cast("dict[str, Any]", old or {})
    rl, noise = (cast("dict[str, Any]", before.get(name) or {}) for name in ("rl", "noise"))
    by_rate = rl.get("curriculum", "none") != "none"
    if by_rate or noise.get("share"):
        raise ConfigError(
            f"{out} began with {'rl.curriculum' if by_rate else 'noise.share'}, which is gone; "
            "resume it with the revision that its run.json names, or set another out="
        )
    changed = locked_difference(old, config) if old and has_begun(out) else []
    if changed:
        raise ConfigError(
            f"{out} holds a run with other settings ({', '.join(changed)}); put them back to "
            "resume it, or set another out="
        )


def save_model(
    target: Path,
    write: Callable[[Path], None],
    template: Mapping[str, Any],
    trained: Trained | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """A model folder, whole or not at all: what `write` puts there, which is the files beside the
    weights too, the arguments of its chat template, the record of what it was trained on, and
    `notes`, which are JSON files."""
    work = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(work, ignore_errors=True)
    write(work)
    keep_template(work, template_arguments(work, template))
    for file, value in (notes or {}).items():
        (work / file).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    if trained is not None:
        write_trained(work, trained)
    return publish(work, target)


def publish(work: Path, target: Path) -> Path:
    """Rename a finished folder into place; an older one stands aside until that is done."""
    aside = target.with_name(f".old-{target.name}")
    if target.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
    work.rename(target)
    shutil.rmtree(aside, ignore_errors=True)
    return target


def put_back(target: Path) -> None:
    """After a kill inside `publish`: the older folder in its place again."""
    aside = target.with_name(f".old-{target.name}")
    if aside.is_dir() and not target.is_dir():
        aside.rename(target)


# --- the machine


def prepare(config: EngineConfig) -> str:
    """The device that is meant, after setting threads and memory for it. Raises `ModelError` for a
    GPU that is not there."""
    device = choose_device(config.device)
    choose_allocation()
    set_threads(config.threads or "auto")
    return device


def settled(config: Config, device: str | None = None) -> Config:
    """`config` with `engine.dtype=auto` decided: the dtype the run in `config.out` began with, else
    what is fast on `device` (None: the one `engine.device` means here).

    A run keeps its dtype on every machine; that it will be slow there is said on stderr. Raises
    `ConfigError` where torch cannot compute in it.
    """
    if config.engine.dtype != "auto":
        return config
    where = device or choose_device(config.engine.device)
    set_threads(config.engine.threads or "auto")  # what is fast is measured with them
    begun = (read_run_record(Path(config.out)).get("config") or {}).get("engine") or {}
    dtype = begun.get("dtype", "auto")
    if dtype == "auto":
        dtype = choose_dtype("auto", where)
    elif dtype == "bfloat16" and where == "cpu":
        _say_slow(config.out)
    return replace(cast(Any, config), engine=replace(config.engine, dtype=dtype))


def _say_slow(out: str) -> None:
    """What a run that began in bfloat16 meets on this CPU, if it is not speed."""
    if not computes_bfloat16():
        raise ConfigError(
            f"{out} began with engine.dtype=bfloat16, in which torch cannot compute on this CPU; "
            "resume it on a machine like its first, or begin again with another out="
        )
    if choose_dtype("auto", "cpu") != "bfloat16":
        print(
            f"{out} began with engine.dtype=bfloat16 and goes on in it; this CPU computes it "
            "slowly",
            file=sys.stderr,
        )


def seed_globals(seed: int) -> None:
    """Set the process-wide random states. Nothing here draws from them, but checkpoints carry them,
    and two runs of the same settings are to leave the same files."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def load_checked(
    folder: Path,
    config: EngineConfig,
    device: str,
    train: bool,
    adapters: ModelConfig | None = None,
) -> Trainable:
    """Load a model after asking whether it can fit. Raises `ModelError` in one sentence."""
    full = train and not (adapters is not None and adapters.lora_rank)
    require_memory(folder, device, BYTES_A_PARAMETER if full else 4)
    policy = load_policy(folder, choose_dtype(config.dtype, device), device, adapters)
    if train and config.gradient_checkpointing:
        policy.checkpoint_layers()
    return policy


# --- evaluation while it trains

BEST = "best"  # the folder of the best model, in the run's
NOTE = "validation.json"  # in it: which step, and what it reached


@dataclass(frozen=True)
class Validation:
    """The validation tasks of a run and what answers to them need."""

    run: Run[Any]
    tasks: Sequence[Task]
    tokenizer: ChatTokenizer
    score: Scorer
    config: ValidationConfig

    max_new_tokens: int
    """Longest answer, where `config` leaves it open."""

    maker: Maker | None = None
    budget: Budget | None = None

    def of(self, policy: Trainable) -> Validate:
        """What the loop that trains `policy` calls after every step.

        Every `config.every` steps and after the last it logs the greedy mean outcome and reward as
        a row of stage `eval`, and saves the model as `best/` when the mean outcome is above all
        before. Nothing here draws at random, so training goes on to the same bits.
        """
        if not any((self.run.out / "checkpoints").glob("*/step_*")):
            self.run.remove(BEST)  # left by a run that ended before its first checkpoint

        def validate(step: int, last: int) -> None:
            if step % self.config.every == 0 or step == last:
                self._evaluate(policy, step, last)

        return validate

    def _evaluate(self, policy: Trainable, step: int, last: int) -> None:
        groups, scores = self.answers(policy)
        found = rollout_metrics(scores, lengths_of(groups), cuts_of(groups))
        found = {k: v for k, v in found.items() if not k.startswith("by_group/")}
        self.run.log.record("eval", step, found)
        scored = sum(s.outcome is not None for row in scores for s in row)
        mean, before = found["outcome/mean"], self.best()
        better = scored > 0 and (before is None or mean > before)
        if better:
            self.run.save(policy, BEST, {NOTE: {"step": step, **found}})
        lost = f", {len(scores) - scored} without an outcome" if scored < len(scores) else ""
        print(
            f"validation {step}/{last} | outcome {mean:.3f} | reward {found['reward/mean']:.3f} | "
            f"tok {found['response_length/mean']:.0f} | {len(scores)} tasks{lost}"
            + (" | best so far" if better else ""),
            flush=True,
        )

    def answers(self, policy: Trainable) -> tuple[list[list[Trajectory]], list[list[Score]]]:
        """One greedy answer per task, and its score."""
        slots = self.run.config.engine.slots
        engine = policy.engine(self.tokenizer.stop_ids, slots)
        room = self.config.max_new_tokens or self.max_new_tokens
        plan = Plan(room, self.budget or Budget())
        greedy = Sampling(room, temperature=0.0)
        groups: list[list[Trajectory]] = []
        sample(
            Asked(self.tasks, lambda task: plan, greedy, maker=self.maker),
            Batch(engine, self.tokenizer, slots),
            lambda task, run: groups.append([run]),
        )
        return groups, self.score(self.tasks, groups)

    def best(self) -> float | None:
        """The best mean outcome so far."""
        folder = self.run.saved(BEST)
        if folder is None:
            return None
        try:
            return float(json.loads((folder / NOTE).read_text(encoding="utf-8"))["outcome/mean"])
        except (OSError, ValueError, KeyError):
            return None
