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

from assay.errors import TaskError

FILE = "tables.yaml"


@dataclass(frozen=True)
class FileSettings:
    """What the user says of a file, or of one part of it; what is empty is decided from the cells,
    or is in doubt (`assay.tables.doubts`).

    They are obeyed in this order: the bytes are decoded; `skip`, `ranges` and `drop_rows` choose
    rows; `header` and `names` name the columns; `fill_down` fills cells; `drop_where` and
    `drop_duplicates` leave out rows by their cells as written, blanks at the ends taken off;
    `spellings`, `missing`, `text`, `numbers`, `dates`, `decimal` and `thousands` say what the cells
    mean.
    """

    sep: str = ""
    encoding: str = ""
    quote: str | None = None
    skip: int | None = None
    header: bool | None = None
    names: tuple[str, ...] = ()  # of all columns, in order, in place of those in the file
    ranges: tuple[str, ...] = ()  # of a sheet: A1:E241 is one table
    merged: str = ""  # fill: a merged cell counts for all its cells; first: for its first alone
    # columns whose empty cells mean the value above them; () says that there are none
    fill_down: tuple[str, ...] | None = None
    # stored: results that are all 0 are right; missing: formulas without a result have no value
    formulas: str = ""
    # numbers of lines or rows as an editor or a spreadsheet shows them, first and last included;
    # () says that every row is one, None leaves it to the cells
    drop_rows: tuple[tuple[int, int], ...] | None = None
    drop_where: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    drop_duplicates: tuple[str, ...] = ()  # of rows that are equal here, the first is kept
    decimal: str = ""
    decimals: Mapping[str, str] = field(default_factory=dict[str, str])  # of single columns
    thousands: str = ""
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dates: Mapping[str, str] = field(default_factory=dict[str, str])
    text: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()  # that are no codes
    # column → {as written: as meant}; nothing where values that look alike are different values
    spellings: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    ragged: str = ""
    use: bool = True
    published: bool = True  # false: no copy of a published table, whatever its columns hold

    def missing_of(self, column: str) -> tuple[str, ...] | None:
        """The words that mean no value in a column; None where the cells decide."""
        return self.missing.get(column, self.missing.get("*"))

    def named(self) -> list[str]:
        """The columns that the rule names."""
        listed = (*self.missing, *self.dates, *self.text, *self.numbers, *self.spellings)
        listed = (*listed, *self.decimals, *self.drop_where, *self.drop_duplicates)
        listed = (*listed, *(self.fill_down or ()))
        return [c for c in listed if c != "*"]


_KEYS = tuple(f.name for f in fields(FileSettings) if f.name != "decimals")
_MARKS = {
    "decimal": (".", ","),
    "thousands": (".", ",", " ", "'"),
    "ragged": ("skip", "refuse"),
    "merged": ("fill", "first"),
    "formulas": ("stored", "missing"),
}


@dataclass(frozen=True)
class TableSettings:
    """The rules of one `tables.yaml`, in its order."""

    rules: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def of(self, path: str, part: str = "") -> FileSettings:
        """The rule of a file, its path relative to the folder of `tables.yaml`, with /; or of one
        part of it (a sheet, a table), whose pattern may also be `PATH [PART]`."""
        found: dict[str, Any] = {}
        for pattern, given in self.rules:
            sheet = part.rpartition("!")[0] or part  # a range of a sheet is under its rules too
            exact = bool(part) and pattern in (f"{path} [{part}]", f"{path} [{sheet}]")
            if exact or fnmatch.fnmatchcase(path, pattern):
                found |= given
        return replace(FileSettings(), **found)


def read_settings(root: Path) -> TableSettings:
    """The rules of a folder; none without a file. Raises `TaskError` for what cannot be meant."""
    path = root / FILE
    if not path.is_file():
        return TableSettings()
    import yaml

    try:
        loaded: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise TaskError(f"{path}: not valid YAML ({said[:120]})") from None
    if loaded is None:
        return TableSettings()
    if not isinstance(loaded, dict):
        raise TaskError(f"{path}: wanted patterns of files, such as \"sales/*.csv\": {{sep: ';'}}")
    rows = cast("dict[Any, Any]", loaded)
    return TableSettings(tuple((str(k), _checked(v, f"{path}: {k!r}")) for k, v in rows.items()))


def _checked(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise TaskError(f"{where}: wanted keys such as sep, decimal, missing; got {given!r}")
    found: dict[str, Any] = {}
    for key, value in cast("dict[Any, Any]", given).items():
        if key not in _KEYS:
            raise TaskError(f"{where}: unknown key {key!r}; known are {', '.join(_KEYS)}")
        if key == "decimal":
            found |= _decimals(value, f"{where}: {key}")
        else:
            found[key] = _value(str(key), value, f"{where}: {key}")
    return found


def _decimals(value: Any, where: str) -> dict[str, Any]:
    """A mark of the whole table, or of single columns: `{residents: ","}`, `"*"` for the others."""
    if not isinstance(value, dict):
        return {"decimal": _value("decimal", value, where), "decimals": {}}
    listed = cast("dict[Any, Any]", value).items()
    marks = {str(k): _value("decimal", v, f"{where}: {str(k)!r}") for k, v in listed}
    return {"decimal": marks.pop("*", ""), "decimals": marks}


def _value(key: str, value: Any, where: str) -> Any:
    if key in ("missing", "dates", "drop_where"):
        return _mapped(key, value, where)
    if key in ("text", "numbers", "names", "ranges", "drop_duplicates", "fill_down"):
        return _words(value, where)
    if key == "drop_rows":
        return _row_numbers(value, where)
    if key == "spellings":
        return _spellings(value, where)
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
    if key != "dates":
        return {str(k): _words(v, f"{where}: {k!r}") for k, v in rows.items()}
    for name, form in rows.items():
        if form is not False and (not isinstance(form, str) or "%" not in form):
            raise TaskError(f"{where}: {name!r}: {form!r}; wanted %d.%m.%Y or the like, or false")
    return {str(k): str(v or "") for k, v in rows.items()}


def _row_numbers(value: Any, where: str) -> tuple[tuple[int, int], ...]:
    """Rows and spans of rows: `[3, 241-245]`."""
    found: list[tuple[int, int]] = []
    for one in cast("list[Any]", value if isinstance(value, list) else [value]):
        first, mark, last = str(one).partition("-")
        if isinstance(one, bool) or not first.isdecimal() or not (last.isdecimal() or not mark):
            raise TaskError(f"{where}: {one!r}; wanted numbers of rows such as [3, 241-245]")
        found.append((int(first), int(last or first)))
    return tuple(found)


def _spellings(value: Any, where: str) -> dict[str, dict[str, str]]:
    if not isinstance(value, dict):
        raise TaskError(f"{where}: wanted column: {{as written: as meant}}; got {value!r}")
    found: dict[str, dict[str, str]] = {}
    for column, given in cast("dict[Any, Any]", value).items():
        if given != "distinct" and not isinstance(given, dict):
            said = "wanted {as written: as meant}, or distinct"
            raise TaskError(f"{where}: {column!r}: {given!r}; {said}")
        pairs = cast("dict[Any, Any]", {} if given == "distinct" else given)
        found[str(column)] = {str(k): str(v) for k, v in pairs.items()}
    return found


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
