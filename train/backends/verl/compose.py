# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (the extra `cluster` is not there where the rest is checked)
"""verl's own configuration from our overrides, checked by verl and then by us."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

from configs.cluster import ClusterConfig
from configs.loader import ConfigError
from train.backends.verl.overrides import CPU_ROLLOUT, MODES
from train.backends.verl.raw import signed

VERSION = "0.9.1"
ROLLOUTS = ("sglang", "vllm", CPU_ROLLOUT)


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
    if raw:
        from omegaconf import OmegaConf

        known: Any = OmegaConf.to_container(compose({}), resolve=False)
        overrides = {**overrides, **signed(raw, known)}
    require_verl()
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    words = [f"{key}={_hydra_text(value)}" for key, value in overrides.items()]
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            return hydra_compose("ppo_trainer", words)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"verl refuses a setting: {' '.join(str(error).split())}") from None


def check(config: Any) -> None:
    """verl's `validate_config`, and what it lets through. Raises `ConfigError`."""
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    import train.backends.verl.advantage  # noqa: F401  # pyright: ignore[reportUnusedImport] (registers our estimator)

    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    if rollout.name not in ROLLOUTS:
        raise ConfigError(f"rollout.name={rollout.name}; wanted one of {', '.join(ROLLOUTS)}")
    if config.algorithm.adv_estimator not in ADV_ESTIMATOR_REGISTRY:
        raise ConfigError(f"adv_estimator={config.algorithm.adv_estimator}: verl knows no such")
    if actor.loss_agg_mode not in MODES.values():
        raise ConfigError(f"actor.loss_agg_mode={actor.loss_agg_mode}: neither preset's loss")
    if actor.loss_agg_mode == "seq-mean-token-sum-norm" and not actor.loss_scale_factor:
        raise ConfigError(
            "actor.loss_scale_factor is unset: each micro-batch would be divided by its own "
            "longest answer; set the token budget"
        )
    if config.data.train_batch_size % actor.ppo_mini_batch_size:
        raise ConfigError(
            f"ppo_mini_batch_size={actor.ppo_mini_batch_size} does not divide "
            f"train_batch_size={config.data.train_batch_size}"
        )
    try:
        validate_config(
            config=config,
            use_reference_policy=need_reference_policy(config),
            use_critic=need_critic(config),
        )
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses the settings: {' '.join(str(error).split())}") from None


def _hydra_text(value: Any) -> str:
    """A value in hydra's override grammar."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return "{" + ",".join(f"{key}:{_hydra_text(v)}" for key, v in items) + "}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ",".join(_hydra_text(v) for v in value) + "]"
    return json.dumps(str(value)).replace("$", "\\$")
