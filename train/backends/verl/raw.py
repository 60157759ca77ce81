# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Settings that are given to verl as they stand: `cluster.verl.<path>=value`.

For what Assay has no setting of its own for, such as `engine_kwargs.sglang`. What it does set, it
sets for a reason, and a second value for it is refused. Names are checked against the installed
verl's own configuration; what they do to memory is in no estimate.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, cast

from configs.loader import ConfigError


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
    """`raw` in hydra's spelling: a key in one of verl's free sections gets a plus.

    `known` is verl's own configuration. Raises `ConfigError` for a key that it does not have, or
    whose value there is of another kind.
    """
    return {_sign(key, value, known) + key: value for key, value in raw.items()}


def _sign(key: str, value: Any, known: Mapping[str, Any]) -> str:
    place: Any = known
    for name in key.split("."):
        if not isinstance(place, Mapping):
            raise ConfigError(f"cluster.verl.{key}: {name} is below a value of verl's; remove it")
        section = cast("Mapping[str, Any]", place)
        if not section:  # as engine_kwargs.sglang is: whatever stands in it is passed on
            return "+"
        if name not in section:
            near = difflib.get_close_matches(name, list(section), 1, cutoff=0.0)
            raise ConfigError(
                f"cluster.verl.{key}: verl has no {name} there; did you mean {near[0]}?"
            )
        place = section[name]
    if isinstance(place, Mapping) and place:
        raise ConfigError(f"cluster.verl.{key} is a section of verl's; set a key in it")
    if not _alike(place, value):
        raise ConfigError(
            f"cluster.verl.{key}={value}: verl has {place!r} there; give a value of that kind"
        )
    return ""


def _alike(old: Any, new: Any) -> bool:
    if old is None or new is None or isinstance(old, Mapping):
        return True
    if isinstance(old, str) and old.startswith("${"):  # taken from another key
        return True
    if isinstance(old, bool) or isinstance(new, bool):
        return isinstance(old, bool) and isinstance(new, bool)
    if isinstance(old, int | float):
        return isinstance(new, int | float)
    return isinstance(new, type(old))


def _leaves(values: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found += _leaves(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
