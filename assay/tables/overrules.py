"""`tables.yaml` beside the data: decisions of the user, by file.

    "sales/*.csv":
      decimal: ","
      missing: {price: [M, "-9999"]}
      dates: {day: "%d/%m/%Y"}

Of several patterns that match a file the later one wins, key by key.
"""

from __future__ import annotations

import codecs
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from rewards.task import TaskError

FILE = "tables.yaml"


@dataclass(frozen=True)
class Rule:
    """What the user says of a file; what is empty is decided from the cells."""

    sep: str = ""
    encoding: str = ""
    quote: str | None = None
    skip: int | None = None
    header: bool | None = None
    decimal: str = ""
    thousands: str = ""
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dates: Mapping[str, str] = field(default_factory=dict[str, str])
    text: tuple[str, ...] = ()
    ragged: str = ""
    use: bool = True
    published: bool = True  # false: no copy of a published table, whatever its columns hold

    def missing_of(self, column: str) -> tuple[str, ...] | None:
        """The words that mean no value in a column; None where the cells decide."""
        return self.missing.get(column, self.missing.get("*"))

    def named(self) -> list[str]:
        """The columns that the rule names."""
        return [c for c in (*self.missing, *self.dates, *self.text) if c != "*"]


_KEYS = tuple(f.name for f in fields(Rule))
_MARKS = {"decimal": (".", ","), "thousands": (".", ",", " ", "'"), "ragged": ("skip", "refuse")}


@dataclass(frozen=True)
class Overrules:
    """The rules of one `tables.yaml`, in its order."""

    rules: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def of(self, path: str) -> Rule:
        """The rule of a file, its path relative to the folder of `tables.yaml`, with /."""
        found: dict[str, Any] = {}
        for pattern, given in self.rules:
            if fnmatch.fnmatchcase(path, pattern):
                found |= given
        return replace(Rule(), **found)


def overrules(root: Path) -> Overrules:
    """The rules of a folder; none without a file. Raises `TaskError` for what cannot be meant."""
    path = root / FILE
    if not path.is_file():
        return Overrules()
    import yaml

    try:
        loaded: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise TaskError(f"{path}: not valid YAML ({said[:120]})") from None
    if loaded is None:
        return Overrules()
    if not isinstance(loaded, dict):
        raise TaskError(f"{path}: wanted patterns of files, such as \"sales/*.csv\": {{sep: ';'}}")
    rows = cast("dict[Any, Any]", loaded)
    return Overrules(tuple((str(k), _checked(v, f"{path}: {k!r}")) for k, v in rows.items()))


def _checked(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise TaskError(f"{where}: wanted keys such as sep, decimal, missing; got {given!r}")
    found: dict[str, Any] = {}
    for key, value in cast("dict[Any, Any]", given).items():
        if key not in _KEYS:
            raise TaskError(f"{where}: unknown key {key!r}; known are {', '.join(_KEYS)}")
        found[key] = _value(str(key), value, f"{where}: {key}")
    return found


def _value(key: str, value: Any, where: str) -> Any:
    if key in ("missing", "dates"):
        return _mapped(key, value, where)
    if key == "text":
        return _words(value, where)
    if key == "skip":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TaskError(f"{where}: {value!r}; wanted the number of lines above the names")
        return value
    if key in ("header", "use", "published"):
        if not isinstance(value, bool):
            raise TaskError(f"{where}: {value!r}; wanted true or false")
        return value
    if not isinstance(value, str):
        raise TaskError(f"{where}: {value!r}; wanted text in quotes")
    if key in _MARKS and value not in _MARKS[key]:
        raise TaskError(f"{where}: {value!r}; wanted one of {', '.join(map(repr, _MARKS[key]))}")
    if key == "encoding" and not _known_encoding(value):
        raise TaskError(f"{where}: no encoding {value!r}; such as utf-8, cp1252, latin-1")
    if key in ("sep", "quote") and len(value) != 1 and value not in (r"\s+", ""):
        raise TaskError(f"{where}: {value!r}; wanted one character")
    return value


def _mapped(key: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TaskError(f"{where}: wanted column: value pairs; got {value!r}")
    rows = cast("dict[Any, Any]", value)
    if key == "missing":
        return {str(k): _words(v, f"{where}: {k!r}") for k, v in rows.items()}
    for name, form in rows.items():
        if form is not False and (not isinstance(form, str) or "%" not in form):
            raise TaskError(f"{where}: {name!r}: {form!r}; wanted %d.%m.%Y or the like, or false")
    return {str(k): str(v or "") for k, v in rows.items()}


def _words(value: Any, where: str) -> tuple[str, ...]:
    listed = cast("Sequence[Any]", value if isinstance(value, list) else [value])
    if any(isinstance(v, (bool, dict, list)) or v is None for v in listed):
        raise TaskError(f"{where}: {value!r}; wanted a list of words, in quotes")
    return tuple(str(v) for v in listed)


def _known_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except LookupError:
        return False
    return True
