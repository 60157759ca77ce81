"""The embedded engine: decode on this machine's CPU or GPU with torch alone."""

from rollouts.engines.torch.device import bfloat16_speed, choose_device, choose_dtype
from rollouts.engines.torch.engine import (
    TorchEngine,
    TransformersEngine,
    folder_is_llama,
    load_engine,
    load_llama,
    set_threads,
)
from rollouts.engines.torch.llama import Llama, ModelError

__all__ = [
    "Llama",
    "ModelError",
    "TorchEngine",
    "TransformersEngine",
    "bfloat16_speed",
    "choose_device",
    "choose_dtype",
    "folder_is_llama",
    "load_engine",
    "load_llama",
    "set_threads",
]
