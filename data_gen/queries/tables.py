"""A table that questions can be asked of: where it lies, what its columns are good for, and which
other tables of its lake it can be joined with.

Questions are drawn from this description alone.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from assay.fingerprints import TableMarks, column_hashes, marks_of_frame
from assay.tables.plan import ReadPlan
from assay.tables.settings import Doubt
from data_gen.columns import GROUPS, Column, look_at, opaque_group, speaks_of, words_of
from data_gen.describe import NOTHING, About
from data_gen.queries.ops import Cut, Source


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

    reading: ReadPlan
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


Lists = defaultdict[str, list[Any]]  # what columns are good for (fields of `Table`): the columns
Maps = defaultdict[str, dict[str, Any]]  # what is known of them (fields of `Table`): by column


def describe(
    reading: ReadPlan, frame: Any, about: About, holes: tuple[str, ...] = (), bare: bool = False
) -> Table | str:
    """The table, or why no question can be asked of it. `bare`: a query can also be asked of a
    small table, and of one without measures."""
    least = BARE_ROWS if bare else ROWS[0]
    if not least <= len(frame) <= ROWS[1]:
        return f"{len(frame)} rows; wanted {least} to {ROWS[1]:,}"
    lists: Lists = defaultdict(list)
    maps: Maps = defaultdict(dict)
    unquoted = [c for c in frame.columns if not _plain_name(c)]
    kept = frame[[c for c in frame.columns if c not in unquoted][:COLUMNS]]
    sense = look_at(kept, about.columns)
    for name, column in sense.items():
        _sort(column, frame[name].dropna(), about, lists, maps)
    if not bare:  # rows may be counted by years of birth, but are not of these years
        for kind in ("years", "single_years"):
            lists[kind] = [y for y in lists[kind] if not speaks_of(words_of(y), "birth")]
    if not lists["numbers"] and not bare:
        return f"no column of measured numbers{_whys(sense.values())}"
    named = any(lists[kind] for kind in ("groups", "names", "keys", "years"))
    if not named and not lists["halves"] and not bare:
        return f"no column to group by, to match by or to order by{_whys(sense.values())}"
    if _is_matrix(lists["numbers"], [maps["values"][n] for n in lists["names"]]):
        return "a matrix: its rows are named as its columns"
    listed = tuple(str(c) for c in frame.columns)
    notes = [f"{c!r}: not asked about, for its name cannot stand in a question" for c in unquoted]
    if len(listed) - len(unquoted) > COLUMNS:
        notes.append(f"the first {COLUMNS} of {len(listed)} columns are looked at")
    good: dict[str, Any] = {kind: tuple(names) for kind, names in lists.items()}
    good |= maps
    with np.errstate(over="ignore"):  # numbers beyond those of 32 bits
        marks, kin = column_hashes(frame), marks_of_frame(frame)
    return Table(
        reading,
        len(frame),
        listed,
        holes=holes,
        marks=marks,
        kin=kin,
        about=about,
        notes=tuple(notes),
        sense=sense,
        **good,
    )


def _whys(columns: Iterable[Column]) -> str:
    """ ": 'a': why; 'b': why", for the columns that say why nothing is computed from them."""
    said = [f"{c.name!r}: {c.why}" for c in columns if c.why]
    return f": {'; '.join(said)}" if said else ""


def _is_matrix(numbers: Sequence[str], names: Sequence[Sequence[str]]) -> bool:
    """Whether half of the columns of numbers are named in a column of names, as in a table of
    correlations: a mean over its rows says nothing."""
    ends = [{n, re.split(r"[._ ]", n, maxsplit=1)[-1]} for n in numbers]  # "cov.Flags"
    named = [sum(bool(e & set(listed)) for e in ends) for listed in names]
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


def _sort(column: Column, filled: Any, about: About, lists: Lists, maps: Maps) -> None:
    """Note what a column is good for. `filled`: its values."""
    name, kind = column.name, column.kind
    if kind == "year":
        lists["years"].append(name)
        maps["spans"][name] = sorted(int(v) for v in filled.unique())
        if filled.is_unique:
            lists["single_years"].append(name)
    elif kind == "measure":
        lists["numbers"].append(name)
        maps["levels"][name] = _levels(filled, column.whole)
        lists["whole"] += [name] if column.whole else []
        lists["totals"] += [name] if column.adds else []
    elif kind in ("group", "name", "key") and (about.columns.get(name) or not opaque_group(name)):
        counts = filled.astype(str).str.strip().value_counts()
        texts = counts.index.to_series().astype(str)
        lists[f"{kind}s"].append(name)
        maps["values"][name] = sorted(texts)
        maps["fewest"][name] = int(counts.min())
        lists["halves"] += _halves(name, texts, counts)


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


SHARED_LEAST = 5  # values that both keys must have
SHARE_LEAST = 0.5  # of the values of the smaller key
_YEARS_LEAST = 8
_COMMON = 2  # names of columns, beside the year, that two yearly tables must share
Brought = Literal["number", "group"]


@dataclass(frozen=True)
class Link:
    """Rows of one table find at most one row of another, by its place among the lake's tables."""

    other: int
    mine: str
    theirs: str
    brings: str
    what: Brought
    whole: bool = False  # the keys are whole numbers
    declared: bool = False  # the database says so


