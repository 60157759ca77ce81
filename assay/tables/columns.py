"""What the columns of one table are, decided from cells: numbers, dates, text, missing values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

from assay.tables.dates import date_format, formats, mark_of, parse
from assay.tables.doubts import Doubt, shown
from assay.tables.grid import yaml_list, yaml_word
from assay.tables.missing import (
    SPELLINGS,
    Sentinel,
    as_number,
    may_be_missing,
    missing_in_text,
    missing_words,
    open_words,
    sentinels,
)
from assay.tables.number_format import (
    SIGNS,
    Marks,
    all_alike,
    all_simple,
    code_like,
    groups_in,
    is_numeric,
    looks_numeric,
    marked_number,
    marks_of,
    mostly_numbers,
    plain_number,
    thousands_for,
)
from assay.tables.plan import ReadPlan, as_written, in_doubt
from assay.tables.settings import FileSettings

Cells = Mapping[str, int]  # distinct cells of text with how often they stand there
_SHOWN = 30
_UNNAMED = re.compile(r"Unnamed: \d+")
# 5 or fewer; what accountants and others write for a number below zero; lakhs; 1.2 for 1.2k
_BOUND = re.compile(r"[<>≤≥~≈]=?\s*[$€£]?[0-9][0-9.,]*\s*[%$€£]?")
_OTHERWISE = re.compile(
    r"\(\s*[$€£]?[0-9][0-9.,]*\s*[%$€£]?\s*\)|[$€£]?[0-9][0-9.,]*\s?[-\u2212]"
    r"|[\u2012\u2013\u2212]\s?[$€£]?[0-9.,]*[0-9]|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?:\.[0-9]+)?"
    r"|[$€£]?[-+]?[0-9][0-9.,]*\s?(?:[kKM]|Mio\.?|Mrd\.?|Tsd\.?|bn|mn|kg|km|cm|mm|EUR|CHF|USD)"
    r"|(?:EUR|CHF|USD|GBP|Rs\.?|R\$|¥|₹)\s?[-+]?[0-9][0-9.,']*"
)
_FEW = 3  # words among numbers that may mean no value; more are values of a column of text


@dataclass(frozen=True)
class Column:
    """A column as it was found: its cells of text, its numbers. `typed`: not all is text."""

    name: str
    cells: Cells
    values: Mapping[float, int] = field(default_factory=dict[float, int])
    typed: bool = False
    plain: bool = True  # text and numbers, no days and no truth values
    days: bool = False  # some values are days

    def filled(self, missing: Sequence[str]) -> Cells:
        """The cells that are neither empty nor a word for a missing value."""
        key = tuple(missing)
        if key not in self._filled:
            gone = frozenset(key)
            blank = {c for c in self.cells if c[-1:].isspace() and not c.strip()} | {""} | gone
            kept = {c: n for c, n in self.cells.items() if c not in blank}
            self._filled[key] = (kept, all_simple(kept))
        return self._filled[key][0]

    def simple(self, missing: Sequence[str]) -> bool:
        """Whether the filled cells are numbers as programs write them (`all_simple`)."""
        self.filled(missing)
        return self._filled[tuple(missing)][1]

    @cached_property
    def _filled(self) -> dict[tuple[str, ...], tuple[Cells, bool]]:
        return {}


def column_of(name: str, values: Sequence[Any]) -> Column:
    """The column of these values; None, NaN and the empty text are no values."""
    texts = Counter(v for v in values if isinstance(v, str))
    numbers = Counter(
        float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)
    )
    typed = any(v is not None and v == v and not isinstance(v, str) for v in values)
    plain = sum(texts.values()) + sum(numbers.values()) == sum(v is not None for v in values)
    days = any(isinstance(v, date) for v in values)
    return Column(name, texts, numbers, typed, plain, days)


def decide(reading: ReadPlan, columns: Sequence[Column], rule: FileSettings) -> ReadPlan:
    """The reading with marks, kinds of columns and missing values decided; a rule is obeyed. What
    can be meant in two ways is a doubt of its column.

    Raises `Unreadable` where every column is in doubt.
    """
    fixed = [c.name for c in columns if rule.missing_of(c.name) is not None]
    reading = replace(
        reading,
        fixed=tuple(fixed),
        doubts=(*reading.doubts, *alike_names(columns, rule), *_unnamed(columns, rule)),
    )
    gone = {c.name: _missing_for(c, rule) for c in columns}
    numeric = [
        c
        for c in columns
        if c.name not in rule.text and c.name not in rule.dates and _is_numeric(c, gone, rule)
    ]
    for column in numeric:
        if not column.simple(gone[column.name]):
            filled, numbers = column.filled(gone[column.name]), sum(column.values.values())
            reading = doubting(reading, word_doubt(column.name, filled, numbers))
    used = set(reading.used)
    numeric = [c for c in numeric if c.name in used]
    taken = {*rule.text, *rule.dates, *rule.numbers, *(c.name for c in numeric)}
    for column in (c for c in columns if c.name not in taken):
        reading = doubting(reading, _otherwise(column) or _among_days(column))
    marks = _marks(reading, numeric, gone, rule)
    reading = replace(
        reading,
        decimal=marks.decimal,
        thousands=marks.thousands,
        marks=_own_marks(numeric, gone, rule),
        clear=(*marks.clear, *rule.decimals),
        doubts=(*reading.doubts, *marks.doubts),
    )
    for column in numeric:
        if column.name in reading.used:
            reading = as_numbers(reading, column, gone[column.name])
    reading = _with_dates(reading, columns, rule)
    for column in columns:
        reading = _rest(reading, column, rule)
    for column in columns:
        reading = with_sentinels(reading, column.name, sentinels(_values(reading, column)))
    return some_left(reading)


def some_left(reading: ReadPlan) -> ReadPlan:
    """The reading. Raises `Unreadable` where every column is in doubt."""
    if reading.columns and not reading.used:
        raise in_doubt(*reading.doubts)
    return reading


def doubting(reading: ReadPlan, doubt: Doubt | None) -> ReadPlan:
    """The reading with one doubt more, if there is one."""
    return replace(reading, doubts=(*reading.doubts, doubt)) if doubt else reading


def alike_names(columns: Sequence[Column], rule: FileSettings) -> list[Doubt]:
    """The doubts of columns whose names differ by case, blanks or line breaks alone, or not at
    all: pandas writes .1 behind the second of two equal names."""
    if rule.names:
        return []
    alike: dict[str, list[str]] = {}
    listed = [c.name for c in columns]
    for name in listed:
        key = " ".join(_unnumbered(name, listed).casefold().split())
        alike.setdefault(key, []).append(name)
    settle = f"names: {yaml_list(listed)}  # with other names for these"
    found: list[Doubt] = []
    for group in (g for g in alike.values() if len(g) > 1):
        said = f"the names {', '.join(map(repr, group))} differ by case, blanks or a number alone"
        found += [Doubt("alike_names", said, settle, name) for name in group]
    return found


def _unnamed(columns: Sequence[Column], rule: FileSettings) -> list[Doubt]:
    """The doubts of columns that hold something and have no name, but for the first: there pandas
    writes the numbers of the rows."""
    listed = [c.name for c in columns]
    settle = f"names: {yaml_list(listed)}  # with a name for it"
    return [
        Doubt("layout", f"column {place + 1} has no name", settle, column.name)
        for place, column in enumerate(columns)
        if place and not rule.names and _UNNAMED.fullmatch(column.name)
        if column.filled(()) or column.values
    ]


def _unnumbered(name: str, names: Sequence[str]) -> str:
    """A name without the number that pandas writes behind the second of two equal names."""
    bare, _, number = name.rpartition(".")
    if not bare or not number.isdecimal() or not 0 < int(number) < len(names):
        return name
    earlier = [bare, *(f"{bare}.{n}" for n in range(1, int(number)))]
    return bare if set(earlier) <= set(names) else name


def word_doubt(name: str, filled: Cells, numbers: int = 0) -> Doubt | None:
    """The doubt of a column of numbers in which words stand, if they may mean no value. `numbers`
    are not among the `filled` cells, which are text."""
    odd = {c: n for c, n in filled.items() if not looks_numeric(c)}
    told = open_words(odd)
    plain = [c for c in odd if not any(map(str.isdigit, c)) or _BOUND.fullmatch(c.strip())]
    if not odd or (not told and (len(odd) > _FEW or len(plain) < len(odd))):
        return None
    word = told[0] if told else max(odd, key=lambda c: (odd[c], c))
    words = told or sorted(odd)
    count = sum(filled.values()) + numbers
    said = f"{shown(word)} stands among numbers ({odd[word]} of {count} cells)"
    settle = f"missing: {{{yaml_word(name)}: {yaml_list(words)}}}  # or text: {yaml_list([name])}"
    return Doubt("sentinel", said, settle, name)


def _otherwise(column: Column) -> Doubt | None:
    """The doubt of a column of numbers some of which are written as no reader takes them."""
    filled = column.filled(missing_words(column.cells))
    odd = [c for c in filled if not looks_numeric(c)]
    if not odd or not all(_OTHERWISE.fullmatch(c.strip()) for c in odd):
        return None
    plain = column.values or len(odd) < len(filled)
    if not plain and odd[0].strip()[-1:] not in "0123456789":  # spans, notes, a unit in each
        return None
    said = f"{shown(odd[0])} may be a number in another spelling, such as one below zero or of "
    settle = f"text: {yaml_list([column.name])}"
    return Doubt("number_mark", f"{said}thousands; write it as in -1234.5", settle, column.name)


def _among_days(column: Column) -> Doubt | None:
    """The doubt of a column of days some of which are text."""
    odd = list(column.filled(missing_words(column.cells)))
    if not column.days or not odd:
        return None
    said = f"{shown(odd[0])} is text, and other cells are days; write them alike"
    return Doubt("date_order", said, column=column.name)


def _is_numeric(column: Column, gone: Mapping[str, Sequence[str]], rule: FileSettings) -> bool:
    filled = column.filled(gone[column.name])
    if column.name in rule.numbers:
        return bool(filled)
    if column.simple(gone[column.name]):
        return bool(filled) and not all_alike(filled)
    open_ones = open_words(filled) if column.name not in rule.missing else ()
    certain = {c: n for c, n in filled.items() if c not in open_ones}
    numbers = sum(column.values.values())
    return bool(filled) and is_numeric(certain, numbers)


def _values(reading: ReadPlan, column: Column) -> dict[float, int]:
    """The numbers of a column, as far as they are known."""
    if column.name not in reading.numbers:
        return {} if column.cells else dict(column.values)
    found: dict[float, int] = dict(column.values)
    native = column.name not in reading.marked
    if native and not found and not (column.cells.keys() & SPELLINGS):
        return {}
    mark = reading.decimal_of(column.name)
    drop = re.compile(f"[$€£%\\s{re.escape(reading.thousands_of(column.name))}]")
    missing = reading.missing.get(column.name, ())
    simple = not found and mark != "," and column.simple(missing)
    if simple and not may_be_missing(map(float, column.filled(missing))):
        return {}
    for cell, times in column.filled(missing).items():
        plain = drop.sub("", cell) if column.name in reading.marked else cell
        value = as_number(plain, mark)
        if value is not None:
            found[value] = found.get(value, 0) + times
    return found


def with_sentinels(reading: ReadPlan, name: str, found: Sequence[Sentinel]) -> ReadPlan:
    """The reading with a doubt of the column where a number may mean no value."""
    mark = reading.decimal_of(name)
    known = {as_number(w, mark) for w in reading.missing.get(name, ())}
    found = [f for f in found if f.value not in known]
    if name in reading.fixed or name not in reading.used or not found:
        return reading
    first = found[0]
    said = (
        f"{spelled(first.value)} stands in {first.times} of {first.rows} cells, the others are "
        f"{spelled(first.low)} to {spelled(first.high)}: a value, or none"
    )
    words = yaml_list(spelled(f.value) for f in found)
    settle = f"missing: {{{yaml_word(name)}: {words}}}  # or [] if it is a value"
    return doubting(reading, Doubt("sentinel", said, settle, name))


def spelled(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _missing_for(column: Column, rule: FileSettings) -> tuple[str, ...]:
    told = rule.missing_of(column.name)
    return missing_words(column.cells) if told is None else told


def _marks(
    reading: ReadPlan,
    numeric: Sequence[Column],
    gone: Mapping[str, Sequence[str]],
    rule: FileSettings,
) -> Marks:
    """What the rule says, else what the cells say, of columns that the rule does not name."""
    own = rule.decimals
    listed = [(c.name, c.filled(gone[c.name])) for c in numeric if c.name not in own]
    if rule.decimal:
        found = groups_in(c for _, cells in listed for c in cells)
        thousands = rule.thousands or thousands_for(rule.decimal, found)
        return Marks(rule.decimal, thousands, reading.columns)
    found = marks_of(listed, reading.between)
    return replace(found, thousands=rule.thousands or found.thousands)


def _own_marks(
    numeric: Sequence[Column], gone: Mapping[str, Sequence[str]], rule: FileSettings
) -> dict[str, str]:
    """The marks of columns that the rule names: before decimals, and between thousands."""
    found: dict[str, str] = {}
    for column in numeric:
        if mark := rule.decimals.get(column.name):
            groups = groups_in(column.filled(gone[column.name]))
            found[column.name] = mark + (rule.thousands or thousands_for(mark, groups))
    return found


def as_numbers(reading: ReadPlan, column: Column, gone: Sequence[str]) -> ReadPlan:
    """The column as numbers where every filled cell is one, else as text with the reason."""
    name, filled = column.name, column.filled(gone)
    mark = reading.decimal_of(name)
    plain, marked = plain_number(mark), marked_number(mark, reading.thousands_of(name))
    bare = mark != "," and column.simple(gone)
    bare = bare or all(plain.fullmatch(c) for c in filled)
    odd = None
    if not bare:
        odd = next((c for c in filled if not plain.fullmatch(c) and not marked.fullmatch(c)), None)
        odd = odd_sign(filled) if odd is None else odd
    if odd is not None:
        said = f"{name!r} stays text: {odd[:_SHOWN]!r} is no number like the others"
        return replace(reading, notes=(*reading.notes, said))
    early = name in as_written(reading) or name in reading.marks
    native = reading.form == "csv" and bare and not early
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


def _with_dates(reading: ReadPlan, columns: Sequence[Column], rule: FileSettings) -> ReadPlan:
    """Dates, where one format fits; the order of day and month that one column tells holds for
    all columns with the same mark between them."""
    used = set(reading.used)
    open_columns = [
        c
        for c in columns
        if c.name not in reading.numbers and c.name not in rule.text and not c.typed
        if c.name in used
    ]
    listed = [(c, _day_cells(c, rule)) for c in open_columns]
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


def _day_cells(column: Column, rule: FileSettings) -> list[str]:
    filled = column.filled(_missing_for(column, rule))
    open_ones = open_words(filled) if rule.missing_of(column.name) is None else ()
    return [c for c in filled if c not in open_ones]


def _dated(
    reading: ReadPlan,
    column: Column,
    cells: list[str],
    day_first: dict[str, bool],
    rule: FileSettings,
) -> ReadPlan:
    name = column.name
    wanted = rule.dates.get(name)
    if wanted is not None:
        if not wanted:
            return reading
        if (parsed := parse(cells, wanted)) is None or len(parsed) != len(cells):
            odd = next((c for c in cells if parse([c], wanted) is None), cells[0])
            why = f"{name!r} stays text: {odd[:_SHOWN]!r} is no date as {wanted}"
            return replace(reading, notes=(*reading.notes, why))
        form = wanted
    else:
        form, why, settle = date_format(cells, day_first)
        if why:
            line = f"dates: {{{yaml_word(name)}: {settle}"
            return doubting(reading, Doubt("date_order", why, line, name))
    if not form:
        return reading
    known = set(cells)
    if open_ones := [c for c in column.filled(_missing_for(column, rule)) if c not in known]:
        said = f"{shown(open_ones[0])} stands among dates"
        settle = f"missing: {{{yaml_word(name)}: {yaml_list(open_ones)}}}"
        return doubting(reading, Doubt("sentinel", said, settle, name))
    words = tuple(w for w in _missing_for(column, rule) if w in column.cells)
    return replace(
        reading,
        dates={**reading.dates, name: form},
        missing=_with(reading.missing, name, words),
    )


def _rest(reading: ReadPlan, column: Column, rule: FileSettings) -> ReadPlan:
    """Text: columns that pandas would turn into something else are named."""
    name = column.name
    if name in reading.numbers or name in reading.dates:
        return reading
    filled = column.filled(())
    told = rule.missing_of(name)
    words = missing_in_text(column.cells) if told is None else told
    reading = replace(reading, missing=_with(reading.missing, name, words))
    numeric = any(looks_numeric(c) for c in filled) and (reading.form == "csv" or column.typed)
    mixed = column.typed and bool(column.cells) and column.plain
    if name in rule.text or (numeric and (reading.form == "csv" or mixed)):
        reading = replace(reading, text=(*reading.text, name))
    code = code_like(filled) if mostly_numbers(filled) and name in reading.used else ""
    if code and name not in rule.text:
        said = f"{name!r} stays text: {shown(code)} is a code"
        reading = replace(reading, notes=(*reading.notes, said))
    return reading
