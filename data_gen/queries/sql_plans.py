# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What can be asked of a database: tables of files as tables of a database (names, types,
constraints, rows), and a question as data, drawn from what the columns are good for.

SQL (`sql_write.py`) and pandas (`sql_tasks.py`) are written from a question apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Literal, cast

from data_gen.queries.tables import Link
from data_gen.queries.tables import Table as Described
from rewards.sql.data import RESERVED, Cell, Column, Database, Table, Type, packed

Frame = Any
LONGEST = 120  # characters of a cell
_KEYS = ("id", "code", "thing", "rank")  # what numbers are that rows are known by
COLUMNS = 12  # of a table; those that questions can use come first
_WORDS = 40  # characters of what is said of a column


@dataclass(frozen=True)
class Field:
    """A column: `name` in the database, `original` in the file, `words` in the question."""

    name: str
    original: str
    words: str
    kind: Literal["number", "group", "name", "key", "year", "date", "other"] = "other"
    nullable: bool = False
    unique: bool = False
    whole: bool = False  # whole numbers


@dataclass(frozen=True)
class Made:
    """One table of a database, and the frame it was made of: its first rows, untouched. `cut` says
    how many of the file's rows these are, where they are not all."""

    table: Table
    fields: tuple[Field, ...]
    described: Described
    frame: Frame
    comments: Mapping[str, str]  # words for columns whose names do not say it
    cut: str = ""

    def of_kind(self, *kinds: str) -> list[Field]:
        return [f for f in self.fields if f.kind in kinds]


@dataclass(frozen=True)
class Unit:
    """What questions are asked of: a table, or two that can be joined. `link`: how."""

    made: tuple[Made, ...]
    link: tuple[Field, Field] | None = None  # of the first, of the second

    @cached_property
    def database(self) -> Database:
        """The table that is referred to stands first."""
        return Database(tuple(m.table for m in reversed(self.made)))

    @cached_property
    def packed(self) -> str:
        """The database as a task carries it."""
        return packed(self.database)


def made(
    described: Described, frame: Frame, rows: int, columns: int, taken: str = ""
) -> Made | str:
    """The table of a database with the first `rows` rows, or why there is none. `taken`: a name of
    another table."""
    whole = len(frame)
    frame = frame.head(rows)
    found: list[tuple[Field, Column, list[Cell]]] = []
    names: set[str] = set()
    for original in _chosen(described, frame, columns):
        cells = cells_of(frame[original])
        if cells is None:
            continue
        name = identifier(str(original), names)
        names.add(name)
        found.append(_field(described, str(original), name, cells))
    kinds = [f.kind for f, _, _ in found]
    if len(found) < 2 or not {"number", "group"} & set(kinds):
        return "no two columns that a question could be asked of"
    found = _distinct_words(found)
    name = identifier(_stem(described), {taken})
    data = tuple(zip(*(cells for _, _, cells in found), strict=True))
    comments = {
        f.name: f.words
        for f, _, _ in found
        if f.words.lower().split() != f.name.strip("_").split("_")
    }
    table = Table(name, tuple(c for _, c, _ in found), data)
    cut = f"{name}: first {rows:,} of {whole:,} rows" if whole > rows else ""
    return Made(table, tuple(f for f, _, _ in found), described, frame, comments, cut)


def _chosen(described: Described, frame: Frame, most: int) -> list[Any]:
    """The columns that are carried, in their order: of many, those that questions can use."""
    useful = [
        *(one.column for one in described.refers),
        *described.names[:2],
        *described.keys[:2],
        *_row_numbers(described)[:1],
        *described.groups[:4],
        *described.years[:1],
        *described.numbers[:6],
    ]
    dates = [c for c in frame.columns if frame[c].dtype.kind == "M"][:1]
    rest = [c for c in frame.columns if str(c) not in useful and c not in dates]
    kept = [*dict.fromkeys([*dates, *useful]), *map(str, rest)][:most]
    return [c for c in frame.columns if str(c) in {str(k) for k in kept}]


def _row_numbers(described: Described) -> list[str]:
    """Columns of whole numbers that tell the rows apart."""
    found = described.sense.items()
    return [n for n, c in found if c.kind in _KEYS and c.whole and described.is_unique(n)]


