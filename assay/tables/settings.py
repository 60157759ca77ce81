"""Doubts, and `tables.yaml` beside the data, whose lines settle them.

A reader that meets a place where a file can be read in two ways does not decide. The column, or the
table where no single column is in doubt, is refused with a code, a sentence that names what was
found and where, and the line of `tables.yaml` that settles it:

    "sales/*.csv":
      decimal: ","
      missing: {price: [M, "-9999"]}
      dates: {day: "%d/%m/%Y"}

Of several patterns that match a file the later one wins, key by key.
"""

from __future__ import annotations

import codecs
import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from assay.errors import TaskError

FILE = "tables.yaml"
# what each means: docs/tables.md, Doubts
_CODES = """
encoding layout number_mark sentinel date_order merged_cells formulas total_rows notes
repeated_header header_rows several_tables wide_rows short_rows alike_names alike_values
duplicate_stamps
"""
CODES = frozenset(_CODES.split())
_PLAIN = re.compile(r"[^\W\d][\w .()/-]*")
_YAML = frozenset(["y", "yes", "n", "no", "on", "off", "true", "false", "null", "none"])


@dataclass(frozen=True)
class Doubt:
    """One doubt. `column` is empty where the whole table is in doubt. `said` is one sentence;
    `settle` is what to write under the file's pattern in `tables.yaml`, or empty where only the
    file itself can be mended. Raises `ValueError` for a code that is not in `CODES`."""

    code: str
    said: str
    settle: str = ""
    column: str = ""
    path: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no doubt is called {self.code!r}")

    def line(self) -> str:
        """`[code] 'column': sentence; settle it in tables.yaml: LINE`."""
        where = f"{self.column!r}: " if self.column else ""
        remedy = f"; settle it in tables.yaml: {self.settle}" if self.settle else ""
        return f"[{self.code}] {where}{self.said}{remedy}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def shown(text: str, most: int = 30) -> str:
    """A cell as a sentence names it: in quotes, cut where it is long."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def row_list(numbers: Iterable[int]) -> str:
    """`2, 244-245`: numbers of rows as `drop_rows` takes them."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def yaml_word(text: str) -> str:
    """A word as it can stand in a list of YAML."""
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _YAML and text == text.strip()
    return text if plain else json.dumps(text, ensure_ascii=False)


def yaml_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(yaml_word, texts))}]"


