"""What the columns of one table are, decided from cells: numbers, dates, text, missing values."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property
from typing import Any

from assay.tables.number_format import (
    SIGNS,
    Marks,
    Sentinel,
    all_alike,
    all_simple,
    as_number,
    code_like,
    groups_in,
    is_numeric,
    looks_numeric,
    marked_number,
    marks_of,
    missing_in_text,
    missing_words,
    mostly_numbers,
    no_day,
    open_words,
    plain_number,
    sentinels,
    thousands_for,
)
from assay.tables.plan import ReadPlan, Unreadable, as_written, in_doubt
from assay.tables.settings import Doubt, FileSettings, shown, yaml_list, yaml_word
from assay.tables.structure import alike_values

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
_NESTED = frozenset(("dict", "list", "ndarray", "bytes", "bytearray"))
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
            gone = {*filter(str.isspace, self.cells), "", *key} & self.cells.keys()
            kept = {c: n for c, n in self.cells.items() if c not in gone} if gone else self.cells
            self._filled[key] = (kept, all_simple(kept))
        return self._filled[key][0]

    def simple(self, missing: Sequence[str]) -> bool:
        """Whether the filled cells are numbers as programs write them (`all_simple`)."""
        self.filled(missing)
        return self._filled[tuple(missing)][1]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The cells that mean no value, were it a column of numbers or dates."""
        return missing_words(self.cells)

    @cached_property
    def _filled(self) -> dict[tuple[str, ...], tuple[Cells, bool]]:
        return {}


def column_of(name: str, values: Any) -> Column:
    """The column of a pandas column. What is missing is no value; where all is text it is the
    empty text."""
    filled = values.dropna()
    if values.dtype.kind in "iuf" or values.dtype == "str":
        found = filled.value_counts(sort=False)
        counts = dict(zip(found.index.tolist(), found.tolist(), strict=True))
        if values.dtype != "str":
            return Column(name, {}, counts, typed=bool(counts))
        empty = len(values) - len(filled)
        return Column(name, {**counts, "": empty} if empty else counts)
    listed: list[Any] = filled.tolist()
    if kinds := {type(v).__name__ for v in listed} & _NESTED:
        what = "bytes" if kinds <= {"bytes", "bytearray"} else "objects or lists"
        raise Unreadable(f"column {name!r} holds {what}; a table has plain values")
    texts = Counter(v for v in listed if isinstance(v, str))
    numbers = Counter(
        float(v) for v in listed if isinstance(v, int | float) and not isinstance(v, bool)
    )
    typed = len(listed) > texts.total()
    plain = len(listed) == texts.total() + numbers.total()
    return Column(name, texts, numbers, typed, plain, any(isinstance(v, date) for v in listed))