def cells_of(column: Any) -> list[Cell] | None:
    """The cells of a column as SQLite holds them; None where it cannot hold them."""
    kind = column.dtype.kind
    there = column.notna()
    if kind == "b":
        return [int(v) for v in column]
    if kind in "iu" or (kind == "f" and bool((column[there] == column[there].round()).all())):
        if there.any() and float(column[there].abs().max()) >= 2**53:
            return None
        return [int(v) if ok else None for v, ok in zip(column, there, strict=True)]
    if kind == "f":
        if bool(column[there].abs().max() == float("inf")):
            return None
        return [float(v) if ok else None for v, ok in zip(column, there, strict=True)]
    if kind == "M":
        days = column.dt.strftime("%Y-%m-%d")
        whole = bool((column[there].dt.normalize() == column[there]).all())
        said = days if whole else column.dt.strftime("%Y-%m-%d %H:%M:%S")
        return [str(v) if ok else None for v, ok in zip(said, there, strict=True)]
    texts: list[Cell] = [v if ok else None for v, ok in zip(column, there, strict=True)]
    plain = all(v is None or (isinstance(v, str) and _short(v)) for v in texts)
    return texts if plain else None


def _short(text: str) -> bool:
    return len(text) <= LONGEST and text.isprintable() and text == text.strip()


def _field(
    described: Described, original: str, name: str, cells: list[Cell]
) -> tuple[Field, Column, list[Cell]]:
    filled = [c for c in cells if c is not None]
    required, distinct = len(filled) == len(cells), len(set(filled))
    types: tuple[Type, ...] = ("TEXT", "REAL", "INTEGER")
    kinds = {type(c) for c in filled}
    declared = types[0] if str in kinds else types[1] if float in kinds else types[2]
    date = declared == "TEXT" and bool(filled) and all(_DAY.fullmatch(str(c)) for c in filled)
    unique = bool(filled) and distinct == len(filled) and declared != "REAL" and not date
    kind = _kind(described, original, date, unique, distinct, len(filled))
    words = _words(described.about.columns.get(original, ""), original)
    column = Column(name, declared, required, unique, date)
    whole = declared == "INTEGER"
    return Field(name, original, words, kind, not required, unique, whole), column, cells


_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def _kind(
    described: Described, original: str, date: bool, unique: bool, distinct: int, filled: int
) -> Any:
    if date:
        return "date" if distinct >= 5 else "other"
    if original in described.numbers and distinct >= 5:
        return "number"
    if original in described.groups and 2 <= distinct < filled:
        return "group"
    if original in described.names and unique:
        return "name"
    if original in described.keys or _is_number_key(described, original, unique):
        return "key"
    return "year" if original in described.years and distinct >= 5 else "other"


def _is_number_key(described: Described, original: str, unique: bool) -> bool:
    """Whether whole numbers tell the rows apart, or refer to rows of another table."""
    refers = any(one.column == original for one in described.refers)
    column = described.sense.get(original)
    return column is not None and column.whole and (refers or (unique and column.kind in _KEYS))


_ARTICLE = re.compile(r"^(the|an?) ", re.I)
# sentences, conditions and figures are no names of a column
_NO_NAME = re.compile(
    r"^(indicat|whether|is |was |are |if |as |see |same|did |does |has |\d)|['=?]", re.I
)


def _words(said: str, original: str) -> str:
    """How a question names a column: by what is said of it, or in the words of its name."""
    plain = plain_words(original)
    text = _ARTICLE.sub("", " ".join(said.split()))
    fits = 3 < len(text) <= _WORDS and text.isprintable() and not _NO_NAME.search(text)
    return (text[0].lower() + text[1:] if text[1:2].islower() else text) if fits else plain


def _distinct_words(
    found: Sequence[tuple[Field, Column, list[Cell]]],
) -> list[tuple[Field, Column, list[Cell]]]:
    """Two columns that are said alike go by their names."""
    said = [f.words.lower() for f, _, _ in found]
    return [
        (replace(f, words=f"'{f.name}'") if said.count(f.words.lower()) > 1 else f, c, cells)
        for f, c, cells in found
    ]


def plain_words(original: str) -> str:
    """The words of a column's name, in any script: as they are written, and in quotes where they
    have other marks, such as brackets or a percent sign."""
    text = " ".join(unicodedata.normalize("NFC", original).split())
    if not all(_is_letter(c) or c in " _./-" for c in text):
        return f"'{text}'"
    return " ".join(_word(w) for w in re.split(r"[ _./-]+", text) if w)


_CAMEL = re.compile(r"(?<=[a-z]{2})(?=[A-Z])")  # floorArea, and not kW


def _word(word: str) -> str:
    """A word as it is written, but for `floorArea` and `TOTAL`."""
    if word.isupper() and word.isascii() and len(word) > 3:
        return word.lower()
    return _CAMEL.sub(" ", word).lower() if _CAMEL.search(word) else word


