# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""`assay grpo --backend verl --dry-run`: what verl would be given, and whether it can fit."""

from __future__ import annotations

from pathlib import Path

from configs.schema import GrpoRunConfig
from train.backends.verl.compose import check, compose, installed
from train.backends.verl.overrides import corrected, overrides
from train.backends.verl.raw import raw_settings
from train.memory import grpo_report


def _trainer_said(config: GrpoRunConfig) -> str:
    """Which of verl's trainers, and what becomes of rollouts from older weights."""
    cluster, cap = config.cluster, config.rl.correction_cap
    if cluster.trainer == "sync":
        return "trainer: sync (every rollout comes from the newest weights)"
    weighted = f"each token is weighted by min(π_old / q, {cap:g})"
    said = f"trainer: {cluster.trainer} (some rollouts come from older weights; "
    said += weighted if corrected(config) else "no weight corrects for that"
    if cluster.trainer == "separate_async":
        updates = config.rl.prompts_per_step // config.rl.mini_batch
        said += (
            f"; {cluster.rollout_devices} more GPU(s) draw rollouts and get new weights after "
            f"{updates} update(s)"
        )
    return said + ")"


def show(config: GrpoRunConfig) -> None:
    """Print the arithmetic, then verl's own resolved configuration where verl is installed.

    Raises `ConfigError` for settings that verl refuses or that cannot fit into the GPUs.
    """
    made = overrides(config, (Path(config.out) / "verl").resolve())
    raw = raw_settings(config.cluster.verl, made)
    print(grpo_report(config), flush=True)
    print(_trainer_said(config))
    if raw:
        print("\ngiven to verl as they stand (cluster.verl; no estimate knows of them):")
        print("\n".join(f"{key}={value}" for key, value in raw.items()))
    if not installed():
        print("\nverl is not installed here; what it would be given:")
        print("\n".join(f"{key}={value}" for key, value in made.items()))
        return
    composed = compose(made, raw)
    check(composed)
    from omegaconf import OmegaConf

    print("\nverl's configuration, checked by verl:\n" + OmegaConf.to_yaml(composed))
