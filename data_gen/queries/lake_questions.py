"""The kinds of questions asked over the tables of a lake, one drawn from a seed: typed steps
composed over a table, with their words (load, clean, join, split, filter, group), and a last one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import comb, prod
from random import Random
from typing import Any

from assay.files import yaml_beside
from data_gen.queries import ops
from data_gen.queries.ops import Cut, Op, Sign, Source, Summary
from data_gen.queries.pipeline import STEP_KINDS, LakeStep, Question, blocks, guarded, written
from data_gen.queries.tables import Brought, Half, Link, Links, Table, beside, links_of

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
GUESSES = 20  # lists among which a question asks for one, at least
NAMES_LEAST = 6  # groups among which a question asks for one name, at least

_LAST = ("last", "second to last", "third to last", "fourth to last")
_PLACES = {2: "second", 3: "third"}

# how far the k-th of the sorted groups is from the next, relative
GAP = "float(abs(g.iloc[{k}] - g.iloc[{k} - 1]) / max(abs(g.iloc[{k} - 1]), 1e-9))"


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
_JOINED_TWICE = 0.5  # of these, where a third table shares one too
_ROWS_A_YEAR = 3  # on average
_LEAST = (2, 3, 5, 8)  # rows that a group must have


class NoQuestion(ValueError):
    """These tables do not have what this kind of question needs."""

    tables: tuple[str, ...] = ()  # by their keys


@dataclass
class Steps:
    """Steps so far over the frame `t`, and how they are said in the question."""

    rng: Random
    table: Table
    tables: Sequence[Table]  # of the lake, by the places that links name
    links: Sequence[Link]
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

    def add(
        self,
        op: Op,
        text: str,
        query: str,
        answer_type: str = "numeric_exact",
        optional: bool = False,
    ) -> None:
        """A step with its code. `optional`: the answer must change when it is left out."""
        code, value = written(op, self._loads)
        for block in blocks(op):
            if block in self.done:
                code = code.replace(f"{block}\n", "", 1)
            self.done.add(block)
        kind = STEP_KINDS.get(type(op), "finish")
        self.steps.append(LakeStep(kind, text, code, query, value, answer_type, optional, op))

    def _loads(self, source: Source, name: str) -> str:
        read = {(t.path, t.reading.part): t.reading for t in self.tables}
        return read[source.path, source.part].code(name)

    def load(self, joined: str = "any") -> None:
        """The table, and often another that shares a key (`joined`: what it may bring); its column
        is used next. Where any will do, a third table may bring one of the other kind."""
        said = self.table.said
        self.keys.append(self.table.key)
        self.add(
            ops.Load(self.table.source()), f"Load {said}", f"How many data rows does {said} have?"
        )
        options = [k for k in self.links if joined in ("any", k.what)]
        if not options or self.rng.random() > _JOINED:
            return
        first = self.rng.choice(options)
        self._join(first)
        more = beside(first, options, self.used) if joined == "any" else ()
        if more and self.rng.random() <= _JOINED_TWICE:
            self._join(self.rng.choice(more))

    def _join(self, link: Link) -> None:
        other = self.tables[link.other]
        mine, theirs, brings = (
            self.col(link.mine),
            other.column(link.theirs),
            other.column(link.brings),
        )
        self.brought.append(link)
        self.keys.append(other.key)
        self.used += [link.mine, link.brings]
        self.phrases[link.brings] = brings
        if link.brings in other.totals:
            self.more_totals.add(link.brings)
        self.holes |= link.brings in other.holes
        there = "" if link.mine == link.theirs else f", there {theirs}"
        self.said.append(f"matched with {other.said} (by {mine}{there})")
        source = other.source(link.theirs, link.brings)
        number = link.what == "number"
        self.add(
            ops.Join(source, link.mine, link.theirs, link.brings, number, link.whole),
            f"Join {other.said} on {mine} = {theirs}, keep matches that have {brings} there",
            f"How many rows have a match with {brings} in {other.said}?",
            optional=True,
        )

    def brings(self, what: Brought) -> Link | None:
        """A join whose column of this kind is still to be used."""
        return next((link for link in self.brought if link.what == what), None)

    def col(self, name: str) -> str:
        """How a sentence names a column."""
        return self.phrases.get(name) or self.table.column(name)

    def the(self, name: str) -> str:
        """The same as an object of its own."""
        return ("the " if name in self.phrases and self.halved else "") + self.col(name)

    def _pick(self, names: Sequence[str]) -> str:
        """One of the columns that are not used yet. Raises `NoQuestion`."""
        fitting = [n for n in names if n not in self.used]
        if not fitting:
            raise NoQuestion
        return self.rng.choice(fitting)

    def number(self, taken: Sequence[str] = (), amount: bool = False) -> str:
        """A measured column (an `amount`: one that adds up), without the rows that have none; of
        the other table, if one came."""
        if not taken and (link := self.brings("number")):
            self.brought.remove(link)
            return link.brings
        name = self._pick(self.table.totals if amount else self.table.numbers)
        self._clean(name)
        return name

    def summary(self, name: str, among: Sequence[Summary]) -> Summary:
        """A summary that means something for the column."""
        fits = name in self.table.totals or name in self.more_totals
        return self.rng.choice([s for s in among if s != "total" or fits])

    def _clean(self, name: str) -> None:
        self.used.append(name)
        self.holes |= name in self.table.holes
        self.add(
            ops.Clean(name),
            f"Read {self.col(name)} as numbers and drop rows without one",
            f"How many rows have a usable number in {self.col(name)}?",
        )

    def group(self, most: int = 60, least: int = 3, years: bool = False) -> str:
        """A column of text (with `years`, also of years) to group by; of the other table, if one
        came."""

        def fits(values: Sequence[object]) -> bool:
            return least <= len(values) <= most

        table = self.table
        if link := self.brings("group"):
            self.brought.remove(link)
            self.small = True
            self.sizes[link.brings] = self.tables[link.other].values[link.brings]
            if not fits(self.sizes[link.brings]):
                raise NoQuestion
            return link.brings
        taken = {*self.used, *(h.column for h in table.halves)}
        fitting = [g for g in table.groups if fits(table.values[g]) and g not in taken]
        halves = [h for h in table.halves if fits(h.values) and h.column not in self.used]
        spans = [y for y in self._years() if fits(table.spans[y]) and y not in self.used]
        if halves and (not fitting or self.rng.random() < 0.5):
            return self._half(self.rng.choice(halves))
        if years and spans and (not fitting or self.rng.random() < 0.2):
            self.small = True
            return self.year()
        name = self._pick(fitting)
        self.used.append(name)
        self.sizes[name] = table.values[name]
        self.small |= table.fewest.get(name, 0) < 2
        return name

    def _half(self, half: Half) -> str:
        into = f"{half.column} part"
        if into in self.table.columns:
            raise NoQuestion
        phrase = CUTS[half.cut].format(self.col(half.column))
        self.used += [half.column, half.cut]
        self.add(
            ops.Split(half.column, half.cut, into),
            f"Take the {phrase}",
            f"How many different values does the {phrase} have?",
        )
        self.phrases[into], self.halved, self.small = phrase, True, True
        self.sizes[into] = half.values
        return into

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
        """A column of years, without the rows that have none."""
        name = self._pick(self._years())
        self.used.append(name)
        self.sizes[name] = list(map(str, self.table.spans[name]))
        self.holes |= name in self.table.holes
        self.add(
            ops.Years(name),
            f"Read {self.col(name)} as whole numbers and drop rows without one",
            f"How many different values does {self.col(name)} have?",
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
            self.used.append(name)
            self.keep(name, self.rng.choice(list(self.table.values[name])))
        elif numbers:
            name = self.rng.choice(numbers)
            self._clean(name)
            limit = self.rng.choice(list(self.table.levels[name]))
            sign = self.rng.choice(list(SIGNS))
            words = f"with {self.col(name)} {SIGNS[sign]} {limit:g}"
            self._keep(ops.Limit(name, sign, limit), words)

    def keep(self, name: str, value: str) -> None:
        """Rows where a text column has a value."""
        self._keep(ops.Keep(name, value), f"where {self.the(name)} is {value!r}")

    def _keep(self, op: Op, words: str) -> None:
        self.said.append(words)
        self.add(op, f"Keep rows {words}", f"How many rows remain {words}?", optional=True)

    def grouped(self, names: Sequence[str], number: str, how: Summary) -> None:
        """One summary for every group; of groups that may be small, those with several rows."""
        keys = " and ".join(map(self.the, names))
        whole = tuple(n in self.table.years for n in names)
        pairs = f"values of {keys}" if len(names) == 1 else f"pairs of {keys}"
        if self.small or len(names) > 1 or self.rng.random() < 0.3:
            usual = self.table.rows / prod(len(self.sizes.get(n, (1,))) for n in names)
            rows = self.rng.choice([r for r in _LEAST if r <= usual / 2] or [2])
            self.least = f"Consider only {pairs} with {rows} or more such rows."
            self.add(
                ops.Least(tuple(names), whole, rows),
                f"Keep rows of {pairs} with {rows} or more rows",
                f"How many rows belong to {pairs} with {rows} or more such rows?",
            )
        words = f"{WORDS[how]} of {self.the(number)}"
        self.add(
            ops.Group(tuple(names), whole, number, how),
            f"Compute the {words} per {keys}",
            f"For how many {pairs} is there a {words}?",
        )

    def where(self) -> str:
        """The table, and which of its rows."""
        return self.table.said + (" " + " and ".join(self.said) if self.said else "")

    def asked(self, kind: str, op: Op) -> Question:
        """The question that the steps so far and this last one answer, in the words of its kind
        (`lake_questions.yaml`). Its shape names tables, columns and operation, and no limit:
        questions that differ in a limit alone ask the same."""
        said, words = yaml_beside(__file__, "lake_questions.yaml")[kind], self._words(op)
        step, ask, shape, margin = (
            said.get(part, "1.0").format(**words) for part in ("step", "text", "shape", "margin")
        )
        self.add(op, step, ask, said["type"])
        for one in (s.op for s in self.steps):
            margin = guarded(margin, one, op) if isinstance(one, ops.Group) else margin
        columns = [c for c in dict.fromkeys(self.used) if c in self.table.columns]
        first = replace(self.steps[0], op=ops.Load(self.table.source(*columns)))
        skips = f"Skip rows without {said.get('what', 'a number').format(**words)}."
        if self.holes:
            skips = (
                "Some cells hold a placeholder where a value is missing: treat them as missing, "
                f"and s{skips[1:]}"
            )
        text = self._once(" ".join(filter(None, (ask, skips, self.least, said.get("end")))))
        key = f"{shape}|{sorted(self.keys)}|{sorted(self.used)}"
        return Question(text, (first, *self.steps[1:]), key, margin)

    def _words(self, op: Op) -> dict[str, Any]:
        """What stands in the braces of a question that ends in a step."""
        groups = (s.op for s in self.steps if isinstance(s.op, ops.Group))
        found: dict[str, Any] = {k: v for one in (*groups, op) for k, v in vars(one).items()}
        found |= dict(zip(("key", "second"), found.get("keys", ()), strict=False))
        words: dict[str, Any] = {**found, "where": self.where()}
        for part in {"of", "by", "column", "x", "y", "key", "second"} & found.keys():
            name = found[part]
            words |= {part: self.the(name), f"{part}_bare": self.col(name), f"{part}_name": name}
        if "how" in found:
            words |= {"how": WORDS[found["how"]], "summary": found["how"]}
        if "digits" in found:
            # how far the unrounded value is from where rounding turns, in units of the last digit
            rounding = f"abs((raw * 10 ** {found['digits']}) % 1 - 0.5)"
            words |= {"decimals": decimals(found["digits"]), "rounding": rounding}
        match op:
            case ops.Best(high) | ops.Nth(_, high) | ops.Top(_, high):
                place = found.get("place", found.get("k", 1))
                first = 1 if isinstance(op, ops.Nth) else place  # no tie above it
                gap = ", ".join(GAP.format(k=k) for k in range(first, place + 1))
                words |= {"order": "highest" if high else "lowest", "gap": gap}
                words["nth"] = _PLACES.get(place)
            case ops.Interpolate(_, at):
                words |= {"late": _LAST[at], "later": _LAST[at - 1]}
            case ops.Portion(_, sign):
                words["sign"] = SIGNS[sign]
            case ops.Fit(x, y):
                words["r"] = f'abs(t["{x}"].astype(float).corr(t["{y}"].astype(float)))'
            case _:
                pass
        return words

    def _once(self, text: str) -> str:
        """The text with a column's words where it is named first only."""
        for table in (self.table, *self.tables):
            for name, words in table.about.columns.items():
                long = f"'{name}' ({words})"
                head, found, rest = text.partition(long)
                text = head + found + rest.replace(long, f"'{name}'")
        return text