@dataclass(frozen=True)
class FileSettings:
    """What the user says of a file, or of one part of it; what is empty is decided from the cells,
    or is in doubt.

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
        """The columns that the settings name."""
        by_column = (self.missing, self.dates, self.text, self.numbers, self.spellings)
        by_row = (self.decimals, self.drop_where, self.drop_duplicates, self.fill_down or ())
        return [c for listed in (*by_column, *by_row) for c in listed if c != "*"]


@dataclass(frozen=True)
class TableSettings:
    """What one `tables.yaml` says, in its order: (pattern of files, settings)."""

    rules: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def of(self, path: str, part: str = "") -> FileSettings:
        """The settings of a file, its path relative to the folder of `tables.yaml`, with /; or of
        one part of it (a sheet, a table), whose pattern may also be `PATH [PART]`."""
        found: dict[str, Any] = {}
        sheet = part.rpartition("!")[0] or part  # a range of a sheet is under its rules too
        for pattern, given in self.rules:
            exact = bool(part) and pattern in (f"{path} [{part}]", f"{path} [{sheet}]")
            if exact or fnmatch.fnmatchcase(path, pattern):
                found |= given
        return replace(FileSettings(), **found)


def read_settings(root: Path) -> TableSettings:
    """The settings of a folder; none without a file. Raises `TaskError` for what cannot be
    meant."""
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
        if key not in _CHECKS:
            raise TaskError(f"{where}: unknown key {key!r}; known are {', '.join(_CHECKS)}")
        try:
            found[key] = _CHECKS[key](value)
        except ValueError as error:
            raise TaskError(f"{where}: {key}: {error}") from None
    if "decimal" in found:  # of the whole table, or of single columns
        found["decimals"] = found["decimal"]
        found["decimal"] = found["decimals"].pop("*", "")
    return found


def _wanted(kind: type, wanted: str) -> Callable[[Any], Any]:
    """A check that a value is of a type."""

    def check(value: Any) -> Any:
        if type(value) is not kind or (kind is int and value < 0):
            raise ValueError(f"{value!r}; wanted {wanted}")
        return value

    return check


_text = _wanted(str, "text in quotes")
_flag = _wanted(bool, "true or false")


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if _text(value) not in allowed:
            raise ValueError(f"{value!r}; wanted one of {', '.join(map(repr, allowed))}")
        return value

    return check


def _by_column(check: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """A check of what is said of single columns."""

    def of_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"wanted column: value pairs; got {value!r}")
        found: dict[str, Any] = {}
        for name, given in cast("dict[Any, Any]", value).items():
            try:
                found[str(name)] = check(given)
            except ValueError as error:
                raise ValueError(f"{str(name)!r}: {error}") from None
        return found

    return of_all


def _sign(value: Any) -> str:
    if len(_text(value)) != 1 and value not in (r"\s+", ""):
        raise ValueError(f"{value!r}; wanted one character")
    return value


def _encoding(value: Any) -> str:
    try:
        codecs.lookup(_text(value))
    except LookupError:
        raise ValueError(f"no encoding {value!r}; such as utf-8, cp1252, latin-1") from None
    return value


def _decimal(value: Any) -> dict[str, str]:
    mark = _one_of(".", ",")
    return _by_column(mark)(value) if isinstance(value, dict) else {"*": mark(value)}


def _date(value: Any) -> str:
    if value is not False and (not isinstance(value, str) or "%" not in value):
        raise ValueError(f"{value!r}; wanted %d.%m.%Y or the like, or false")
    return value or ""


def _row_numbers(value: Any) -> tuple[tuple[int, int], ...]:
    """Rows and spans of rows: `[3, 241-245]`."""
    found: list[tuple[int, int]] = []
    for one in cast("list[Any]", value if isinstance(value, list) else [value]):
        first, mark, last = str(one).partition("-")
        if isinstance(one, bool) or not first.isdecimal() or not (last.isdecimal() or not mark):
            raise ValueError(f"{one!r}; wanted numbers of rows such as [3, 241-245]")
        found.append((int(first), int(last or first)))
    return tuple(found)


def _spelled(value: Any) -> dict[str, str]:
    if value != "distinct" and not isinstance(value, dict):
        raise ValueError(f"{value!r}; wanted {{as written: as meant}}, or distinct")
    pairs = cast("dict[Any, Any]", {} if value == "distinct" else value)
    return {str(k): str(v) for k, v in pairs.items()}


def _words(value: Any) -> tuple[str, ...]:
    listed = cast("list[Any]", value if isinstance(value, list) else [value])
    if any(isinstance(v, (bool, dict, list)) or v is None for v in listed):
        raise ValueError(f"{value!r}; wanted a list of words, in quotes")
    return tuple(str(v) for v in listed)


# key → the check of its value, which raises `ValueError`
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "sep": _sign,
    "encoding": _encoding,
    "quote": _sign,
    "skip": _wanted(int, "the number of lines above the names"),
    "header": _flag,
    "names": _words,
    "ranges": _words,
    "merged": _one_of("fill", "first"),
    "fill_down": _words,
    "formulas": _one_of("stored", "missing"),
    "drop_rows": _row_numbers,
    "drop_where": _by_column(_words),
    "drop_duplicates": _words,
    "decimal": _decimal,
    "thousands": _one_of(".", ",", " ", "'"),
    "missing": _by_column(_words),
    "dates": _by_column(_date),
    "text": _words,
    "numbers": _words,
    "spellings": _by_column(_spelled),
    "ragged": _one_of("skip", "refuse"),
    "use": _flag,
    "published": _flag,
}
