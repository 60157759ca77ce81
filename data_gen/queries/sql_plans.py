"""A question to a database as data, drawn from what the columns are good for.

SQL and pandas are written from it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, cast

from data_gen.queries.database import Field, Made, Unit

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
# `sql_write.py` and in `sql_proof.py`, and its wordings in `openings.yaml`
ONE: dict[str, Callable[[Unit, Random], Plan]] = {
    ask.__name__[1:]: ask
    for ask in (
        *(_list, _count, _aggregate, _group, _having, _top, _distinct, _above_average, _absent),
        *(_share, _date_part, _top_each, _best_group),
    )
}
TWO = {ask.__name__[1:]: ask for ask in (_join, _join_filter, _unmatched)}


def kinds_of(unit: Unit) -> tuple[str, ...]:
    """The kinds of questions that a unit can be asked."""
    return tuple(TWO if unit.link else ONE)