# --- kinds of questions

_MEANS: tuple[Summary, ...] = ("mean", "median", "total")


def _digits(b: Steps, number: str, how: Summary) -> int:
    """Digits that the answer can have."""
    whole = any(number in t.whole for t in b.tables if number in t.numbers)
    if whole and how in ("total", "median"):
        return 0 if how == "total" else 1
    return b.rng.choice((1, 2, 2, 3))


def _per_group(
    b: Steps, most: int = 60, least: int = NAMES_LEAST, years: bool = True
) -> tuple[str, str, Summary]:
    """(column of numbers, column of groups, summary), with the steps to one figure a group."""
    b.load()
    number, group = b.number(), b.group(most, least, years)
    b.maybe_filter()
    how = b.summary(number, _MEANS)
    b.grouped([group], number, how)
    return number, group, how


def _per_year(b: Steps, between: bool = False) -> Sequence[int]:
    """The steps to one figure a year; two of the years if asked for."""
    b.load("number")
    number, year = b.number(), b.year()
    span = list(b.table.spans[year])
    if between and len(span) < 4:
        raise NoQuestion
    years = sorted(b.rng.sample(span, 2)) if between else []
    b.maybe_filter()
    how = b.summary(number, _MEANS)
    if year in b.table.single_years and not b.said:
        raise NoQuestion  # a summary of one row a year
    b.grouped([year], number, how)
    return years


