"""Typed steps composed over a table, with their words: load, clean, join, split, filter, group."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import comb, prod
from random import Random

from data_gen.queries.links import Brought, Link, beside
from data_gen.queries.ops import (
    Clean,
    Cut,
    Group,
    Join,
    Keep,
    Least,
    Limit,
    Load,
    Op,
    Sign,
    Source,
    Split,
    Summary,
    Years,
)
from data_gen.queries.pandas_code import blocks, fewest, written
from data_gen.queries.pipeline import LakeStep, Question, StepKind
from data_gen.queries.tables import Half, Table

WORDS: dict[Summary, str] = {
    "mean": "mean",
    "median": "median",
    "total": "total",
    "largest": "largest value",
    "std": "standard deviation (n - 1)",
}
SIGNS: dict[Sign, str] = {">": "above", "<": "below", ">=": "of at least", "<=": "of at most"}
CUTS: dict[Cut, str] = {
    "after_comma": "part of {} after the last comma",
    "before_comma": "part of {} before the last comma",
    "in_brackets": "text in brackets at the end of {}",
}
PLACES = {2: "second", 3: "third"}
ONE_ROW = -1.0  # the margin of a question that summarises a single row
GUESSES = 20  # lists among which a question asks for one, at least
NAMES_LEAST = 6  # groups among which a question asks for one name, at least

# how far the k-th of the sorted groups is from the next, relative
GAP = "float(abs(g.iloc[{k}] - g.iloc[{k} - 1]) / max(abs(g.iloc[{k} - 1]), 1e-9))"

# a title and its code ask for one thing twice: some name must meet several of the other column
PAIRED = (
    "({gap}) if max(g.groupby(level=0).size().max(), g.groupby(level=1).size().max()) > 1 else 0.0"
)


def enough(groups: int, k: int) -> bool:
    """Whether k of so many groups can hardly be guessed, nor all of them listed for credit."""
    return groups >= 2 * k and comb(groups, k) >= GUESSES


def one_order(values: Iterable[str]) -> bool:
    """Whether names have one alphabetical order: not where capitals or accents decide (is Ö beside
    O, or behind Z?), nor in scripts without an alphabet."""
    listed = sorted(values)
    if any(unicodedata.category(c) == "Lo" for value in listed for c in value):
        return False
    return listed == sorted(listed, key=_folded)


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


def decimals(digits: int) -> str:
    """How a question says to round."""
    if digits == 0:
        return "rounded to a whole number"
    return f"rounded to {digits} decimal{'s' if digits > 1 else ''}"


_JOINED = 0.8  # of the questions about tables that share a key
_ROWS_A_YEAR = 3  # on average
_JOINED_TWICE = 0.5  # of these, where a third table shares one too


class NoQuestion(ValueError):
    """These tables do not have what this kind of question needs; the text, if any, says why."""

    tables: tuple[str, ...] = ()  # by their keys


@dataclass
class Builder:
    """Steps so far over the frame `t`, and how they are said in the question."""

    rng: Random
    table: Table
    tables: Sequence[Table] = ()  # of the lake, by the places that links name
    links: Sequence[Link] = ()
    steps: list[LakeStep] = field(default_factory=list[LakeStep])
    said: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])
    keys: list[str] = field(default_factory=list[str])  # tables read
    brought: list[Link] = field(default_factory=list[Link])  # columns of other tables, not yet used
    phrases: dict[str, str] = field(default_factory=dict[str, str])
    more_totals: set[str] = field(default_factory=set[str])
    holes: bool = False  # a column used has placeholders for missing values
    halved: bool = False
    small: bool = False  # a group may have a single row
    sizes: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    done: set[str] = field(default_factory=set[str])  # columns made ready to group by, as code
    least: str = ""  # what the question says of the rows that a group must have

    def add(self, op: Op, text: str, query: str, answer_type: str, optional: bool = False) -> None:
        """A step with its code. `optional`: the answer must change when it is left out."""
        code, value = written(op, self._loads)
        for block in blocks(op):
            if block in self.done:
                code = code.replace(f"{block}\n", "", 1)
            self.done.add(block)
        kind: StepKind = _KINDS.get(type(op).__name__, "finish")
        self.steps.append(LakeStep(kind, text, code, query, value, answer_type, optional, op))

    def _loads(self, source: Source, name: str) -> str:
        for table in (self.table, *self.tables):
            if (table.path, table.reading.part) == (source.path, source.part):
                return table.reading.code(name)
        raise NoQuestion

    def load(self) -> None:
        self.keys.append(self.table.key)
        self.add(
            Load(self.table.source()),
            f"Load {self.table.said}",
            f"How many data rows does {self.table.said} have?",
            "numeric_exact",
        )

    def col(self, name: str) -> str:
        """How a sentence names a column."""
        return self.phrases.get(name) or self.table.column(name)

    def the(self, name: str) -> str:
        """The same as an object of its own."""
        return ("the " if name in self.phrases and self.halved else "") + self.col(name)

    def number(self, taken: Sequence[str] = (), amount: bool = False) -> str:
        """A measured column (an `amount`: one that adds up), without the rows that have none; of
        the other table, if one came."""
        if not taken and (link := self.brings("number")):
            self.brought.remove(link)
            return link.brings
        measured = self.table.totals if amount else self.table.numbers
        fitting = [n for n in measured if n not in self.used]
        if not fitting:
            raise NoQuestion("no column of measured numbers is left")
        name = self.rng.choice(fitting)
        self.clean(name)
        return name

    def summary(self, name: str, among: Sequence[Summary]) -> Summary:
        """A summary that means something for the column."""
        fits = name in self.table.totals or name in self.more_totals
        return self.rng.choice([s for s in among if s != "total" or fits])

    def clean(self, name: str) -> None:
        self.used.append(name)
        self.holes |= name in self.table.holes
        self.add(
            Clean(name),
            f"Read {self.col(name)} as numbers and drop rows without one",
            f"How many rows have a usable number in {self.col(name)}?",
            "numeric_exact",
        )

    def group(self, most: int = 60, least: int = 3, years: bool = False) -> str:
        """A column of text (with `years`, also of years) to group by; of the other table, if one
        came."""
        if link := self.brings("group"):
            self.brought.remove(link)
            self.small = True
            self.sizes[link.brings] = self.tables[link.other].values[link.brings]
            if not least <= len(self.sizes[link.brings]) <= most:
                raise NoQuestion(f"by: wanted {least} to {most} groups")
            return link.brings
        fitting = [g for g in self.table.groups if least <= len(self.table.values[g]) <= most]
        both = {h.column for h in self.table.halves}
        fitting = [g for g in fitting if g not in self.used and g not in both]
        halves = [h for h in self.table.halves if least <= len(h.values) <= most]
        halves = [h for h in halves if h.column not in self.used]
        spans = [y for y in self._years() if least <= len(self.table.spans[y]) <= most]
        spans = [y for y in spans if years and y not in self.used]
        if halves and (not fitting or self.rng.random() < 0.5):
            return self._half(self.rng.choice(halves))
        if spans and (not fitting or self.rng.random() < 0.2):
            self.small = True
            return self.year()
        if not fitting:
            raise NoQuestion
        return self._whole_group(self.rng.choice(fitting))

    def _half(self, half: Half) -> str:
        into = self._split(half.column, half.cut)
        self.sizes[into] = half.values
        return into

    def _whole_group(self, name: str) -> str:
        self.used.append(name)
        self.sizes[name] = self.table.values[name]
        self.small |= self.table.fewest.get(name, 0) < 2
        return name

    def _split(self, column: str, cut: Cut) -> str:
        into = f"{column} part"
        if into in self.table.columns:
            raise NoQuestion
        phrase = CUTS[cut].format(self.col(column))
        self.used += [column, cut]
        self.add(
            Split(column, cut, into),
            f"Take the {phrase}",
            f"How many different values does the {phrase} have?",
            "numeric_exact",
        )
        self.phrases[into], self.halved, self.small = phrase, True, True
        return into

    def keep(self, name: str, value: str) -> None:
        """Rows where a text column has a value."""
        self.said.append(f"where {self.the(name)} is {value!r}")
        self.add(
            Keep(name, value),
            f"Keep rows where {self.the(name)} is {value!r}",
            f"How many rows remain where {self.the(name)} is {value!r}?",
            "numeric_exact",
            True,
        )

    def _years(self) -> list[str]:
        """Columns of years that rows are summarised by: one row a year, or several. Of founding
        years, say, most have a row or two, and figures of them mean nothing."""
        table = self.table
        return [
            y
            for y in table.years
            if y in table.single_years or table.rows >= _ROWS_A_YEAR * len(table.spans[y])
        ]

    def year(self) -> str:
        fitting = [y for y in self._years() if y not in self.used]
        if not fitting:
            raise NoQuestion("no column of years is left")
        name = self.rng.choice(fitting)
        self.used.append(name)
        self.sizes[name] = list(map(str, self.table.spans[name]))
        self.holes |= name in self.table.holes
        self.add(
            Years(name),
            f"Read {self.col(name)} as whole numbers and drop rows without one",
            f"How many different values does {self.col(name)} have?",
            "numeric_exact",
        )
        return name

    def maybe_filter(self, chance: float = 0.6) -> None:
        """With some chance, keep one group or one side of a threshold."""
        free = [g for g in self.table.groups if g not in self.used]
        numbers = [n for n in self.table.numbers if n not in self.used and self.table.levels[n]]
        if self.rng.random() > chance:
            return
        if free and (not numbers or self.rng.random() < 0.6):
            name = self.rng.choice(free)
            self._kept(name, self.rng.choice(list(self.table.values[name])))
        elif numbers:
            name = self.rng.choice(numbers)
            self.clean(name)
            limit = self.rng.choice(list(self.table.levels[name]))
            self._limited(name, limit, self.rng.choice(list(SIGNS)))

    def _kept(self, name: str, value: str) -> None:
        self.used.append(name)
        self.keep(name, value)

    def _limited(self, name: str, limit: float, sign: Sign) -> None:
        words = f"with {self.col(name)} {SIGNS[sign]} {limit:g}"
        self.said.append(words)
        self.add(
            Limit(name, sign, limit),
            f"Keep rows {words}",
            f"How many rows remain {words}?",
            "numeric_exact",
            True,
        )

    def brings(self, what: Brought) -> Link | None:
        """A join whose column of this kind is still to be used."""
        return next((link for link in self.brought if link.what == what), None)

    def maybe_join(self, what: str = "any") -> None:
        """Join another table on a key that both have; its column is used next. Where any column
        will do, a third table may bring one of the other kind: a measure and a group."""
        options = [k for k in self.links if what in ("any", k.what)]
        first = self._link(options, _JOINED)
        if first is None:
            return
        self._join(first)
        if what != "any":
            return
        second = self._link(beside(first, options, self.used), _JOINED_TWICE)
        if second is not None:
            self._join(second)

    def _link(self, options: Sequence[Link], chance: float) -> Link | None:
        return self.rng.choice(options) if options and self.rng.random() <= chance else None

    def _join(self, link: Link) -> None:
        other = self.tables[link.other]
        self.brought.append(link)
        self.keys.append(other.key)
        self.used += [link.mine, link.brings]
        self.phrases[link.brings] = other.column(link.brings)
        if link.brings in other.totals:
            self.more_totals.add(link.brings)
        self.holes |= link.brings in other.holes
        pair = f"by {self.col(link.mine)}"
        if link.mine != link.theirs:
            pair += f", there {other.column(link.theirs)}"
        self.said.append(f"matched with {other.said} ({pair})")
        op = Join(
            other.source(link.theirs, link.brings),
            link.mine,
            link.theirs,
            link.brings,
            link.what == "number",
            link.whole,
        )
        self.add(
            op,
            f"Join {other.said} on {self.col(link.mine)} = {other.column(link.theirs)}, keep "
            f"matches that have {other.column(link.brings)} there",
            f"How many rows have a match with {other.column(link.brings)} in {other.said}?",
            "numeric_exact",
            True,
        )

    def scope(self) -> str:
        return (" " + " and ".join(self.said)) if self.said else ""

    def where(self) -> str:
        return f"{self.table.said}{self.scope()}"

    def skips(self, what: str = "a number") -> str:
        """What the question says of missing values and of small groups."""
        text = f"Skip rows without {what}."
        if self.holes:
            text = (
                "Some cells hold a placeholder where a value is missing: treat them as missing, "
                f"and skip rows without {what}."
            )
        return f"{text} {self.least}".strip()

    def asked(self, text: str, shape: str, margin: str = "1.0") -> Question:
        """The question that the steps so far answer. Its shape names tables, columns and
        operation, and no limit: questions that differ in a limit alone ask the same."""
        for op in (s.op for s in self.steps):
            if isinstance(op, Group):
                margin = f"({margin}) if {fewest(op)} > 1 else {ONE_ROW}"
        columns = [c for c in dict.fromkeys(self.used) if c in self.table.columns]
        first = replace(self.steps[0], op=Load(self.table.source(*columns)))
        text = self._once(text)
        key = f"{shape}|{sorted(self.keys)}|{sorted(self.used)}"
        return Question(text, (first, *self.steps[1:]), key, margin)

    def _once(self, text: str) -> str:
        """The text with a column's words where it is named first only."""
        for table in (self.table, *self.tables):
            for name, words in table.about.columns.items():
                long = f"'{name}' ({words})"
                head, found, rest = text.partition(long)
                text = head + found + rest.replace(long, f"'{name}'")
        return text


