"""`--describe FILE`: what the user says of tables: title, licence, text, words for columns.

YAML holds `title`, `licence`, `about` and `columns` (column → words) of every table that is given;
or these for each table by its name, its path, or a pattern of paths such as `sales/*.csv`, at the
top or below `tables`. Any other file is read as text: lines `Title: …`, `Licence: …` and `column:
words`; lines without a colon are the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from assay.console import near_miss
from assay.task import TaskError

_FIELDS = ("title", "licence", "about", "columns")


@dataclass(frozen=True)
class About:
    """What is said of one table."""

    title: str = ""
    licence: str = ""
    about: str = ""
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


NOTHING = About()
Described = Mapping[str, About]  # by name, path or pattern; "" means every table


def read_describe(path: Path | None) -> dict[str, About]:
    """What a file says. Raises `TaskError` in one sentence."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"--describe {path}: {error}; give a UTF-8 file") from None
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return {"": _from_lines(text)}
    import yaml

    try:
        whole = _mapping(yaml.safe_load(text), str(path))
    except yaml.YAMLError as error:
        raise TaskError(f"--describe {path}: no YAML: {' '.join(str(error).split())}") from None
    shared = {k: v for k, v in whole.items() if k in _FIELDS}
    if "tables" in whole:
        tables = _mapping(whole["tables"], f"{path}, tables")
    elif shared or not all(isinstance(v, dict) for v in whole.values()) or _misspelt(whole):
        return {"": _about(whole, str(path))}
    else:
        tables = whole
    return {
        name: _about(shared | _mapping(said, f"{path}, {name}"), f"{path}, {name}")
        for name, said in tables.items()
    }


def _misspelt(whole: Mapping[str, Any]) -> bool:
    """Whether a name at the top is nearly that of a field: a table of that name stands below
    `tables`."""
    return any(near_miss(name, _FIELDS) for name in whole)


def names(pattern: str, name: str, path: str) -> bool:
    """Whether an entry means a table."""
    plain = path.rpartition("/")[2].partition(".")[0]
    return pattern in ("", name, path, plain) or fnmatch(path, pattern)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TaskError(f"--describe {where}: wanted names with values, not {value!r}"[:200])
    return {str(k): v for k, v in cast("dict[Any, Any]", value).items()}


def _about(said: Mapping[str, Any], where: str) -> About:
    for name in said:
        if name not in _FIELDS:
            raise TaskError(f"--describe {where}: no field {name!r}{near_miss(name, _FIELDS)}")
    columns = _mapping(said.get("columns") or {}, f"{where}, columns")
    for name, words in columns.items():
        if not isinstance(words, str):
            raise TaskError(f"--describe {where}: column {name}: wanted words, not {words!r}")
    plain = {k: str(said[k]).strip() for k in ("title", "licence", "about") if said.get(k)}
    return About(columns={k: " ".join(str(v).split()) for k, v in columns.items()}, **plain)


def _from_lines(text: str) -> About:
    title, licence, about = "", "", list[str]()
    columns: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, words = (part.strip() for part in line.partition(":"))
        if not colon or not words:
            about.append(line)
        elif name.lower() == "title":
            title = words
        elif name.lower() in ("licence", "license"):
            licence = words
        else:
            columns[name.strip("`*- ")] = words
    return About(title, licence, "\n".join(about).strip(), columns)
