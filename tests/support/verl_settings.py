"""What a verl run has instead of GPUs and rollout servers (`cluster.device=cpu`); the device itself
is verl_cpu.py. Read by train/backends/verl, also where verl is not installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from configs.loader import ConfigError
from configs.schema import GrpoRunConfig

CPU_ROLLOUT = "assay_cpu"


def overrides(config: GrpoRunConfig) -> dict[str, Any]:
    """Verl's settings: float32, plain attention, one storage unit, logical GPUs for Ray."""
    if config.rl.kl_coef:
        raise ConfigError("rl.kl_coef: verl's reference model does not run on the CPU; set it to 0")
    asked = yaml.safe_load(
        (Path(__file__).parents[1] / "data" / "verl_cpu.yaml").read_text("utf-8")
    )
    made = {**asked["always"], "actor_rollout_ref.rollout.name": CPU_ROLLOUT}
    if not config.cluster.ray_address:
        made |= asked["own ray"] | {"+ray_kwargs.ray_init.num_gpus": config.cluster.devices}
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
