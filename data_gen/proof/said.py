"""What the user says of a file in `tables.yaml`: the only settings that the second reader takes."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

FILE = "tables.yaml"


@dataclass(frozen=True)
class Said:
    """The keys that hold for one table of a file, as they are written; empty where nothing is
    said. The first reader refuses a file of keys that cannot be meant."""

    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def text(self, key: str) -> str:
        return str(self.given.get(key) or "")

    def number(self, key: str) -> int:
        return int(self.given.get(key) or 0)

    def words(self, key: str) -> list[str]:
        return _words(self.given.get(key))

    def of(self, key: str) -> dict[str, Any]:
        """A key that says something column by column."""
        return _mapping(self.given.get(key))

    def decimal(self, column: str) -> str:
        """The decimal mark of a column: said of it, of all others, or of the table."""
        if not isinstance(self.given.get("decimal"), dict):
            return self.text("decimal")
        by_column = self.of("decimal")
        return str(by_column.get(column, by_column.get("*", "")))

    def missing(self, column: str) -> list[str] | None:
        """The words that mean no value in a column, without blanks around them; None where nothing
        is said."""
        by_column = self.of("missing")
        if column not in by_column and "*" not in by_column:
            return None
        return [word.strip() for word in _words(by_column.get(column, by_column.get("*")))]

    def dropped(self) -> set[int] | None:
        """The numbers of lines or rows that are no rows; None where nothing is said."""
        if self.given.get("drop_rows") is None:
            return None
        found: set[int] = set()
        for span in self.words("drop_rows"):
            first, _, last = span.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
        return found


def said_of(path: Path, root: Path | None = None, part: str = "") -> Said:
    """What `tables.yaml` of the root folder, or else the nearest above the file, says of a part of
    a file: of several patterns that match, the later wins, key by key."""
    whole = path.resolve()
    for folder in [root.resolve()] if root else whole.parents:
        if (folder / FILE).is_file():
            return Said(_matching(folder / FILE, whole.relative_to(folder).as_posix(), part))
    return Said()


def _matching(rules: Path, name: str, part: str) -> dict[str, Any]:
    try:
        loaded: Any = yaml.safe_load(rules.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}  # the first reader says what is wrong with it
    found: dict[str, Any] = {}
    for pattern, given in _mapping(loaded).items():
        if fnmatch.fnmatchcase(name, pattern) or (part and pattern == f"{name} [{part}]"):
            found |= _mapping(given)
    return found


def _mapping(value: Any) -> dict[str, Any]:
    pairs = cast("dict[Any, Any]", value if isinstance(value, dict) else {})
    return {str(key): held for key, held in pairs.items()}


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(one) for one in cast("list[Any]", value if isinstance(value, list) else [value])]
