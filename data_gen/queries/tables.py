"""A table that questions can be asked of: where it lies, and what its columns are good for.

Questions are drawn from this description alone.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.fingerprints import TableMarks, marks_of_frame
from assay.tables.settings import Doubt
from data_gen.columns import GROUPS, Column, look_at, opaque_group, speaks_of, words_of
from data_gen.dare.sources import fingerprints
from data_gen.describe import NOTHING, About
from data_gen.queries.ops import Cut, Source


class Read(Protocol):
    """How a table is read: a `assay.tables` ReadPlan, or a form that only lakes have."""

    @property
    def path(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def part(self) -> str: ...
    def code(self, name: str = "t") -> str: ...


@dataclass(frozen=True)
class Half:
    """A column of cells that hold two things, and the values of the one that `cut` gives."""

    column: str
    cut: Cut
    values: tuple[str, ...]


@dataclass(frozen=True)
class Refers:
    """A foreign key: a column whose values are those of `theirs` in another table (`part`) of the
    same database."""

    column: str
    part: str
    theirs: str


@dataclass(frozen=True)
class Table:
    """One table, described.

    `numbers` are columns of measured values (`data_gen.columns`), `totals` those of
    them that add up, `groups` text columns with repeated values, `names` text columns that
    identify rows, `years` whole-number columns that order rows in time, `single_years` those with
    one row a year, `halves` text columns that hold two things. `holes` are columns with cells that
    stand for "no value".
    """

    reading: Read
    rows: int
    columns: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    years: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    holes: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()  # numbers without fractions
    single_years: tuple[str, ...] = ()
    halves: tuple[Half, ...] = ()
    values: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    fewest: Mapping[str, int] = field(default_factory=dict[str, int])  # rows of the smallest group
    spans: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    levels: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    marks: frozenset[str] = frozenset()  # fingerprints of its columns: copies have the same
    kin: TableMarks = field(default_factory=lambda: TableMarks(frozenset()))  # of its rows as well
    about: About = NOTHING
    notes: tuple[str, ...] = ()  # what the reader said of it
    keys: tuple[str, ...] = ()  # text columns of too many values to group by; `values` has them
    sense: Mapping[str, Column] = field(default_factory=dict[str, Column])  # of every column
    doubts: tuple[Doubt, ...] = ()  # of columns that are left out
    refers: tuple[Refers, ...] = ()  # foreign keys that its database declares

    @property
    def path(self) -> str:
        """Its file, from the lake's folder."""
        return self.reading.path

    @property
    def key(self) -> str:
        """What tells it from the other tables of its lake."""
        return f"{self.path} [{self.reading.part}]" if self.reading.part else self.path

    @property
    def digest(self) -> str:
        """Its content, the same under another order of rows or columns."""
        if not self.marks:
            return self.key
        # one column may stand in unrelated tables: a running number, the years of a century
        return hashlib.sha256(" ".join(sorted(self.marks)).encode()).hexdigest()[:16]

    @property
    def said(self) -> str:
        """How a question names it."""
        part, form = self.reading.part, self.reading.form
        name = self.path
        if form == "excel" and part:
            name = f"sheet '{part}' of {name}"
        elif form == "sqlite" and part:
            name = f"table '{part}' of {name}"
        elif form == "html" and part not in ("", "0"):
            name = f"table {int(part) + 1} of {name}"
        return f"{name} ({self.about.title})" if self.about.title else name

    def column(self, name: str) -> str:
        """How a question names a column."""
        words = self.about.columns.get(name, "")
        return f"'{name}' ({words})" if words else f"'{name}'"

    def is_unique(self, name: str) -> bool:
        """Whether every row has a value of its own in a column."""
        return name in self.sense and self.sense[name].values == self.rows

    def source(self, *columns: str) -> Source:
        """What the steps say of it."""
        return Source(self.path, self.reading.part, columns)


