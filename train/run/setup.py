# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What every training or evaluation command does first: device, threads, model, checks."""

from __future__ import annotations

import random
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch

from configs.loader import ConfigError
from configs.schema import CheckpointConfig, EngineConfig, LogConfig, ModelConfig
from rollouts.engines.torch.device import choose_dtype, computes_bfloat16
from rollouts.engines.torch.engine import set_threads
from train.memory import BYTES_A_PARAMETER
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy
from train.run.memory import choose_allocation, require_memory
from train.run.record import read_run_record


class Settings(Protocol):
    """What the settings of any run have."""

    @property
    def seed(self) -> int: ...
    @property
    def out(self) -> str: ...
    @property
    def model(self) -> ModelConfig: ...
    @property
    def engine(self) -> EngineConfig: ...
    @property
    def log(self) -> LogConfig: ...
    @property
    def checkpoint(self) -> CheckpointConfig: ...


Config = TypeVar("Config", bound=Settings)


@dataclass(frozen=True)
class Machine:
    """Where tensors live and how many threads one operation may use."""

    device: str
    threads: int


def prepare(config: EngineConfig) -> Machine:
    """Choose the device and set the threads. Raises `ConfigError` for a GPU that is not there."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device=cuda: torch sees no GPU; set engine.device=auto or cpu")
    choose_allocation()
    return Machine(_device(config), set_threads(config.threads or "auto"))


def _device(config: EngineConfig) -> str:
    cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    return "cuda" if cuda else "cpu"


def settled(config: Config, device: str | None = None) -> Config:
    """`config` with `engine.dtype=auto` decided: the dtype the run in `config.out` began with, else
    what is fast on `device` (None: the one `engine.device` means here).

    A run keeps its dtype on every machine; that it will be slow there is said on stderr. Raises
    `ConfigError` where torch cannot compute in it.
    """
    if config.engine.dtype != "auto":
        return config
    where = device or _device(config.engine)
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
    machine: Machine,
    train: bool,
    adapters: ModelConfig | None = None,
) -> LlamaPolicy | TransformersPolicy:
    """Load a model after asking whether it can fit. Raises `ModelError` in one sentence."""
    full = train and not (adapters is not None and adapters.lora_rank)
    require_memory(folder, machine.device, BYTES_A_PARAMETER if full else 4)
    dtype = choose_dtype(config.dtype, machine.device)
    policy = load_policy(folder, dtype, machine.device, adapters)
    if train and config.gradient_checkpointing:
        policy.checkpoint_layers()
    return policy


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