def one_number(b: Steps) -> Question:
    """A mean, median, spread or total, rounded."""
    b.load()
    number = b.number()
    if b.brings("group"):  # a column of another table to select rows by
        name = b.group(least=2)
        b.keep(name, b.rng.choice(list(b.sizes[name])))
    else:
        b.maybe_filter(0.9)
    how = b.summary(number, ("mean", "median", "std", "total", "total"))
    return b.asked("one_number", ops.Figure(number, how, _digits(b, number, how)))


def difference(b: Steps) -> Question:
    """How much two groups differ in the mean or median."""
    b.load()
    number, by = b.number(), b.group()
    one, other = b.rng.sample(list(b.sizes[by]), 2)
    b.maybe_filter(0.4)
    how = b.summary(number, ("mean", "median"))
    digits = _digits(b, number, how)
    return b.asked("difference", ops.Difference(by, one, other, number, how, digits))


def portion(b: Steps) -> Question:
    """The percentage of rows beyond a limit."""
    b.load("number")
    link = b.brings("number")
    number = b.number()
    limits = (b.tables[link.other] if link else b.table).levels.get(number, ())
    if not limits:
        raise NoQuestion
    limit = b.rng.choice(list(limits))
    b.maybe_filter(0.8)
    sign: Sign = ">" if b.rng.random() < 0.5 else "<"
    return b.asked("portion", ops.Portion(number, sign, limit, b.rng.choice((1, 1, 2))))


