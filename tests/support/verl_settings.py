"""What a verl run has instead of GPUs and rollout servers (`cluster.device=cpu`); the device itself
is verl_cpu.py. Read by train/backends/verl, also where verl is not installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from configs.loader import ConfigError
from configs.schema import GrpoRunConfig

CPU_ROLLOUT = "assay_cpu"


def overrides(config: GrpoRunConfig) -> dict[str, Any]:
    """Verl's settings: float32, plain attention, one storage unit, logical GPUs for Ray."""
    if config.rl.kl_coef:
        raise ConfigError("rl.kl_coef: verl's reference model does not run on the CPU; set it to 0")
    actor = "actor_rollout_ref.actor"
    made: dict[str, Any] = {
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        f"{actor}.fsdp_config.model_dtype": "fp32",
        f"+{actor}.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"+{actor}.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        "actor_rollout_ref.rollout.name": CPU_ROLLOUT,
        "actor_rollout_ref.rollout.load_format": "auto",
        "actor_rollout_ref.rollout.free_cache_engine": False,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "reward.num_workers": 0,  # nothing asks it, and a process costs seconds on two cores
    }
    if not config.cluster.ray_address:
        made |= {
            "ray_kwargs.ray_init.num_cpus": 16,
            "+ray_kwargs.ray_init.num_gpus": config.cluster.devices,
            "+ray_kwargs.ray_init.include_dashboard": False,
            "+ray_kwargs.ray_init.object_store_memory": 200_000_000,
        }
    return made


def environment(made: dict[str, str]) -> dict[str, str]:
    """Variables of every process of the run, beside or in place of `made`."""
    return made | {
        "PYTHONPATH": os.pathsep.join([made["PYTHONPATH"], str(Path(__file__).parent)]),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        # Ray would end our workers when somebody else fills this machine's memory
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_worker_niceness": "0",  # its default of 15 starves them beside anything else
    }
