"""Recipe files: YAML (or JSON) with the steps in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from rewards.gold.core import GoldError, nearest
from rewards.gold.rows import read_steps

FIELDS = ("recipe", "process", "profile")


def read_recipe(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """(steps as `[{operator, params}]`, profile or None), checked.

    The file is a list of steps or a mapping with `recipe` and maybe `profile`. A step is a name, a
    mapping `name: {parameters}`, or `{operator: name, params: {…}}`. A Data-Juicer configuration
    works too: its `process` list is the recipe and its other keys are left alone.
    Raises `GoldError` naming the file and what is wrong.
    """
    import yaml

    try:
        loaded: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise GoldError(f"{path}: cannot be read as YAML: {error}") from None
    profile: str | None = None
    if isinstance(loaded, dict):
        top = cast("dict[str, Any]", loaded)
        for name in top:
            if name not in FIELDS and "process" not in top:
                raise GoldError(f"{path}: no field {name!r}{nearest(name, FIELDS)}")
        profile = top.get("profile")
        loaded = top.get("recipe", top.get("process"))
    if not isinstance(loaded, list) or not loaded:
        raise GoldError(f"{path}: wanted a list of steps, or a mapping with a list under 'recipe'")
    steps = [_normal(step) for step in cast("list[Any]", loaded)]
    try:
        read_steps(steps)
    except GoldError as error:
        raise GoldError(f"{path}: {error}") from None
    return cast("list[dict[str, Any]]", json.loads(json.dumps(steps))), profile


def _normal(step: object) -> object:
    """A step in its long form; anything odd is passed on for `read_steps` to name."""
    if isinstance(step, str):
        return {"operator": step}
    if isinstance(step, dict) and "operator" not in step and len(cast("Any", step)) == 1:
        ((name, params),) = cast("dict[str, Any]", step).items()
        return {"operator": name, "params": params or {}}
    return cast("object", step)
