"""What the columns of a frame are good for: the description that questions are drawn from."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from data_gen.dare.sources import fingerprints
from data_gen.krama.lakes.about import About
from data_gen.krama.lakes.measures import (
    are_cells,
    counted,
    counts_cases,
    is_running,
    measure,
    of_many_things,
    opaque_group,
    stands_for,
    words_of,
)
from data_gen.krama.lakes.ops import Cut
from data_gen.krama.lakes.tables import Half, Read, Table
from rewards.table_marks import marks_of_frame

ROWS = (15, 200_000)
_COLUMNS = 60  # looked at
_KEYS = 5_000  # distinct values of a join key
_GROUPS = 60  # distinct values of a column to group by
_LONGEST = 80  # characters of a text
_SHORT = 25  # characters, on average, of one of two things in a cell
_FIGURE = r"[-+<>=]*[\d.,:/\s-]*\d[.%]?|[-+]?inf"
_YEAR = {"year", "years", "yr", "built", "founded", "born", "season", "since", "date"}
_CUTS: dict[Cut, tuple[str, str]] = {  # (a mark that the text has, the part)
    "after_comma": (",", r",([^,]*)$"),
    "before_comma": (",", r"^(.*),[^,]*$"),
    "in_brackets": (")", r"\(([^()]*)\)\s*$"),
}


@dataclass
class _Found:
    """Columns by what they are good for, while they are looked at."""

    numbers: list[str] = field(default_factory=list[str])
    totals: list[str] = field(default_factory=list[str])
    groups: list[str] = field(default_factory=list[str])
    names: list[str] = field(default_factory=list[str])
    years: list[str] = field(default_factory=list[str])
    single_years: list[str] = field(default_factory=list[str])
    halves: list[Half] = field(default_factory=list[Half])
    filled: dict[str, Any] = field(default_factory=dict[str, Any])  # of the numbers: their values
    whole: set[str] = field(default_factory=set[str])  # of the numbers: those without fractions
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    fewest: dict[str, int] = field(default_factory=dict[str, int])
    spans: dict[str, list[int]] = field(default_factory=dict[str, list[int]])


def describe(reading: Read, frame: Any, about: About, holes: tuple[str, ...] = ()) -> Table | str:
    """The table, or why no question can be asked of it."""
    if not ROWS[0] <= len(frame) <= ROWS[1]:
        return f"{len(frame)} rows; wanted {ROWS[0]} to {ROWS[1]}"
    pd: Any = importlib.import_module("pandas")  # heavy, and its types are partial
    np: Any = importlib.import_module("numpy")
    found = _Found()
    for name in [c for c in frame.columns if _plain_name(c)][:_COLUMNS]:
        column = frame[name]
        filled = column.dropna()
        if len(filled) < 0.5 * len(frame) or pd.api.types.is_bool_dtype(column):
            continue
        if pd.api.types.is_numeric_dtype(column):
            _number(str(name), filled, found, about)
        elif column.dtype.kind not in "mM" and not _unsaid(str(name), about):
            _text(str(name), filled.astype(str).str.strip(), found)
    odd = _unmeasured(frame, found, about)
    found.numbers = [n for n in found.numbers if n not in odd]
    found.totals = [n for n in found.totals if n not in odd]
    if not found.numbers:
        return "no column of measured numbers (names such as v1 need words: --describe)"
    if not (found.groups or found.names or found.years or found.halves):
        return "no column to group by, to match by or to order by"
    if _is_matrix(found):
        return "a matrix: its rows are named as its columns"
    listed = tuple(str(c) for c in frame.columns)
    whole = tuple(n for n in found.numbers if n in found.whole)
    with np.errstate(over="ignore"):  # numbers beyond those of 32 bits
        marks, kin = fingerprints(frame), marks_of_frame(frame)
    return Table(
        reading,
        len(frame),
        listed,
        tuple(found.numbers),
        tuple(found.groups),
        tuple(found.names),
        tuple(found.years),
        tuple(found.totals),
        holes,
        whole,
        tuple(found.single_years),
        tuple(found.halves),
        found.values,
        found.fewest,
        found.spans,
        {n: _levels(found.filled[n], n in whole) for n in found.numbers},
        marks,
        kin,
        about,
    )


def _unmeasured(frame: Any, found: _Found, about: About) -> set[str]:
    """Columns of numbers that the other columns show to be no measures."""
    words = about.columns
    odd = {n for n in found.numbers if of_many_things(n, found.groups, words.get(n, ""))}
    whole = [n for n in found.numbers if n in found.whole]
    said = {n: words.get(n, "") for n in map(str, frame.columns)}
    counts = [n for n in whole if counts_cases(n, said[n])]
    sizes = _sizes(frame, [c for c in said if c not in counts]) if counts else []
    for name in found.numbers:
        if name in whole and are_cells(name, said[name], sizes, len(frame)):
            odd |= {name, *(n for n in whole if sizes)}
        if name not in found.totals:
            odd |= {name for text in found.groups if stands_for(frame[name], frame[text])}
    return odd


def _sizes(frame: Any, names: list[str]) -> list[int]:
    """How many values each column has that numbers no rows; none where two rows have the same."""
    keys = frame[[n for n in names if not is_running(frame[n])]].astype(str)
    return [] if keys.empty or keys.duplicated().any() else [int(keys[c].nunique()) for c in keys]


def _is_matrix(found: _Found) -> bool:
    """Whether half of the columns of numbers are named in a column of names, as in a table of
    correlations: a mean over its rows says nothing."""
    ends = [{n, re.split(r"[._ ]", n, maxsplit=1)[-1]} for n in found.numbers]  # "cov.Flags"
    named = [sum(bool(e & set(found.values[name])) for e in ends) for name in found.names]
    return max(named, default=0) >= max(2, 0.5 * len(ends))


def _plain_name(name: Any) -> bool:
    text = str(name)
    return (
        0 < len(text.strip()) <= 60
        and text == text.strip()
        and not text.startswith("Unnamed")
        and text.isprintable()  # no line breaks of any kind, no control characters
        and not re.search(r"\.\d+$", text)
        and any(c.isalpha() for c in text)
        and not set(text) & set('"\\{}')  # they would have to be quoted in code and question
    )


def _levels(column: Any, whole: bool) -> list[float]:
    """Thresholds to filter by, with three significant digits, inside the column's range; whole
    numbers among whole numbers."""
    found = [float(f"{value:.3g}") for value in column.quantile([0.2, 0.35, 0.5, 0.65, 0.8])]
    found = [float(round(v)) for v in found] if whole else found
    low, high = float(column.min()), float(column.max())
    return [v for v in dict.fromkeys(found) if low < v < high]


def _unsaid(name: str, about: About) -> bool:
    return not about.columns.get(name) and opaque_group(name)


def _number(name: str, filled: Any, found: _Found, about: About) -> None:
    said = about.columns.get(name, "")
    whole = bool((filled == filled.round()).all())
    if whole and filled.nunique() >= 5 and not counted(name, said) and _is_year(name, filled):
        found.years.append(name)
        found.spans[name] = sorted(int(v) for v in filled.unique())
        if filled.is_unique:
            found.single_years.append(name)
        return
    kind = measure(name, filled.astype(float), said)
    if kind:
        found.numbers.append(name)
        found.filled[name] = filled
    if kind and whole:
        found.whole.add(name)
    if kind == "total":
        found.totals.append(name)


def _is_year(name: str, filled: Any) -> bool:
    wide = (1500, 2100) if _YEAR & set(words_of(name)) else (1800, 2035)
    return bool(filled.between(*wide).all())


def _text(name: str, filled: Any, found: _Found) -> None:
    counts = filled.value_counts()  # what is looked at is each text, once
    texts = counts.index.to_series().astype(str)
    distinct = len(counts)
    if (
        distinct < 2
        or int(texts.str.len().max()) > _LONGEST
        or not all(map(str.isprintable, texts))
    ):
        return
    figures = texts.str.fullmatch(_FIGURE).to_numpy()
    if int(counts.to_numpy()[figures].sum()) > 0.5 * len(filled):
        return  # figures that are text here are no names
    found.halves += _halves(name, texts, counts)
    if distinct <= min(_GROUPS, len(filled) // 3):
        found.groups.append(name)
        found.values[name] = sorted(texts)
        found.fewest[name] = int(counts.min())
    elif distinct == len(filled) and distinct <= _KEYS:
        found.names.append(name)
        found.values[name] = sorted(texts)


def _halves(name: str, texts: Any, counts: Any) -> list[Half]:
    """The ways in which nearly all cells hold two things, one of them repeated."""
    halves: list[Half] = []
    for cut, mark in _CUTS.items():
        if float(texts.str.contains(mark[0], regex=False).mean()) < 0.5:
            continue
        part = texts.str.extract(mark[1])[0].str.strip()
        there = (part.notna() & (part != "")).to_numpy()
        rows = int(counts.to_numpy()[there].sum())
        values = sorted(set(part[there]))
        short = sum(map(len, values)) <= _SHORT * len(values)
        fits = 3 <= len(values) <= min(_GROUPS, rows // 3) and len(values) < len(counts)
        if rows >= 0.9 * int(counts.sum()) and fits and short:
            halves.append(Half(name, cut, tuple(values)))
    return halves