def _is_letter(char: str) -> bool:
    """Whether it stands in words: letters of any script with their marks, and digits."""
    return unicodedata.category(char)[0] in "LMN"


def identifier(text: str, taken: set[str]) -> str:
    """A name in lower case, in the letters that it is written in; one of English letters needs no
    quotation marks in SQL, as a rule."""
    parted = _CAMEL.sub("_", unicodedata.normalize("NFC", text))
    known = "".join(c if _is_letter(c) else "_" for c in parted)
    plain = re.sub("__+", "_", known).strip("_").lower() or "column"
    plain = f"n_{plain}" if plain[0].isdigit() else plain
    plain = f"{plain}_" if plain.upper() in RESERVED else plain
    name, number = plain[:48], 2
    while name in taken:
        name, number = f"{plain[:44]}_{number}", number + 1
    return name


def _stem(described: Described) -> str:
    part = described.reading.part
    if part and described.reading.form in ("sqlite", "excel"):
        return part
    name = Path(described.path).name.split(".")[0]
    return f"{name}_{part}" if part and part != "0" else name


def joined(one: Made, two: Made, link: Link) -> Unit | None:
    """The two tables as one database; None where the keys are not carried or hardly meet."""
    mine = next((f for f in one.fields if f.original == link.mine), None)
    theirs = next((f for f in two.fields if f.original == link.theirs and f.unique), None)
    if mine is None or theirs is None:
        return None
    own, other = set(one.table.values(mine.name)), set(two.table.values(theirs.name))
    if len((own & other) - {None}) < (2 if link.declared else 5):
        return None
    refers = (two.table.name, theirs.name) if own - {None} <= other else None
    columns = tuple(
        replace(c, refers=refers) if c.name == mine.name else c for c in one.table.columns
    )
    table = replace(one.table, columns=columns)
    return Unit((replace(one, table=table), two), (mine, theirs))


# --- a question, drawn


Sign = Literal["=", "!=", ">", ">=", "<", "<="]
Summary = Literal["mean", "total", "largest", "smallest", "rows"]
SUMMARIES: tuple[Summary, ...] = ("mean", "total", "largest", "smallest")


@dataclass(frozen=True)
class Filter:
    field: Field
    sign: Sign
    value: int | float | str


@dataclass(frozen=True)
class Plan:
    """One question over the table in place 0 of its unit; `join`: over rows of that table with
    those of the table in place 1 whose `theirs` is their `mine`. `join_filter` has its conditions
    on the second table."""

    kind: str  # of `ONE` or `TWO`
    filters: tuple[Filter, ...] = ()
    shown: tuple[Field, ...] = ()  # columns of the result that are taken as they are
    group: Field | None = None
    measure: Field | None = None
    summary: Summary = "rows"
    limit: int = 0  # rows of an order, or the bound of a HAVING
    down: bool = True  # the largest first
    sign: Sign = ">"
    part: Literal["", "year", "month", "decade"] = ""
    mine: Field | None = None
    theirs: Field | None = None

    @property
    def shape(self) -> str:
        """What is asked, without the values: a second question of one shape is a near-duplicate."""
        fields = (*(f.field for f in self.filters), *self.shown, self.group, self.measure)
        names = [f.name if f else "-" for f in (*fields, self.mine)]
        return " ".join([self.kind, self.summary, self.part, *names])

    @property
    def columns(self) -> tuple[Field, ...]:
        """Every column that it names, once."""
        found = (*(f.field for f in self.filters), *self.shown, self.group, self.measure)
        return tuple(dict.fromkeys(f for f in found if f is not None))


# of the keys of one table, those that the other has: of others, what has no match may only be
# spelled otherwise there
_FOUND = 0.95


class NoPlan(Exception):
    """The columns do not fit this kind of question."""


def draft(unit: Unit, kind: str, rng: Random) -> Plan:
    """A plan of this kind. Raises `NoPlan`, also where rows would be counted that are the cells of
    a table by categories."""
    plan = {**ONE, **TWO}[kind](unit, rng)
    counts = kind in ("count", "share", "having") or (
        kind in ("group", "join", "join_filter", "date_part", "best_group")
        and plan.summary == "rows"
    )
    if counts and any(c.kind == "cells" for m in unit.made for c in m.described.sense.values()):
        raise NoPlan
    return plan


def _pick(fields: Sequence[Field], rng: Random, *taken: Field) -> Field:
    free = [f for f in fields if f not in taken]
    if not free:
        raise NoPlan
    return rng.choice(free)


