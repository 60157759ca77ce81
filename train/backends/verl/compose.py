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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from assay.console import near_miss
from assay.record import installed
from configs.loader import ConfigError
from configs.machine import ClusterConfig
from configs.schema import GrpoRunConfig
from train.backends.verl.overrides import overrides
from train.memory import grpo_report

VERSION = "0.9.1"


def lacking(cluster: ClusterConfig) -> Iterator[tuple[str, str]]:
    """(topic, sentence) of each package that a run needs and that is not here: found out before the
    servers have come up, and not by the first worker."""
    found = installed(("verl", "flash-attn"))
    if "verl" not in found:
        yield "package", "verl is not installed; install the extra `cluster` (docs/clusters.md)"
    elif found["verl"] != VERSION:
        yield (
            "package",
            f"verl {found['verl']} is here, and its settings change between releases; install "
            f"verl=={VERSION}",
        )
    # asked of the distribution: SGLang brings `flash-attn-4`, a namespace package that can be
    # imported as `flash_attn` and has nothing of flash-attn 2 in it
    flash = found.get("flash-attn", "")
    wanted = cluster.device == "cuda" and cluster.attention == "flash_attention_2"
    if wanted and flash.split(".")[0] != "2":
        yield (
            "flash-attn",
            "cluster.attention=flash_attention_2: flash-attn 2 is not installed"
            f"{f' (flash-attn {flash} is)' if flash else ''}; pip install "
            "flash-attn==2.8.3.post2 --no-build-isolation, or set cluster.attention=sdpa (with "
            "cluster.sequence_parallel=1)",
        )
    if cluster.trainer == "separate_async" and not importlib.util.find_spec("cupy"):
        yield (
            "cupy",
            "cluster.trainer=separate_async: verl sends the weights over NCCL with cupy, which is "
            "not installed; pip install cupy-cuda13x==14.0.1, or set "
            "cluster.trainer=colocate_async",
        )


def require_verl(cluster: ClusterConfig | None = None) -> None:
    """Raises `ConfigError` unless the one version that this backend was written for is there, and
    what `cluster` needs beside it."""
    for topic, sentence in lacking(cluster or ClusterConfig(attention="sdpa")):
        raise ConfigError(f"--backend verl: {sentence}" if topic == "package" else sentence)


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
    found = dict(_leaves(verl))
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


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def check(config: Any) -> None:
    """verl's own `validate_config`. Raises `ConfigError`."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        validate_config(
            config=config,
            use_reference_policy=need_reference_policy(config),
            use_critic=need_critic(config),
        )
    except (AssertionError, ValueError) as error:
        raise ConfigError(f"verl refuses the settings: {' '.join(str(error).split())}") from None


def show(config: GrpoRunConfig) -> None:
    """Print the arithmetic, then verl's own resolved configuration where verl is installed.

    Raises `ConfigError` for settings that verl refuses or that cannot fit into the GPUs.
    """
    made = overrides(config, (Path(config.out) / "verl").resolve())
    raw = raw_settings(config.cluster.verl, made)
    print(grpo_report(config), flush=True)
    if raw:
        print("\ngiven to verl as they stand (cluster.verl; no estimate knows of them):")
        print("\n".join(f"{key}={value}" for key, value in raw.items()))
    if not installed(("verl",)).get("verl"):
        print("\nverl is not installed here; what it would be given:")
        print("\n".join(f"{key}={value}" for key, value in made.items()))
        return
    composed = compose(made, raw)
    check(composed)
    from omegaconf import OmegaConf

    print("\nverl's configuration, checked by verl:\n" + OmegaConf.to_yaml(composed))