def decide(plan: ReadPlan, columns: Sequence[Column], rule: FileSettings) -> ReadPlan:
    """The plan with marks, kinds of columns and missing values decided; a rule is obeyed. What
    can be meant in two ways is a doubt of its column.

    Raises `Unreadable` where every column is in doubt.
    """
    fixed = [c.name for c in columns if rule.missing_of(c.name) is not None]
    plan = replace(
        plan,
        fixed=tuple(fixed),
        doubts=(*plan.doubts, *alike_names(columns, rule), *_unnamed(columns, rule)),
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
            plan = doubting(plan, word_doubt(column.name, filled, numbers))
    used = set(plan.used)
    numeric = [c for c in numeric if c.name in used]
    taken = {*rule.text, *rule.dates, *rule.numbers, *(c.name for c in numeric)}
    for column in (c for c in columns if c.name not in taken):
        plan = doubting(plan, _otherwise(column) or _among_days(column))
    marks = _marks(plan, numeric, gone, rule)
    plan = replace(
        plan,
        decimal=marks.decimal,
        thousands=marks.thousands,
        marks=_own_marks(numeric, gone, rule),
        clear=(*marks.clear, *rule.decimals),
        doubts=(*plan.doubts, *marks.doubts),
    )
    for column in numeric:
        if column.name in plan.used:
            plan = as_numbers(plan, column, gone[column.name])
    plan = _with_dates(plan, columns, rule)
    for column in columns:
        plan = _rest(plan, column, rule)
    for column in columns:
        plan = with_sentinels(plan, column.name, sentinels(*_values(plan, column)))
    return some_left(plan)


def some_left(plan: ReadPlan) -> ReadPlan:
    """The plan. Raises `Unreadable` where every column is in doubt."""
    if plan.columns and not plan.used:
        raise in_doubt(*plan.doubts)
    return plan


def doubting(plan: ReadPlan, doubt: Doubt | None) -> ReadPlan:
    """The plan with one doubt more, if there is one."""
    return replace(plan, doubts=(*plan.doubts, doubt)) if doubt else plan


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
    filled = column.filled(column.words)
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
    odd = list(column.filled(column.words))
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


def _values(plan: ReadPlan, column: Column) -> tuple[Sequence[float], Sequence[int]]:
    """The numbers of a column, as far as they are known, and how often each stands there."""
    known, times = list(column.values), list(column.values.values())
    if column.name not in plan.numbers:
        return ([], []) if column.cells else (known, times)
    mark, missing = plan.decimal_of(column.name), plan.missing.get(column.name, ())
    filled = column.filled(missing)
    if mark != "," and column.simple(missing):
        return [*known, *map(float, filled)], [*times, *filled.values()]
    drop = re.compile(f"[$€£%\\s{re.escape(plan.thousands_of(column.name))}]")
    marked = column.name in plan.marked
    for cell, count in filled.items():
        value = as_number(drop.sub("", cell) if marked else cell, mark)
        if value is not None:
            known.append(value)
            times.append(count)
    return known, times


def with_sentinels(plan: ReadPlan, name: str, found: Sequence[Sentinel]) -> ReadPlan:
    """The plan with a doubt of the column where a number may mean no value."""
    mark = plan.decimal_of(name)
    known = {as_number(w, mark) for w in plan.missing.get(name, ())}
    found = [f for f in found if f.value not in known]
    if name in plan.fixed or name not in plan.used or not found:
        return plan
    first = found[0]
    said = (
        f"{spelled(first.value)} stands in {first.times} of {first.rows} cells, the others are "
        f"{spelled(first.low)} to {spelled(first.high)}: a value, or none"
    )
    words = yaml_list(spelled(f.value) for f in found)
    settle = f"missing: {{{yaml_word(name)}: {words}}}  # or [] if it is a value"
    return doubting(plan, Doubt("sentinel", said, settle, name))


def spelled(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _missing_for(column: Column, rule: FileSettings) -> tuple[str, ...]:
    told = rule.missing_of(column.name)
    return column.words if told is None else told


def _marks(
    plan: ReadPlan,
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
        return Marks(rule.decimal, thousands, plan.columns)
    found = marks_of(listed, plan.between)
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


def as_numbers(plan: ReadPlan, column: Column, gone: Sequence[str]) -> ReadPlan:
    """The column as numbers where every filled cell is one, else as text with the reason."""
    name, filled = column.name, column.filled(gone)
    mark = plan.decimal_of(name)
    plain, marked = plain_number(mark), marked_number(mark, plan.thousands_of(name))
    bare = mark != "," and column.simple(gone)
    bare = bare or all(plain.fullmatch(c) for c in filled)
    odd = None
    if not bare:
        odd = next((c for c in filled if not plain.fullmatch(c) and not marked.fullmatch(c)), None)
        odd = odd_sign(filled) if odd is None else odd
    if odd is not None:
        said = f"{name!r} stays text: {odd[:_SHOWN]!r} is no number like the others"
        return replace(plan, notes=(*plan.notes, said))
    early = name in as_written(plan) or name in plan.marks
    native = plan.form == "csv" and bare and not early
    present = tuple(c for c in gone if c in column.cells)
    return replace(
        plan,
        numbers=(*plan.numbers, name),
        marked=plan.marked if native else (*plan.marked, name),
        missing=_with(plan.missing, name, present or tuple(gone)),
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


def _with_dates(plan: ReadPlan, columns: Sequence[Column], rule: FileSettings) -> ReadPlan:
    """Dates, where one format fits; the order of day and month that one column tells holds for
    all columns with the same mark between them."""
    used = set(plan.used)
    open_columns = [
        c
        for c in columns
        if c.name not in plan.numbers and c.name not in rule.text and not c.typed
        if c.name in used
    ]
    listed = [(c, cells, days_of(cells)) for c in open_columns for cells in [_day_cells(c, rule)]]
    day_first: dict[str, bool] = {}
    told: set[str] = set()
    for _, _, days in listed:
        orders = {(mark_of(f), f.startswith("%d")) for f in days if mark_of(f)}
        if len(orders) == 1:
            ((mark, first),) = orders
            if day_first.setdefault(mark, first) != first:
                told.add(mark)  # both orders are there: nothing is told
    day_first = {m: first for m, first in day_first.items() if m not in told}
    for column, cells, days in listed:
        plan = _dated(plan, column, cells, days, day_first, rule)
    return plan


def _day_cells(column: Column, rule: FileSettings) -> list[str]:
    filled = column.filled(_missing_for(column, rule))
    open_ones = open_words(filled) if rule.missing_of(column.name) is None else ()
    return [c for c in filled if c not in open_ones]


def _dated(
    plan: ReadPlan,
    column: Column,
    cells: list[str],
    days: Mapping[str, Any],
    day_first: dict[str, bool],
    rule: FileSettings,
) -> ReadPlan:
    name = column.name
    wanted = rule.dates.get(name)
    if wanted is not None:
        if not wanted:
            return plan
        days = {wanted: parse(cells, wanted)}
        if days[wanted] is None:
            odd = next((c for c in cells if parse([c], wanted) is None), cells[0])
            why = f"{name!r} stays text: {odd[:_SHOWN]!r} is no date as {wanted}"
            return replace(plan, notes=(*plan.notes, why))
        form = wanted
    else:
        form, why, settle = date_format(cells, days, day_first)
        if why:
            line = f"dates: {{{yaml_word(name)}: {settle}"
            return doubting(plan, Doubt("date_order", why, line, name))
    if not form:
        return plan
    known = set(cells)
    if open_ones := [c for c in column.filled(_missing_for(column, rule)) if c not in known]:
        said = f"{shown(open_ones[0])} stands among dates"
        settle = f"missing: {{{yaml_word(name)}: {yaml_list(open_ones)}}}"
        return doubting(plan, Doubt("sentinel", said, settle, name))
    words = tuple(w for w in _missing_for(column, rule) if w in column.cells)
    if rule.missing_of(name) is None:
        plan = doubting(plan, no_day(name, cells, days[form]))
    return replace(
        plan,
        dates={**plan.dates, name: form},
        missing=_with(plan.missing, name, words),
    )


def _rest(plan: ReadPlan, column: Column, rule: FileSettings) -> ReadPlan:
    """Text: columns that pandas would turn into something else are named."""
    name = column.name
    if name in plan.numbers or name in plan.dates:
        return plan
    filled = column.filled(())
    told = rule.missing_of(name)
    words = missing_in_text(column.cells) if told is None else told
    plan = replace(plan, missing=_with(plan.missing, name, words))
    if name in plan.used:
        alike = alike_values(name, column.filled(words), plan.spellings.get(name))
        plan = doubting(plan, alike)
    numeric = any(looks_numeric(c) for c in filled) and (plan.form == "csv" or column.typed)
    mixed = column.typed and bool(column.cells) and column.plain
    if name in rule.text or (numeric and (plan.form == "csv" or mixed)):
        plan = replace(plan, text=(*plan.text, name))
    code = code_like(filled) if mostly_numbers(filled) and name in plan.used else ""
    if code and name not in rule.text:
        said = f"{name!r} stays text: {shown(code)} is a code"
        plan = replace(plan, notes=(*plan.notes, said))
    return plan


_NUMERIC = ("%Y-%m-%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y")
_DAYS = (
    *(form for form in _NUMERIC),
    *(form.replace("-", "/") for form in _NUMERIC),
    # nobody writes the month first between points
    *(form.replace("-", ".") for form in _NUMERIC if not form.startswith("%m")),
    *("%Y-%m", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%B %d, %Y"),
    *("%b %Y", "%B %Y", "%b-%Y"),
)
_TIMES = (
    *("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p"),
    *("T%H:%M", "T%H:%M:%S", "T%H:%M:%SZ", "T%H:%M:%S.%f", "T%H:%M:%S.%fZ"),
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_PARTS = {
    "%Y": r"(?:[12][0-9]{3}|9999|0001)",
    "%y": r"[0-9]{2}",
    "%m": r"(?:0?[1-9]|1[0-2])",
    "%d": r"(?:0?[1-9]|[12][0-9]|3[01])",
    "%H": r"(?:[01]?[0-9]|2[0-3])",
    "%I": r"(?:0?[1-9]|1[0-2])",
    "%M": r"[0-5][0-9]",
    "%S": r"[0-5][0-9]",
    "%f": r"[0-9]{1,6}",
    "%p": r"(?i:[ap]m)",
    "%b": f"(?i:{'|'.join(_MONTHS)})",
    "%B": r"(?i:january|february|march|april|may|june|july|august|september|october|november"
    r"|december)",
}
_START = re.compile(r"\d{1,4}[-/. ]|[A-Za-z]{3}")
_CENTURY = 2035  # a two-digit year beyond it may be of the century before


@cache
def pattern(form: str) -> re.Pattern[str]:
    """What a date of this format looks like."""
    text = re.sub(
        r"%.|.", lambda m: _PARTS[m[0]] if m[0] in _PARTS else re.escape(m[0]), form, flags=re.S
    )
    return re.compile(text)


def formats(cells: Sequence[str]) -> list[str]:
    """The formats that every distinct cell fits; none for what are no dates."""
    if not cells or not _START.match(cells[0]):
        return []
    days = [d for d in _DAYS if pattern(d).match(cells[0])]
    fit: list[str] = []
    for day in days:
        for time in _TIMES:
            form = pattern(day + time)
            if all(form.fullmatch(c) for c in cells):
                fit.append(day + time)
    may = [f for f in fit if "%b" in f]  # in May both names of the month fit
    return [f for f in fit if not ("%B" in f and may)]


def parse(cells: Sequence[str], form: str) -> Any | None:
    """The distinct cells as pandas reads them; None when one is no day of the calendar."""
    pd: Any = importlib.import_module("pandas")
    try:
        return pd.to_datetime(pd.Series(cells, dtype=object), format=form)
    except (ValueError, OverflowError):
        return None


def days_of(cells: Sequence[str]) -> dict[str, Any]:
    """Format → the distinct cells as pandas reads them, of the formats that every one fits."""
    tried = {form: parse(cells, form) for form in formats(cells)}
    return {form: days for form, days in tried.items() if days is not None}


def date_format(
    cells: Sequence[str], days: Mapping[str, Any], day_first: Mapping[str, bool]
) -> tuple[str, str, str]:
    """(the format of the distinct cells, or nothing; why it is in doubt; the end of the line of
    `dates` that settles it). `days` are `days_of` the cells; `day_first`: mark between day and
    month → what other columns of the table tell."""
    if not days:
        other = "" if formats(cells) else _other_format(cells)
        said = f"{cells[0]!r} and {other!r} are dates in two spellings" if other else ""
        return "", said, "false}  # or mend them"
    fit = [f for f in days if day_first.get(mark_of(f)) in (None, f.startswith("%d"))] or list(days)
    if len(fit) > 1:
        one, other = fit[0], fit[1]
        return "", f"{cells[0]!r} can be {one} or {other}", f'"{one}"}}  # or "{other}"'
    if "%y" in fit[0] and days[fit[0]].dt.year.max() > _CENTURY:
        return "", f"the century of {cells[0]!r} can be this one or the last", "false}"
    return fit[0], "", ""


def _other_format(cells: Sequence[str]) -> str:
    """A cell that is a date in no format of the first cell, where every cell is a date."""
    if not cells or not all(map(_any_date().fullmatch, cells)):
        return ""
    own = [pattern(form) for form in formats(cells[:1])]
    return next((c for c in cells if not any(form.fullmatch(c) for form in own)), "")


@cache
def _any_date() -> re.Pattern[str]:
    """What looks like a date in any format."""
    days, times = ("|".join(pattern(f).pattern for f in forms) for forms in (_DAYS, _TIMES))
    return re.compile(f"(?:{days})(?:{times})")


def mark_of(form: str) -> str:
    """The mark of a format whose day and month are numbers beside each other, else nothing."""
    found = re.match(r"%[dm]([-/.])%[dm]", form)
    return found[1] if found else ""