def _summary(made: Made, rng: Random, measure: Field) -> Summary:
    """Of what can be summarised: only amounts are added up."""
    total = measure.original in made.described.totals
    return rng.choice(SUMMARIES if total else tuple(s for s in SUMMARIES if s != "total"))


def _measure(made: Made, rng: Random, chance: float) -> tuple[Field | None, Summary]:
    """With some chance, a measure and how it is summarised; else rows are counted."""
    numbers = made.of_kind("number")
    measure = _pick(numbers, rng) if numbers and rng.random() < chance else None
    return measure, _summary(made, rng, measure) if measure else "rows"


def _filter(made: Made, rng: Random, *taken: Field) -> Filter:
    """A condition that some rows meet and some do not."""
    field = _pick(made.of_kind("group", "number", "year"), rng, *taken)
    return _condition(made, field, rng)


def _condition(made: Made, field: Field, rng: Random) -> Filter:
    values = [v for v in made.table.values(field.name) if v is not None]
    if field.kind == "group":
        different = sorted(set(cast("list[str]", values)))
        if len(different) < 2:
            raise NoPlan
        sign: Sign = "!=" if len(different) > 3 and rng.random() < 0.2 else "="
        return Filter(field, sign, rng.choice(different))
    ordered = sorted(cast("list[float]", values))
    bound = ordered[int(len(ordered) * rng.choice((0.2, 0.35, 0.5, 0.65, 0.8)))]
    if not ordered[0] < bound < ordered[-1]:
        raise NoPlan
    sign = rng.choice(cast("tuple[Sign, ...]", (">", ">=", "<", "<=")))
    return Filter(field, sign, _rounded(bound, ordered))


def _rounded(bound: float, ordered: Sequence[float]) -> int | float:
    """A bound of three digits, where it still parts the values."""
    if isinstance(bound, int) and abs(bound) < 10_000:
        return bound
    short = float(f"{bound:.3g}")
    short = int(short) if isinstance(bound, int) else short
    return short if ordered[0] < short < ordered[-1] else bound


def _some_filters(made: Made, rng: Random, *taken: Field) -> tuple[Filter, ...]:
    first = _filter(made, rng, *taken)
    if rng.random() < 0.3:
        try:
            return (first, _filter(made, rng, first.field, *taken))
        except NoPlan:
            pass
    return (first,)


def _key(made: Made, rng: Random, *taken: Field) -> Field:
    """A column that tells a row from the others, so that a list of rows says which they are."""
    return _pick([f for f in made.of_kind("name", "key") if f.unique], rng, *taken)


def _shown(made: Made, rng: Random, *taken: Field) -> tuple[Field, ...]:
    """Columns to list: a name and perhaps another, or two where no name tells the rows apart."""
    rest = made.of_kind("group", "number", "year", "date", "name")
    named = any(f.unique for f in made.of_kind("name", "key"))
    first = _key(made, rng, *taken) if named else _pick(rest, rng, *taken)
    if named and rng.random() < 0.5:
        return (first,)
    return (first, _pick(rest, rng, first, *taken))