ROWS = (15, 200_000)
BARE_ROWS = 5
COLUMNS = 400  # looked at, from the left
_SHORT = 25  # characters, on average, of one of two things in a cell
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
    keys: list[str] = field(default_factory=list[str])
    years: list[str] = field(default_factory=list[str])
    single_years: list[str] = field(default_factory=list[str])
    halves: list[Half] = field(default_factory=list[Half])
    filled: dict[str, Any] = field(default_factory=dict[str, Any])  # of the numbers: their values
    whole: set[str] = field(default_factory=set[str])  # of the numbers: those without fractions
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    fewest: dict[str, int] = field(default_factory=dict[str, int])
    spans: dict[str, list[int]] = field(default_factory=dict[str, list[int]])


def describe(
    reading: Read, frame: Any, about: About, holes: tuple[str, ...] = (), bare: bool = False
) -> Table | str:
    """The table, or why no question can be asked of it. `bare`: a query can also be asked of a
    small table, and of one without measures."""
    least = BARE_ROWS if bare else ROWS[0]
    if not least <= len(frame) <= ROWS[1]:
        return f"{len(frame)} rows; wanted {least} to {ROWS[1]:,}"
    np: Any = importlib.import_module("numpy")  # heavy, and its types are partial
    found = _Found()
    unquoted = [c for c in frame.columns if not _plain_name(c)]
    kept = frame[[c for c in frame.columns if c not in unquoted][:COLUMNS]]
    sense = look_at(kept, about.columns)
    for name, column in sense.items():
        _sort(column, frame[name].dropna(), found, about)
    if not bare:  # rows may be counted by years of birth, but are not of these years
        found.years = [y for y in found.years if not speaks_of(words_of(y), "birth")]
        found.single_years = [y for y in found.single_years if y in found.years]
    if not found.numbers and not bare:
        return f"no column of measured numbers{_whys(sense.values())}"
    named = found.groups or found.names or found.keys or found.years or found.halves
    if not named and not bare:
        return f"no column to group by, to match by or to order by{_whys(sense.values())}"
    if _is_matrix(found):
        return "a matrix: its rows are named as its columns"
    listed = tuple(str(c) for c in frame.columns)
    whole = tuple(n for n in found.numbers if n in found.whole)
    notes = [f"{c!r}: not asked about, for its name cannot stand in a question" for c in unquoted]
    if len(listed) - len(unquoted) > COLUMNS:
        notes.append(f"the first {COLUMNS} of {len(listed)} columns are looked at")
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
        tuple(notes),
        tuple(found.keys),
        sense,
    )


def _whys(columns: Iterable[Column]) -> str:
    """ ": 'a': why; 'b': why", for the columns that say why nothing is computed from them."""
    said = [f"{c.name!r}: {c.why}" for c in columns if c.why]
    return f": {'; '.join(said)}" if said else ""


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


def _sort(column: Column, filled: Any, found: _Found, about: About) -> None:
    """Note what a column is good for. `filled`: its values."""
    name, kind = column.name, column.kind
    if kind == "year":
        found.years.append(name)
        found.spans[name] = sorted(int(v) for v in filled.unique())
        if filled.is_unique:
            found.single_years.append(name)
    elif kind == "measure":
        found.numbers.append(name)
        found.filled[name] = filled
        found.whole |= {name} if column.whole else set()
        found.totals += [name] if column.adds else []
    elif kind in ("group", "name", "key") and (about.columns.get(name) or not opaque_group(name)):
        listed = {"group": found.groups, "name": found.names, "key": found.keys}[kind]
        counts = filled.astype(str).str.strip().value_counts()
        texts = counts.index.to_series().astype(str)
        listed.append(name)
        found.values[name] = sorted(texts)
        found.fewest[name] = int(counts.min())
        found.halves += _halves(name, texts, counts)


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
        fits = 3 <= len(values) <= min(GROUPS, rows // 3) and len(values) < len(counts)
        if rows >= 0.9 * int(counts.sum()) and fits and short:
            halves.append(Half(name, cut, tuple(values)))
    return halves
