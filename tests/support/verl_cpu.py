"""The CPU device of verl's tests (`cluster.device=cpu`): its trainer on a machine without a GPU.

Everything runs for real (Ray, TransferQueue, FSDP2 over gloo, agent loops, sandbox, checkpoints)
except what only a GPU has: the embedded engine in a Ray actor takes the place of SGLang. verl loads
this in every process (`VERL_USE_EXTERNAL_MODULES`), while it is itself being imported. Needs verl.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl_settings import CPU_ROLLOUT


def _nothing(*args: Any, **more: Any) -> None:
    return None


def _zero(*args: Any, **more: Any) -> int:
    return 0


def _module() -> Any:
    """What verl expects of `torch.cuda`, on the CPU: memory is 0, streams do nothing."""
    zeros = [f"{most}memory_{kind}" for most in ("", "max_") for kind in ("allocated", "reserved")]
    silent = ["reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect", "empty_cache"]
    return SimpleNamespace(
        **dict.fromkeys([*zeros, "current_device", "initial_seed"], _zero),
        **dict.fromkeys([*silent, "set_device", "synchronize", "manual_seed_all"], _nothing),
        is_available=lambda: True,
        device_count=lambda: 1,
        is_initialized=lambda: True,
        manual_seed=torch.manual_seed,
        mem_get_info=lambda *a: (0, 1),
        is_bf16_supported=lambda: True,
        get_rng_state=lambda *a: torch.get_rng_state(),
        set_rng_state=lambda state, *a: torch.set_rng_state(state),
        get_device_name=lambda *a: "cpu",
        current_stream=torch.cpu.current_stream,
        stream=torch.cpu.stream,
        Stream=torch.cpu.Stream,
        device=lambda *a: contextlib.nullcontext(),
        get_device_capability=lambda *a: (0, 0),
        nvtx=SimpleNamespace(range=contextlib.nullcontext),
    )


class CpuPlatform(PlatformBase):
    """The platform "cpu": gloo, and Ray's logical GPUs as slots."""

    device_name = vendor_name = "cpu"
    device_module = _module()
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return os.environ.get("VERL_PLATFORM") == "cpu"

    def current_device(self) -> Any:
        return torch.device("cpu")  # an index would mean a GPU to torch

    def device_count(self) -> int:
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "ASSAY_NO_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return contextlib.nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False


def install() -> None:
    """Register platform, process group, training engine and rollout. Safe to call twice."""
    if getattr(install, "done", False):
        return
    install.done = True  # type: ignore[attr-defined]
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
    _accept_gloo_twice()
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    kinds: Any = {"model_type": "language_model", "backend": ["fsdp", "fsdp2"], "device": "cpu"}
    EngineRegistry.register(**kinds)(_engine())
    base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = "verl_cpu_rollout.CpuRollout"
    RolloutReplicaRegistry.register(CPU_ROLLOUT, _replica)


def _engine() -> Any:
    """verl's FSDP engine, with merged adapters sent as they are: verl rounds them to bfloat16, and
    the sampler would compute with weights other than the trainer's."""
    from torch.distributed.tensor import DTensor
    from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
    from verl.utils.model import convert_weight_keys
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    class CpuEngine(FSDPEngineWithLMHead):
        def _merged_lora_per_tensor_param(self) -> Generator[tuple[str, torch.Tensor]]:
            with merged_lora_context(self.module, backup_adapters=True):
                named = normalize_peft_param_name(self.module.state_dict())
                for name, weight in convert_weight_keys(named, self.module).items():
                    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
                    yield name, whole.detach().clone()  # the base comes back when this ends

    return CpuEngine


def _replica() -> Any:
    """Imported when it is needed: a worker that unpickles the server comes through here first."""
    return importlib.import_module("verl_cpu_rollout").CpuReplica


def _accept_gloo_twice() -> None:
    """verl names a backend for the CPU and one for the device; here both are the CPU's."""
    plain = dist.init_process_group

    @functools.wraps(plain)
    def init_process_group(backend: Any = None, *args: Any, **more: Any) -> Any:
        backend = "cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend
        return plain(backend, *args, **more)

    dist.init_process_group = init_process_group


if os.environ.get("VERL_PLATFORM") == "cpu":
    install()