_KINDS: dict[str, StepKind] = {
    "Load": "load",
    "Clean": "clean",
    "Years": "clean",
    "Split": "clean",
    "Keep": "filter",
    "Limit": "filter",
    "Least": "filter",
    "Join": "join",
    "Group": "group",
    "Interpolate": "interpolate",
    "Best": "rank",
    "Nth": "rank",
    "Top": "rank",
    "Fit": "regress",
}


_LEAST = (2, 3, 5, 8)  # rows that a group must have


def grouped(b: Builder, names: Sequence[str], number: str, how: Summary) -> None:
    """One summary for every group; of groups that may be small, those with several rows."""
    keys = " and ".join(b.the(n) for n in names)
    whole = tuple(n in b.table.years for n in names)
    pairs = f"values of {keys}" if len(names) == 1 else f"pairs of {keys}"
    if b.small or len(names) > 1 or b.rng.random() < 0.3:
        usual = b.table.rows / prod(len(b.sizes.get(n, (1,))) for n in names)
        rows = b.rng.choice([r for r in _LEAST if r <= usual / 2] or [2])
        b.least = f"Consider only {pairs} with {rows} or more such rows."
        b.add(
            Least(tuple(names), whole, rows),
            f"Keep rows of {pairs} with {rows} or more rows",
            f"How many rows belong to {pairs} with {rows} or more such rows?",
            "numeric_exact",
        )
    b.add(
        Group(tuple(names), whole, number, how),
        f"Compute the {WORDS[how]} of {b.the(number)} per {keys}",
        f"For how many {pairs} is there a {WORDS[how]} of {b.the(number)}?",
        "numeric_exact",
    )
