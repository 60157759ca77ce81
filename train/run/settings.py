"""A run's settings: the schema's sections, and the rewards of the families that the run uses."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from assay.family import all_families, use_families
from configs.loader import ConfigError, load, read_section
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig
from train.model.source import resolve_model

Config = TypeVar("Config", DemoConfig, SftRunConfig, GrpoRunConfig)
RunConfig = TypeVar("RunConfig", SftRunConfig, GrpoRunConfig)


def load_run(
    cls: type[Config],
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    families: Sequence[str] = (),
) -> Config:
    """A run's config with every reward setting resolved, its families loaded.

    `families` come on top of those the settings name. Raises `ConfigError` for a setting that
    cannot be used and `TaskError` for a family that cannot be loaded.
    """
    config = load(cls, path, overrides)
    if isinstance(config, SftRunConfig | GrpoRunConfig):
        loaded = use_families([*config.families, *families])
        config = replace(config, families=tuple(dict.fromkeys(f.origin for f in loaded)))
    if isinstance(config, SftRunConfig):
        return config
    where = " + ".join([*([str(path)] if path else []), "settings"])
    resolved = {name: asdict(w) for name, w in weights_of(config.reward, where).items()}
    return replace(config, reward=resolved)


def weights_of(reward: Mapping[str, Any], where: str = "settings") -> dict[str, Any]:
    """Family name → its weights, for every family known. Raises `ConfigError`."""
    known = all_families()
    for name in reward:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean reward.{near[0]}?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"{where}: reward.{name}: no such family; {hint}")
        if not isinstance(reward[name], Mapping):
            raise ConfigError(f"{where}: reward.{name} is a value, not a section; set a key in it")
    return {
        name: read_section(family.weights, reward.get(name) or {}, where, f"reward.{name}.")
        for name, family in known.items()
    }


def with_folder(config: RunConfig) -> RunConfig:
    """With the model's folder in place of a hub name: the other processes look for nothing."""
    folder = str(resolve_model(config.model.path))
    return replace(config, model=replace(config.model, path=folder))