Links = Sequence[Sequence[Link]]  # of each table


def links_of(tables: Sequence[Table]) -> Links:
    """Every link of every table, in an order that depends on the tables alone."""
    sets = [{name: frozenset(values) for name, values in t.values.items()} for t in tables]
    found: list[list[Link]] = []
    for place, table in enumerate(tables):
        mine: list[Link] = []
        for at, other in enumerate(tables):
            if at == place:
                continue
            for key in other.names:
                for own in (*table.names, *table.groups, *table.keys):
                    if _meet(sets[place][own], sets[at][key]):
                        once = own in table.names
                        mine += _brought(table, other, at, own, key, False, once)
            mine += _by_year(table, other, at)
            mine += _by_reference(table, other, at, mine)
        found.append(mine)
    return found


def _meet(one: frozenset[str], two: frozenset[str]) -> bool:
    """Whether so many values are those of both that rows can be matched by them."""
    shared = len(one & two)
    return shared >= SHARED_LEAST and shared >= SHARE_LEAST * min(len(one), len(two))


def spelled_apart(tables: Sequence[Table]) -> dict[str, list[str]]:
    """Key of a table → a sentence for each column that would match one of another table, were it
    spelled as there."""
    sets = [{name: frozenset(values) for name, values in t.values.items()} for t in tables]
    plain = [{n: frozenset(map(str.casefold, v)) for n, v in found.items()} for found in sets]
    said: dict[str, list[str]] = {}
    for place, table in enumerate(tables):
        for at, other in enumerate(tables):
            for key in other.names if at != place else ():
                for own in (*table.names, *table.groups, *table.keys):
                    if _meet(sets[place][own], sets[at][key]) or not _meet(
                        plain[place][own], plain[at][key]
                    ):
                        continue
                    there = {v.casefold(): v for v in other.values[key]}
                    pairs = ((v, there.get(v.casefold(), v)) for v in table.values[own])
                    mine, theirs = next((a, b) for a, b in pairs if a != b)
                    said.setdefault(table.key, []).append(
                        f"no join with {other.key}: {mine} / {theirs} ('{own}', there '{key}') are "
                        "spelled differently"
                    )
    return said


def _by_reference(table: Table, other: Table, at: int, found: Sequence[Link]) -> list[Link]:
    """What the foreign keys of a database bring, where no other link brings it."""
    made: list[Link] = []
    for one in table.refers:
        same = (table.path, one.part) == (other.path, other.reading.part)
        if not same or one.column not in table.sense or not other.is_unique(one.theirs):
            continue
        whole, once = table.sense[one.column].whole, table.is_unique(one.column)
        listed = _brought(table, other, at, one.column, one.theirs, whole, once)
        known = {(link.mine, link.theirs, link.brings) for link in found}
        made += [
            replace(link, declared=True)
            for link in listed
            if (link.mine, link.theirs, link.brings) not in known
        ]
    return made


def beside(first: Link, links: Sequence[Link], used: Sequence[str]) -> list[Link]:
    """Links that may follow a first one: to a third table, for a column of the other kind. One key
    is not read as a text and as a year."""
    return [
        link
        for link in links
        if link.other != first.other
        and link.what != first.what
        and link.brings not in used
        and (link.mine != first.mine or link.whole == first.whole)
    ]


def _by_year(table: Table, other: Table, at: int) -> list[Link]:
    """Two tables with a row a year can be joined by it, where they speak of one thing: they have
    other columns of the same names. A yearly figure says nothing of one continent's rows, and two
    unrelated series that happen to be yearly make no question."""
    found: list[Link] = []
    shared = {*table.columns} & {*other.columns}
    for theirs in other.single_years:
        for own in table.single_years:
            if len(shared - {own, theirs}) < _COMMON:
                continue
            years = {*table.spans[own]} & {*other.spans[theirs]}
            if len(years) >= _YEARS_LEAST:
                found += _brought(table, other, at, own, theirs, True)
    return found


def _brought(
    table: Table, other: Table, at: int, mine: str, theirs: str, whole: bool, once: bool = True
) -> list[Link]:
    """What is new to the first table: columns to group by and, where each row of the other table
    is found `once`, measures. One that is found by many rows would be counted as often."""
    taken = set(table.columns)
    found = [
        Link(at, mine, theirs, name, "number", whole)
        for name in other.numbers
        if once and name not in taken and name != theirs
    ]
    return found + [
        Link(at, mine, theirs, name, "group", whole)
        for name in other.groups
        if name not in taken and name != theirs
    ]
