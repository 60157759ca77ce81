"""What the columns of one table are, decided from cells: numbers, dates, text, missing values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.tables.dates import date_format, formats, mark_of, parse
from assay.tables.marks import (
    SIGNS,
    Marks,
    groups_in,
    is_numeric,
    looks_numeric,
    marked_number,
    marks_of,
    plain_number,
    thousands_for,
)
from assay.tables.missing import SPELLINGS, as_number, missing_in_text, missing_words, sentinels
from assay.tables.overrules import Rule
from assay.tables.plan import ReadPlan, as_written

Cells = Mapping[str, int]  # distinct cells of text with how often they stand there
_SHOWN = 30


@dataclass(frozen=True)
class Column:
    """A column as it was found: its cells of text, its numbers. `typed`: not all is text."""

    name: str
    cells: Cells
    values: Mapping[float, int] = field(default_factory=dict[float, int])
    typed: bool = False

    def filled(self, missing: Sequence[str]) -> dict[str, int]:
        return {c: n for c, n in self.cells.items() if c.strip() and c not in missing}


def column_of(name: str, values: Sequence[Any]) -> Column:
    """The column of these values; None, NaN and the empty text are no values."""
    texts = Counter(v for v in values if isinstance(v, str))
    numbers = Counter(
        float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)
    )
    typed = any(v is not None and v == v and not isinstance(v, str) for v in values)
    return Column(name, texts, numbers, typed)


def decide(reading: ReadPlan, columns: Sequence[Column], rule: Rule) -> ReadPlan:
    """The reading with marks, kinds of columns and missing values decided; a rule is obeyed.

    Raises `Ambiguous` where the decimal mark of a delimited file is open.
    """
    gone = {c.name: _missing_for(c, rule) for c in columns}
    numeric = [
        c
        for c in columns
        if c.name not in rule.text
        and c.name not in rule.dates
        and is_numeric(c.filled(gone[c.name]))
    ]
    marks = _marks(reading, numeric, gone, rule)
    reading = replace(reading, decimal=marks.decimal, thousands=marks.thousands)
    for column in numeric:
        reading = as_numbers(reading, column, gone[column.name])
    reading = _with_dates(reading, columns, rule)
    for column in columns:
        reading = _rest(reading, column, rule)
    fixed = [c.name for c in columns if rule.missing_of(c.name) is not None]
    reading = replace(reading, fixed=tuple(fixed))
    for column in columns:
        reading = with_sentinels(reading, column.name, sentinels(_values(reading, column)))
    return reading


def _values(reading: ReadPlan, column: Column) -> dict[float, int]:
    """The numbers of a column, as far as they are known."""
    if column.name not in reading.numbers:
        return {} if column.cells else dict(column.values)
    found: dict[float, int] = dict(column.values)
    native = column.name not in reading.marked
    if native and not found and not (column.cells.keys() & SPELLINGS):
        return {}
    drop = re.compile(f"[$€£%\\s{re.escape(reading.thousands)}]")
    for cell, times in column.filled(reading.missing.get(column.name, ())).items():
        plain = drop.sub("", cell) if column.name in reading.marked else cell
        value = as_number(plain, reading.decimal)
        if value is not None:
            found[value] = found.get(value, 0) + times
    return found


def with_sentinels(
    reading: ReadPlan, name: str, found: tuple[list[float], list[float]]
) -> ReadPlan:
    """The reading with numbers that mean no value, and a note for those that may."""
    sure, maybe = found
    if name in reading.fixed:
        return reading
    known = {as_number(w, reading.decimal) for w in reading.missing.get(name, ())}
    words = [spelled(v) for v in sure if v not in known]
    if words:
        missing = _with(reading.missing, name, (*reading.missing.get(name, ()), *words))
        numbers = reading.numbers if name in reading.numbers else (*reading.numbers, name)
        reading = replace(reading, missing=missing, numbers=numbers)
    for value in maybe:
        said = (
            f"{name!r}: {spelled(value)} is kept as a number; if it means no value, name it under "
            "missing in tables.yaml"
        )
        if said not in reading.notes:
            reading = replace(reading, notes=(*reading.notes, said))
    return reading


def spelled(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _missing_for(column: Column, rule: Rule) -> tuple[str, ...]:
    told = rule.missing_of(column.name)
    return missing_words(column.cells) if told is None else told


def _marks(
    reading: ReadPlan, numeric: Sequence[Column], gone: Mapping[str, Sequence[str]], rule: Rule
) -> Marks:
    """What the rule says, else what the cells say. In forms that have numbers of their own, an
    open mark leaves the column text."""
    listed = [(c.name, list(c.filled(gone[c.name]))) for c in numeric]
    if rule.decimal:
        found = groups_in(c for _, cells in listed for c in cells)
        return Marks(rule.decimal, rule.thousands or thousands_for(rule.decimal, found))
    found = marks_of(listed, reading.between)
    return replace(found, thousands=rule.thousands or found.thousands)


def as_numbers(reading: ReadPlan, column: Column, gone: Sequence[str]) -> ReadPlan:
    """The column as numbers where every filled cell is one, else as text with the reason."""
    name, filled = column.name, column.filled(gone)
    plain = plain_number(reading.decimal)
    marked = marked_number(reading.decimal, reading.thousands)
    bare = all(plain.fullmatch(c) for c in filled)
    odd = None
    if not bare:
        odd = next((c for c in filled if not plain.fullmatch(c) and not marked.fullmatch(c)), None)
        odd = odd_sign(filled) if odd is None else odd
    if odd is not None:
        said = f"{name!r} stays text: {odd[:_SHOWN]!r} is no number like the others"
        return replace(reading, notes=(*reading.notes, said))
    native = reading.form == "csv" and bare and name not in as_written(reading)
    if not native and column.typed and not all(plain_number(".").fullmatch(c) for c in filled):
        said = f"{name!r} stays as it is: it mixes numbers with text such as {next(iter(filled))!r}"
        return replace(reading, notes=(*reading.notes, said))
    present = tuple(c for c in gone if c in column.cells)
    return replace(
        reading,
        numbers=(*reading.numbers, name),
        marked=reading.marked if native else (*reading.marked, name),
        missing=_with(reading.missing, name, present or tuple(gone)),
    )


def odd_sign(filled: Cells) -> str | None:
    """A cell whose sign of money or per cent the others do not share."""
    signs = {next((s for s in SIGNS if s in c), "") for c in filled}
    money = signs - {""}
    if len(money) > 1 or ("%" in money and "" in signs):
        return next(c for c in filled if any(s in c for s in SIGNS))
    return None


def _with(
    missing: Mapping[str, tuple[str, ...]], name: str, words: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    kept = {**missing, name: tuple(words)}
    return {k: v for k, v in kept.items() if v}


def _with_dates(reading: ReadPlan, columns: Sequence[Column], rule: Rule) -> ReadPlan:
    """Dates, where one format fits; the order of day and month that one column tells holds for
    all columns with the same mark between them."""
    open_columns = [
        c
        for c in columns
        if c.name not in reading.numbers and c.name not in rule.text and not c.typed
    ]
    listed = [(c, list(c.filled(_missing_for(c, rule)))) for c in open_columns]
    day_first: dict[str, bool] = {}
    told: set[str] = set()
    for _, cells in listed:
        fit = [f for f in formats(cells) if mark_of(f) and parse(cells, f) is not None]
        orders = {(mark_of(f), f.startswith("%d")) for f in fit}
        if len(orders) == 1:
            ((mark, first),) = orders
            if day_first.setdefault(mark, first) != first:
                told.add(mark)  # both orders are there: nothing is told
    day_first = {m: first for m, first in day_first.items() if m not in told}
    for column, cells in listed:
        reading = _dated(reading, column, cells, day_first, rule)
    return reading


def _dated(
    reading: ReadPlan, column: Column, cells: list[str], day_first: dict[str, bool], rule: Rule
) -> ReadPlan:
    name = column.name
    wanted = rule.dates.get(name)
    if wanted is not None:
        if not wanted:
            return reading
        form, why = wanted, ""
        if (parsed := parse(cells, form)) is None or len(parsed) != len(cells):
            odd = next((c for c in cells if parse([c], form) is None), cells[0])
            form, why = "", f"{odd[:_SHOWN]!r} is no date as {wanted}"
    else:
        form, why = date_format(cells, day_first)
    if form:
        words = tuple(w for w in _missing_for(column, rule) if w in column.cells)
        return replace(
            reading,
            dates={**reading.dates, name: form},
            missing=_with(reading.missing, name, words),
        )
    return (
        replace(reading, notes=(*reading.notes, f"{name!r} stays text: {why}"))
        if (why)
        else reading
    )


def _rest(reading: ReadPlan, column: Column, rule: Rule) -> ReadPlan:
    """Text: columns that pandas would turn into something else are named."""
    name = column.name
    if name in reading.numbers or name in reading.dates:
        return reading
    filled = column.filled(())
    told = rule.missing_of(name)
    words = missing_in_text(column.cells) if told is None else told
    reading = replace(reading, missing=_with(reading.missing, name, words))
    numeric = reading.form == "csv" and any(looks_numeric(c) for c in filled)
    if name in rule.text or numeric:
        reading = replace(reading, text=(*reading.text, name))
    return reading
