"""What every training or evaluation command does first: device, threads, model, checks."""

from __future__ import annotations

import ctypes
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from configs.loader import ConfigError
from configs.schema import EngineConfig, ModelConfig
from rollouts.torch_engine import ModelError, set_threads
from train.policy import LlamaPolicy, TransformersPolicy, load_policy

# Resident bytes a parameter while training: bf16 weight and gradient, float32 master, gradient and
# two moments, and a packed copy for decoding.
BYTES_A_PARAMETER = 22


@dataclass(frozen=True)
class Machine:
    """Where tensors live and how many threads one operation may use."""

    device: str
    threads: int


def prepare(config: EngineConfig) -> Machine:
    """Choose the device and set the threads. Raises `ConfigError` for a GPU that is not there."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device=cuda: torch sees no GPU; set engine.device=auto or cpu")
    cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    return Machine("cuda" if cuda else "cpu", set_threads(config.threads or "auto"))


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
    weights = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    if not weights:
        raise ModelError(f"{folder} holds no *.safetensors weights; give a Hugging Face folder")
    full = train and not (adapters is not None and adapters.lora_rank)
    need = weights // 2 * (BYTES_A_PARAMETER if full else 4)
    on_gpu = machine.device == "cuda"
    free = torch.cuda.mem_get_info()[0] if on_gpu else _available_memory()
    if free is not None and need > free:
        spread = "spread it over GPUs with --backend (docs/clusters.md)"
        raise ModelError(
            f"{folder}: about {need / 1e9:.1f} GB of {'GPU ' if on_gpu else ''}memory needed, "
            f"{free / 1e9:.1f} GB available; use a smaller model, set model.lora_rank, or "
            f"{spread if on_gpu else 'take a machine with more memory'}"
        )
    return load_policy(folder, config.dtype, machine.device, adapters)


def _available_memory() -> int | None:
    """Bytes Linux says can be had without swapping, or None elsewhere."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def give_back_memory() -> None:
    """Return freed heap pages to the system: batches of changing shape leave gaps that add up."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc only
    except (OSError, AttributeError):
        return


def publish(work: Path, target: Path) -> Path:
    """Rename a finished folder into place, replacing an older one."""
    shutil.rmtree(target, ignore_errors=True)
    work.rename(target)
    return target
