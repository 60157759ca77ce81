"""Tables that questions can be asked of, found in folders: what their columns are good for."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from data_gen.krama.lakes.files import SUFFIXES, Layout, layouts, read_frame
from data_gen.krama.lakes.marks import Ambiguous, cleaned_numbers, decimal_of

ROWS = (15, 200_000)
_DIGESTED = 200  # rows at either end that a table is recognised by
_KEYS = 400  # distinct values a join key may have at least up to


@dataclass(frozen=True)
class Table:
    """One table, described.

    `numbers` are columns of measured values, `groups` text columns with repeated values, `names`
    text columns that identify rows, `years` whole-number columns that order rows in time.
    """

    layout: Layout
    rows: int
    digest: str
    numbers: tuple[str, ...]
    groups: tuple[str, ...]
    names: tuple[str, ...]
    years: tuple[str, ...]
    dirty: tuple[str, ...] = ()  # numbers that are written with marks, so they need cleaning
    whole: tuple[str, ...] = ()  # numbers without fractions
    values: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    levels: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])

    @property
    def path(self) -> str:
        """Its file, from the lake's folder."""
        return self.layout.path

    @property
    def load(self) -> str:
        """The pandas expression that reads it from the lake."""
        return self.layout.load

    @property
    def said(self) -> str:
        """How a question names it."""
        return self.layout.said


def read_tables(folder: Path, most: int = 0, refused: list[str] | None = None) -> list[Table]:
    """The usable tables below a folder, sorted by path; a file that cannot be used is left out.

    `most` > 0: of more files, a choice that depends on their names alone is looked at. `refused`
    gets a sentence for every table whose numbers could be read in two ways.
    """
    found: list[Table] = []
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if most and len(paths) > most:
        paths = sorted(Random(0).sample(paths, most))
    for path in paths:
        for layout in layouts(folder, path):
            try:
                table = _describe(folder, layout)
            except Ambiguous as error:
                if refused is not None:
                    refused.append(f"{layout.said}: {error}")
                continue
            if table is not None:
                found.append(table)
    return found


def _describe(folder: Path, layout: Layout) -> Table | None:
    try:
        if layout.form == "csv":
            raw = read_frame(layout.load, folder, raw=True)
            layout = replace(layout, decimal=decimal_of(raw, layout.sep))
        frame = read_frame(layout.load, folder)
    except Ambiguous:
        raise
    except Exception:  # whatever pandas says of a file it cannot read, it is no table for us
        return None
    if not ROWS[0] <= len(frame) <= ROWS[1] or list(frame.index[:1]) != [0]:
        return None  # an index that is not counted came from rows longer than the header
    if layout.form != "csv" and decimal_of(frame, ",") == ",":
        raise Ambiguous("numbers are text with a decimal comma; store them as numbers")
    return _typed(layout, frame, content_digest(frame))


def content_digest(frame: Any) -> str:
    """A hash of names, size and some hundred rows: the same in whatever file a table lies."""
    parts = [str(len(frame)), *(str(c).strip() for c in frame.columns)]
    some = (
        frame.iloc[:_DIGESTED]
        if len(frame) <= 2 * _DIGESTED
        else frame.iloc[[*range(_DIGESTED), *range(len(frame) - _DIGESTED, len(frame))]]
    )
    for name in range(some.shape[1]):
        for value in some.iloc[:, name].tolist():
            if isinstance(value, int | float) and not isinstance(value, bool):
                parts.append("" if value != value else f"{value:.9g}")
            else:
                parts.append("" if value is None else str(value).strip())
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _plain_name(name: Any) -> bool:
    text = str(name)
    return (
        0 < len(text.strip()) <= 60
        and not text.startswith("Unnamed")
        and text.isprintable()  # no line breaks of any kind, no control characters
        and not re.search(r"\.\d+$", text)
        and any(c.isalpha() for c in text)
        and not set(text) & set('"\\{}')  # they would have to be quoted in code and question
    )


def _typed(layout: Layout, frame: Any, digest: str) -> Table | None:
    pd: Any = importlib.import_module("pandas")  # heavy, and its types are partial

    numbers: list[str] = []
    groups: list[str] = []
    names: list[str] = []
    years: list[str] = []
    dirty: list[str] = []
    values: dict[str, list[str]] = {}
    for name in [c for c in frame.columns if _plain_name(c)][:60]:
        column = frame[name]
        filled = column.dropna()
        if len(filled) < 0.5 * len(frame):
            continue
        if pd.api.types.is_bool_dtype(column):
            continue
        if pd.api.types.is_numeric_dtype(column):
            _number(str(name), filled, numbers, years)
            continue
        parsed = cleaned_numbers(filled, layout.decimal).dropna()
        if len(parsed) >= 0.7 * len(filled):
            if parsed.nunique() >= 8:
                numbers.append(str(name))
                dirty.append(str(name))
            continue
        _text(str(name), filled.astype(str).str.strip(), groups, names, values)
    if not numbers or not (groups or names or years):
        return None
    cleaned = {n: cleaned_numbers(frame[n], layout.decimal).dropna() for n in numbers}
    levels = {n: _levels(column) for n, column in cleaned.items()}
    whole = [n for n, column in cleaned.items() if bool((column == column.round()).all())]
    return Table(
        layout,
        len(frame),
        digest,
        tuple(numbers),
        tuple(groups),
        tuple(names),
        tuple(years),
        tuple(dirty),
        tuple(whole),
        values,
        levels,
    )


def _levels(column: Any) -> list[float]:
    """Thresholds to filter by, with three significant digits."""
    return [float(f"{value:.3g}") for value in column.quantile([0.2, 0.35, 0.5, 0.65, 0.8])]


def _number(name: str, filled: Any, numbers: list[str], years: list[str]) -> None:
    whole = bool((filled == filled.round()).all())
    if whole and bool(filled.between(1500, 2100).all()) and filled.nunique() >= 5:
        years.append(name)
    elif filled.nunique() >= 8 and not re.search(r"(?i)\b(id|fid|code|index|key|lat|lon)", name):
        steady = whole and filled.is_unique and bool((filled.diff().dropna() == 1).all())
        if not steady:  # a running number measures nothing
            numbers.append(name)


def _text(
    name: str, filled: Any, groups: list[str], names: list[str], values: dict[str, list[str]]
) -> None:
    distinct = filled.nunique()
    longest = int(filled.str.len().max())
    if longest > 60 or distinct < 2 or not all(map(str.isprintable, filled)):
        return
    if distinct <= min(60, len(filled) // 3):
        groups.append(name)
        values[name] = sorted(filled.unique())
    elif distinct == len(filled) and distinct <= _KEYS:
        names.append(name)
        values[name] = sorted(filled.unique())
