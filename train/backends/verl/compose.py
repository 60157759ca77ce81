# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (the extra `cluster` is not there where the rest is checked)
"""verl's own configuration from our overrides, checked by verl; `--dry-run` shows it.

`cluster.verl.<path>=value` is given to verl as it stands: for what Assay has no setting of its own
for, such as `engine_kwargs.sglang`. What it does set, it sets for a reason, and a second value is
refused. What raw settings do to memory is in no estimate.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from assay.console import near_miss
from configs.loader import ConfigError
from configs.machine import ClusterConfig
from configs.schema import GrpoRunConfig
from train.backends.verl.overrides import corrected, overrides
from train.memory import grpo_report

VERSION = "0.9.1"


def installed() -> bool:
    """Whether verl can be imported, without importing it."""
    return importlib.util.find_spec("verl") is not None


def require_verl() -> None:
    """Raises `ConfigError` unless the one version that this backend was written for is there."""
    try:
        found = metadata.version("verl")
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "--backend verl: verl is not installed; install the extra `cluster` (docs/clusters.md)"
        ) from None
    if found != VERSION:
        raise ConfigError(
            f"--backend verl: verl {found} is here, and its settings change between releases; "
            f"install verl=={VERSION}"
        )


def require_attention(cluster: ClusterConfig) -> None:
    """Raises `ConfigError` for flash attention that is not installed: found out here, and not by
    the first training worker after the servers have come up.

    Asked of the distribution: SGLang brings `flash-attn-4`, a namespace package that can be
    imported as `flash_attn` and has nothing of flash-attn 2 in it.
    """
    if cluster.device != "cuda" or cluster.attention != "flash_attention_2":
        return
    try:
        found = metadata.version("flash-attn")
    except metadata.PackageNotFoundError:
        found = ""
    if found.split(".")[0] != "2":
        raise ConfigError(
            "cluster.attention=flash_attention_2: flash-attn 2 is not installed"
            f"{f' (flash-attn {found} is)' if found else ''}; pip install "
            "flash-attn==2.8.3.post2 --no-build-isolation, or set cluster.attention=sdpa (with "
            "cluster.sequence_parallel=1)"
        )


def require_transfer(cluster: ClusterConfig) -> None:
    """Raises `ConfigError` where weights go to GPUs of their own and cupy, which verl sends them
    with, is not installed."""
    if cluster.trainer != "separate_async" or importlib.util.find_spec("cupy"):
        return
    raise ConfigError(
        "cluster.trainer=separate_async: verl sends the weights over NCCL with cupy, which is not "
        "installed; pip install cupy-cuda13x==14.0.1, or set cluster.trainer=colocate_async"
    )


def compose(overrides: Mapping[str, Any], raw: Mapping[str, Any] | None = None) -> Any:
    """The whole configuration (OmegaConf). Raises `ConfigError` for what verl does not know.

    `raw`: keys of `cluster.verl`, which may stand in verl's free sections too.
    """
    require_verl()
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    with initialize_config_module("verl.trainer.config", version_base=None):
        config: Any = hydra_compose("ppo_trainer")
    known: Any = OmegaConf.to_container(config, resolve=False)
    try:
        for key, value in (dict(overrides) | signed(raw or {}, known)).items():
            OmegaConf.update(config, key.lstrip("+"), value, force_add=key.startswith("+"))
    except OmegaConfBaseException as error:
        raise ConfigError(f"verl refuses a setting: {' '.join(str(error).split())}") from None
    return config


def raw_settings(verl: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of `cluster.verl`. Raises `ConfigError` for those that `made` has already."""
    found = dict(_leaves(verl, ""))
    ours = {key.lstrip("+"): value for key, value in made.items()}
    for key in found:
        taken = [k for k in ours if k == key or k.startswith(f"{key}.") or key.startswith(f"{k}.")]
        if taken:
            raise ConfigError(
                f"cluster.verl.{key}: Assay sets {taken[0]}={ours[taken[0]]} from its own settings "
                "(--dry-run shows all of them); change those, and remove this"
            )
    return found


def signed(raw: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with a plus before each key in one of verl's free sections, such as
    `engine_kwargs.sglang`, which verl's file does not have. `known` is verl's own configuration.
    Raises `ConfigError` for a key that it does not have."""
    made: dict[str, Any] = {}
    for key, value in raw.items():
        place: Any = known
        for name in key.split("."):
            if place == {}:  # whatever stands in it is passed on
                break
            if not isinstance(place, Mapping) or name not in place:
                near = near_miss(name, list(place) if isinstance(place, Mapping) else [])
                raise ConfigError(f"cluster.verl.{key}: verl has no {name} there{near}")
            place = place[name]
        made[f"+{key}" if place == {} else key] = value
    return made


def _leaves(values: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def check(config: Any) -> None:
    """verl's `validate_config`, and what it lets through. Raises `ConfigError`."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    import train.backends.verl.advantage  # noqa: F401  # pyright: ignore[reportUnusedImport] (registers our estimator)

    actor = config.actor_rollout_ref.actor
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and not actor.loss_scale_factor:
        raise ConfigError(
            "actor.loss_scale_factor is unset: each micro-batch would be divided by its own "
            "longest answer; set the token budget"
        )
    try:
        validate_config(
            config=config,
            use_reference_policy=need_reference_policy(config),
            use_critic=need_critic(config),
        )
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses the settings: {' '.join(str(error).split())}") from None


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