def _list(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    filters = _some_filters(made, rng)
    shown = _shown(made, rng, *(f.field for f in filters))
    return Plan("list", filters, shown)


def _count(unit: Unit, rng: Random) -> Plan:
    return Plan("count", _some_filters(unit.made[0], rng))


def _aggregate(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    measure = _pick(made.of_kind("number"), rng)
    filters = _some_filters(made, rng, measure)
    return Plan("aggregate", filters, measure=measure, summary=_summary(made, rng, measure))


def _per_group(kind: str, unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    group = _pick(made.of_kind("group"), rng)
    measure, summary = _measure(made, rng, 0.75)
    taken = [f for f in (group, measure) if f is not None]
    filters = (_filter(made, rng, *taken),) if rng.random() < 0.5 else ()
    return Plan(kind, filters, group=group, measure=measure, summary=summary)


def _group(unit: Unit, rng: Random) -> Plan:
    return _per_group("group", unit, rng)


def _having(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    group = _pick(made.of_kind("group"), rng)
    values = made.table.values(group.name)
    sizes = sorted(values.count(v) for v in set(values) - {None})
    bound = sizes[int(len(sizes) * rng.choice((0.4, 0.6, 0.75)))]
    filters = (_filter(made, rng, group),) if rng.random() < 0.3 else ()
    sign = rng.choice(cast("tuple[Sign, ...]", (">", ">=", "<")))
    return Plan("having", filters, group=group, limit=max(2, bound), sign=sign)


def _top(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    measure = _pick(made.of_kind("number"), rng)
    key = _key(made, rng)
    shown = (key, measure) if rng.random() < 0.4 else (key,)
    filters = (_filter(made, rng, measure, key),) if rng.random() < 0.5 else ()
    k, down = rng.choice((1, 3, 5)), rng.random() < 0.7
    return Plan("top", filters, shown, measure=measure, limit=k, down=down)


def _distinct(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    group = _pick(made.of_kind("group"), rng)
    filters = _some_filters(made, rng, group)
    return Plan("distinct", filters, group=group, limit=rng.choice((0, 1)))


def _above_average(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    measure = _pick(made.of_kind("number"), rng)
    shown = (_key(made, rng),)
    filters = (_filter(made, rng, measure, *shown),) if rng.random() < 0.6 else ()
    sign: Literal[">", "<"] = ">" if rng.random() < 0.6 else "<"
    return Plan("above_average", filters, shown, measure=measure, sign=sign)


def _absent(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    group = _pick(made.of_kind("group"), rng)
    return Plan("absent", (_filter(made, rng, group),), group=group)


def _share(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    asked = _filter(made, rng)
    given = (_filter(made, rng, asked.field),) if rng.random() < 0.7 else ()
    return Plan("share", (*given, asked))


def _date_part(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    when = _pick(made.of_kind("date", "year"), rng)
    part: Literal["year", "month", "decade"] = "decade"
    if when.kind == "date":
        part = "year" if rng.random() < 0.5 else "month"
    measure, summary = _measure(made, rng, 0.6)
    taken = [f for f in (when, measure) if f is not None]
    filters = (_filter(made, rng, *taken),) if rng.random() < 0.5 else ()
    return Plan("date_part", filters, group=when, measure=measure, summary=summary, part=part)


def _top_each(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    group = _pick(made.of_kind("group"), rng)
    measure = _pick(made.of_kind("number"), rng)
    shown = (_key(made, rng),)
    filters = (_filter(made, rng, group, measure, *shown),) if rng.random() < 0.3 else ()
    k, down = rng.choice((1, 1, 2)), rng.random() < 0.7
    return Plan("top_each", filters, shown, group, measure, limit=k, down=down)


def _best_group(unit: Unit, rng: Random) -> Plan:
    made = unit.made[0]
    found = _per_group("best_group", unit, rng)
    assert found.group is not None
    values = set(made.table.values(found.group.name)) - {None}
    if len(values) < 4:
        raise NoPlan
    k = rng.choice((1, 2, 3) if len(values) >= 6 else (1,))
    return replace(found, limit=k, down=rng.random() < 0.7)


def _join(unit: Unit, rng: Random) -> Plan:
    assert unit.link is not None
    one, two = unit.made
    mine, theirs = unit.link
    own = {f.original for f in one.fields}
    group = _pick([f for f in two.of_kind("group") if f.original not in own], rng, theirs)
    measure, summary = _measure(one, rng, 0.8)
    taken = [f for f in (mine, measure) if f is not None]
    filters = (_filter(one, rng, *taken),) if rng.random() < 0.5 else ()
    asked = Plan("join", filters, group=group, measure=measure, summary=summary)
    return replace(asked, mine=mine, theirs=theirs)


def _join_filter(unit: Unit, rng: Random) -> Plan:
    assert unit.link is not None
    one, two = unit.made
    mine, theirs = unit.link
    own = {name for f in one.fields for name in (f.original, f.words)}
    free = [f for f in two.of_kind("group", "number", "year") if not {f.original, f.words} & own]
    condition = _condition(two, _pick(free, rng, theirs), rng)
    measure, summary = _measure(one, rng, 0.7)
    asked = Plan("join_filter", (condition,), measure=measure, summary=summary)
    return replace(asked, mine=mine, theirs=theirs)


def _unmatched(unit: Unit, rng: Random) -> Plan:
    assert unit.link is not None
    mine, theirs = unit.link
    one, two = unit.made
    own = {v for v in one.table.values(mine.name) if v is not None}
    if len(own & set(two.table.values(theirs.name))) < _FOUND * len(own):
        raise NoPlan
    return Plan("unmatched", mine=mine, theirs=theirs)


# kinds of questions over one table, and over two; a new kind adds one function here, in
# `sql_write.py` and in `sql_tasks.py`, and its wordings in `openings.yaml`
ONE: dict[str, Callable[[Unit, Random], Plan]] = {
    ask.__name__[1:]: ask
    for ask in (
        *(_list, _count, _aggregate, _group, _having, _top, _distinct, _above_average, _absent),
        *(_share, _date_part, _top_each, _best_group),
    )
}
TWO = {ask.__name__[1:]: ask for ask in (_join, _join_filter, _unmatched)}