def line(b: Steps) -> Question:
    """Slope, correlation or both of two measured columns."""
    b.load("number")
    second = b.number() if b.brought else ""
    first = b.number(taken=[second])
    second = second or b.number(taken=[first])
    b.maybe_filter()
    kind = b.rng.choice(("slope", "correlation", "both"))
    if kind == "correlation":
        return b.asked(kind, ops.Correlate(first, second))
    return b.asked(kind, ops.Fit(first, second, kind == "both"))


def between_years(b: Steps) -> Question:
    """A yearly series interpolated at a point between two years."""
    _per_year(b)
    share = b.rng.choice((0.25, 0.5, 0.75))
    return b.asked("between_years", ops.Interpolate(share, b.rng.choice((1, 2, 3))))


def change(b: Steps) -> Question:
    """By how many per cent a yearly figure changed between two years."""
    one, other = _per_year(b, between=True)
    return b.asked("change", ops.Change(one, other, b.rng.choice((1, 1, 2))))


def share(b: Steps) -> Question:
    """The percentage of a total that belongs to one group."""
    b.load("group")
    number, name = b.number(amount=True), b.group(most=12, least=3)
    value = b.rng.choice(list(b.sizes[name]))
    b.maybe_filter(0.5)
    return b.asked("share", ops.Share(name, value, number, b.rng.choice((1, 1, 2))))


