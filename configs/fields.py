"""Fields of settings: which a resumed run must keep, and a config as plain data.

Reading YAML and overrides is in loader.py, which offers everything here too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from assay.errors import TaskError


class ConfigError(TaskError):
    """A setting that cannot be used; the message names the file (or command line) and the key."""


def locked(default: Any) -> Any:
    """A field whose value a resumed run must not change."""
    return field(default=default, metadata={"locked": True})


def fitted() -> Any:
    """A locked number that is fitted to the data: 0, which may be written `auto`, until it is."""
    return field(default=0, metadata={"locked": True, "auto": True})


# A locked field of nested settings whose names the schema does not know: a plain dict. Who knows
# them checks each part with `read_section`.
OPEN: Mapping[str, Any] = {"locked": True, "open": True}


def to_dict(config: Any) -> dict[str, Any]:
    """Plain JSON data of a config, nested, in field order."""
    return {f.name: _plain(getattr(config, f.name)) for f in fields(config)}


def config_hash(config: Any) -> str:
    """16 hexadecimal digits that depend on the values only."""
    text = json.dumps(to_dict(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@runtime_checkable
class LocksMore(Protocol):
    """A section in which other values decide whether further fields are locked."""

    def also_locked(self) -> tuple[str, ...]: ...


def locked_difference(old: Mapping[str, Any] | Any, new: Any) -> list[str]:
    """Dotted names of locked fields in which `new` differs from `old` (a config or its dict)."""
    before = to_dict(old) if is_dataclass(old) else cast("Mapping[str, Any]", old)
    section: object = new
    also = section.also_locked() if isinstance(section, LocksMore) else ()
    found: list[str] = []
    for f in fields(new):
        value = getattr(new, f.name)
        if is_dataclass(value):
            names = locked_difference(before.get(f.name) or dict[str, Any](), value)
            found += [f"{f.name}.{name}" for name in names]
        elif f.metadata.get("open"):
            old_leaves, new_leaves = _leaves(before.get(f.name), f.name), _leaves(value, f.name)
            names = old_leaves.keys() | new_leaves.keys()
            found += sorted(
                n for n in names if old_leaves.get(n, _MISSING) != new_leaves.get(n, _MISSING)
            )
        elif not (f.metadata.get("locked") or f.name in also):
            continue
        elif before.get(f.name, _MISSING) != _plain(value):
            found.append(f.name)
    return found


_MISSING = object()


def _leaves(value: Any, prefix: str) -> dict[str, Any]:
    """Dotted name → value of every setting in nested mappings."""
    if not isinstance(value, Mapping):
        return {} if value is None else {prefix: value}
    found: dict[str, Any] = {}
    for name, inner in cast("Mapping[str, Any]", value).items():
        found |= _leaves(inner, f"{prefix}.{name}")
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[Any, ...]", value)]
    return str(value) if isinstance(value, Path) else value


# Rules that several sections share. Each raises `ValueError` naming the field, what it is and what
# to set; the loader adds where it stands.


def at_least(section: Any, least: float, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if value < least:
            raise ValueError(f"{name}={value} is too small; set {least:g} or more")


def share(section: Any, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} is not a share; set a number from 0 to 1")


def check_optimiser(betas: tuple[float, float], grad_clip: float) -> None:
    for i, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(f"betas[{i}]={beta}: wanted 0 or more and below 1")
    if grad_clip < 0:
        raise ValueError(f"grad_clip={grad_clip}: wanted a number above 0 (0: off)")


def check_warmup(warmup: float) -> None:
    if warmup < 0 or warmup != int(warmup) > 0:
        raise ValueError(f"warmup={warmup:g}: wanted whole steps, or a share of them below 1")


def warmup_steps(warmup: float, steps: int) -> int:
    """Steps of warm-up: the setting itself, or below 1 that share of all `steps`, rounded."""
    return round(warmup * steps) if warmup < 1 else int(warmup)
