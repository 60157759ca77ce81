"""What a user says of the tables of a lake: titles, licences, and columns in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

import yaml

from assay.task import TaskError

_FIELDS = {"title", "licence", "columns"}


@dataclass(frozen=True)
class About:
    """Of one table: a title, a licence, and words for its columns."""

    title: str = ""
    licence: str = ""
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


Described = Mapping[str, About]  # by a pattern of paths


def read_about(path: Path) -> Described:
    """A YAML (or JSON) file: `PATTERN: {title, licence, columns: {NAME: words}}`, where a pattern
    is a path in the lake, with `*`. Raises `TaskError` in one sentence."""
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"--describe {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise TaskError(f"--describe {path}: no YAML ({first}); see docs/krama.md") from None
    if not isinstance(found, dict):
        raise TaskError(f"--describe {path}: give `FILE: {{title: …}}` entries; see docs/krama.md")
    entries = cast("dict[Any, Any]", found)
    return {str(name): _entry(path, str(name), entry) for name, entry in entries.items()}


def _entry(path: Path, name: str, entry: Any) -> About:
    if not isinstance(entry, dict):
        raise TaskError(f"--describe {path}: {name}: give title, licence or columns there")
    fields = cast("dict[str, Any]", entry)
    if unknown := sorted(set(map(str, fields)) - _FIELDS):
        known = ", ".join(sorted(_FIELDS))
        raise TaskError(f"--describe {path}: {name}: unknown field {unknown[0]!r}; give {known}")
    columns: Any = fields.get("columns") or {}
    if not isinstance(columns, dict):
        raise TaskError(f"--describe {path}: {name}: columns: give `NAME: words` there")
    said = {str(k): _line(v) for k, v in cast("dict[Any, Any]", columns).items()}
    return About(_line(fields.get("title")), _line(fields.get("licence")), said)


def _line(value: Any) -> str:
    """Words that can stand in a question: on one line, without what breaks quoting."""
    text = " ".join(str(value or "").split())
    return "".join(c for c in text if c.isprintable())[:120]


def about(path: str, described: Described, licence: str = "") -> About:
    """What is said of the table at a path: the first pattern that fits."""
    for pattern, found in described.items():
        if path == pattern or fnmatch(path, pattern):
            return About(found.title, found.licence or licence, found.columns)
    return About(licence=licence)


NOTHING = About()