def above_own(b: Steps) -> Question:
    """How many rows lie above the mean of their own group."""
    b.load()
    number, name = b.number(), b.group()
    b.maybe_filter()
    return b.asked("above_own", ops.AboveOwn(name, number))


def spread(b: Steps) -> Question:
    """How far the highest group is from the lowest."""
    number, _, how = _per_group(b, least=3)
    return b.asked("spread", ops.Spread(_digits(b, number, how)))


def count_groups(b: Steps) -> Question:
    """How many groups lie above the overall mean."""
    _per_group(b)
    return b.asked("count_groups", ops.Above())


def best_group(b: Steps) -> Question:
    """The group with the highest or lowest summary."""
    _per_group(b)
    return b.asked("best_group", ops.Best(b.rng.random() < 0.6))


def nth_group(b: Steps) -> Question:
    """The group with the second or third highest or lowest summary."""
    _per_group(b)
    return b.asked("nth_group", ops.Nth(b.rng.choice((2, 3)), b.rng.random() < 0.6))


def top_groups(b: Steps) -> Question:
    """The k best groups."""
    _, name, _ = _per_group(b)
    size = len(b.sizes[name])
    k = b.rng.choice([k for k in (2, 3, 3, 4, 5) if enough(size, k)] or [2])
    return b.asked("top_groups", ops.Top(k, b.rng.random() < 0.7))


def group_values(b: Steps) -> Question:
    """One summary per group in alphabetical order."""
    _, name, _ = _per_group(b, most=10, least=3, years=False)
    if not one_order(b.sizes[name]):
        raise NoQuestion
    return b.asked("group_values", ops.Each())


def pair(b: Steps) -> Question:
    """The pair of two groups with the highest summary."""
    b.load()
    number, first = b.number(), b.group()
    second = b.year() if b.table.years and b.rng.random() < 0.6 else b.group()
    if any("," in value for name in (first, second) for value in b.sizes[name]):
        raise NoQuestion  # a comma parts the two
    b.maybe_filter(0.4)
    b.grouped([first, second], number, b.summary(number, _MEANS))
    return b.asked("pair", ops.Best(b.rng.random() < 0.7))


# kinds of questions; a new kind adds one function, one entry, and its words in
# `lake_questions.yaml`
KINDS: dict[str, Callable[[Steps], Question]] = {
    ask.__name__: ask
    for ask in (
        *(one_number, difference, portion, count_groups, best_group, top_groups, group_values),
        *(line, between_years, pair, share, spread, change, above_own, nth_group),
    )
}
_LINKED = 0.75  # of the draws are about a table that shares a key with another, where there is one


def question_for(
    tables: Sequence[Table], kind: str, seed: int, links: Links | None = None
) -> Question:
    """One question of a kind. Raises `NoQuestion` where the drawn table does not fit."""
    rng = Random(seed)
    links = links_of(tables) if links is None else links
    linked = [place for place, own in enumerate(links) if own]
    chosen = linked if linked and rng.random() < _LINKED else range(len(tables))
    place = rng.choice(chosen)
    try:
        return KINDS[kind](Steps(rng, tables[place], tables, links[place]))
    except NoQuestion as error:
        error.tables = (tables[place].key,)
        raise
