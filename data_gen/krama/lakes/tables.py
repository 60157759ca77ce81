"""A table that questions can be asked of: where it lies, and what its columns are good for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from assay.fingerprints import TableMarks
from assay.tables.settings import Doubt
from data_gen.columns import Column
from data_gen.describe import NOTHING, About
from data_gen.krama.lakes.ops import Cut, Source


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
