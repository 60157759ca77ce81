"""What the user says of a file in `tables.yaml`: facts for the second reader too, as they are no
decision of the first one. The nearest `tables.yaml` above the file counts; of several patterns that
match it the later wins, key by key."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any, cast

import yaml

FILE = "tables.yaml"


def told(path: Path) -> dict[str, Any]:
    """The keys that the user sets for a file; none where nothing is said."""
    for folder in path.resolve().parents:
        if (folder / FILE).is_file():
            return _of(folder / FILE, path.resolve().relative_to(folder).as_posix())
    return {}


def _of(rules: Path, name: str) -> dict[str, Any]:
    try:
        loaded: Any = yaml.safe_load(rules.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # the first reader says what is wrong with it
    found: dict[str, Any] = {}
    for pattern, given in cast(
        "dict[Any, Any]", loaded if isinstance(loaded, dict) else {}
    ).items():
        if fnmatch.fnmatchcase(name, str(pattern)) and isinstance(given, dict):
            found |= cast("dict[str, Any]", given)
    return found
