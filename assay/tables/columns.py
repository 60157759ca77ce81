"""What the columns of one table are, decided from cells: numbers, dates, text, missing values."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from itertools import chain
from typing import Any

from assay.tables.number_format import (
    SIGNS,
    all_alike,
    all_simple,
    as_number,
    code_like,
    looks_numeric,
    marked_number,
    marks_of,
    missing_in_text,
    missing_words,
    mostly_numbers,
    no_day,
    no_number,
    open_words,
    plain_number,
    thousands_in,
)
from assay.tables.plan import ReadPlan, Unreadable, as_written
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

    def filled(self, missing: Sequence[str] = ()) -> Cells:
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
    """Count the values of a pandas column, texts and numbers apart. A missing value is left out;
    where all others are texts it counts as the empty text. Raises `Unreadable` for a column of
    bytes, lists or objects."""
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


def decide(plan: ReadPlan, columns: Sequence[Column], rule: FileSettings) -> None:
    """Put marks, kinds of columns and missing values into the plan; a rule is obeyed. What can be
    meant in two ways is a doubt of its column.

    Raises `Unreadable` where every column is in doubt.
    """
    if not rule.names:
        plan.doubts += tuple(_name_doubts(columns))
    gone = {c.name: _missing_for(c, rule) for c in columns}
    taken = {*rule.text, *rule.dates}
    numeric = [c for c in columns if c.name not in taken and _is_numeric(c, gone[c.name], rule)]
    for column in numeric:
        if not column.simple(gone[column.name]):
            two_forms = None if column.name in rule.numbers else _otherwise(column)
            plan.doubt(_word_doubt(column, gone[column.name]) or two_forms)
    taken |= {*rule.numbers, *(c.name for c in numeric)}
    numeric = [c for c in numeric if plan.uses(c.name)]
    for column in columns:
        if column.name not in taken:
            plan.doubt(_otherwise(column))
    _set_marks(plan, {c.name: c.filled(gone[c.name]) for c in numeric}, rule)
    for column in numeric:
        if plan.uses(column.name):
            _as_numbers(plan, column, gone[column.name])
    _find_dates(plan, columns, rule)
    for column in columns:
        if column.name not in plan.numbers and column.name not in plan.dates:
            _as_text(plan, column, rule)
    for column in columns:
        if plan.uses(column.name) and rule.missing_of(column.name) is None:
            plan.doubt(_sentinel(plan, column))
    plan.refuse_without_columns()


def _name_doubts(columns: Sequence[Column]) -> Iterator[Doubt]:
    """The doubts of columns whose names differ by case, blanks or line breaks alone, or not at
    all (pandas writes .1 behind the second of two equal names); and of those that hold something
    and have no name, but for the first: there pandas writes the numbers of the rows."""
    alike: dict[str, list[str]] = {}
    listed = [c.name for c in columns]
    for name in listed:
        key = " ".join(_unnumbered(name, listed).casefold().split())
        alike.setdefault(key, []).append(name)
    settle = f"names: {yaml_list(listed)}  # with "
    for group in (g for g in alike.values() if len(g) > 1):
        said = f"the names {', '.join(map(repr, group))} differ by case, blanks or a number alone"
        for name in group:
            yield Doubt("alike_names", said, f"{settle}other names for these", name)
    for place, column in enumerate(columns):
        if place and _UNNAMED.fullmatch(column.name) and (column.filled() or column.values):
            said = f"column {place + 1} has no name"
            yield Doubt("layout", said, f"{settle}a name for it", column.name)


def _unnumbered(name: str, names: Sequence[str]) -> str:
    """A name without the number that pandas writes behind the second of two equal names."""
    bare, _, number = name.rpartition(".")
    if not bare or not number.isdecimal() or not 0 < int(number) < len(names):
        return name
    earlier = [bare, *(f"{bare}.{n}" for n in range(1, int(number)))]
    return bare if set(earlier) <= set(names) else name


def _missing_for(column: Column, rule: FileSettings) -> tuple[str, ...]:
    told = rule.missing_of(column.name)
    return column.words if told is None else told


def _is_numeric(column: Column, gone: Sequence[str], rule: FileSettings) -> bool:
    """Whether the filled cells, with the numbers beside them, are mostly numbers, and no codes."""
    filled = column.filled(gone)
    if not filled or column.name in rule.numbers:
        return bool(filled)
    if column.simple(gone):
        return not all_alike(filled)
    open_ones = open_words(filled) if column.name not in rule.missing else ()
    certain = {c: n for c, n in filled.items() if c not in open_ones}
    return mostly_numbers(certain, sum(column.values.values())) and not code_like(certain)


def _word_doubt(column: Column, gone: Sequence[str]) -> Doubt | None:
    """The doubt of a column of numbers in which words stand, if they may mean no value."""
    filled = column.filled(gone)
    odd = {c: n for c, n in filled.items() if not looks_numeric(c)}
    told = open_words(odd)
    plain = [c for c in odd if not any(map(str.isdigit, c)) or _BOUND.fullmatch(c.strip())]
    if not odd or (not told and (len(odd) > _FEW or len(plain) < len(odd))):
        return None
    word = told[0] if told else max(odd, key=lambda c: (odd[c], c))
    count = sum(filled.values()) + sum(column.values.values())
    said = f"{shown(word)} stands among numbers ({odd[word]} of {count} cells)"
    settle = f"missing: {{{yaml_word(column.name)}: {yaml_list(told or sorted(odd))}}}"
    return Doubt("sentinel", said, f"{settle}  # or text: {yaml_list([column.name])}", column.name)


def _otherwise(column: Column) -> Doubt | None:
    """The doubt of a column that mixes two forms: numbers beside cells that look like numbers and
    that no reader takes, or days beside text. None without such a mix."""
    filled = column.filled(column.words)
    odd = [c for c in filled if not looks_numeric(c)]
    if odd and all(_OTHERWISE.fullmatch(c.strip()) for c in odd):
        # not spans, notes, a unit in each
        plain = column.values or len(odd) < len(filled)
        if plain or odd[0].strip()[-1:] in "0123456789)":
            said = f"{shown(odd[0])} may be a number in another spelling, such as one below zero "
            settle = f"text: {yaml_list([column.name])}"
            said += "or of thousands; write it as in -1234.5"
            return Doubt("number_mark", said, settle, column.name)
    if column.days and filled:
        said = f"{shown(next(iter(filled)))} is text, and other cells are days; write them alike"
        return Doubt("date_order", said, column=column.name)
    return None


def _set_marks(plan: ReadPlan, cells: Mapping[str, Cells], rule: FileSettings) -> None:
    """The marks of the columns of numbers: what the rule says of the table or of one column, else
    what the cells say."""
    own = {name: mark for name, mark in rule.decimals.items() if name in cells}
    plan.marks = {n: m + (rule.thousands or thousands_in(m, cells[n])) for n, m in own.items()}
    others = {name: found for name, found in cells.items() if name not in own}
    if rule.decimal:
        plan.decimal = rule.decimal
        plan.thousands = thousands_in(rule.decimal, chain.from_iterable(others.values()))
    else:
        sep = plan.sep if plan.form == "csv" and len(plan.columns) > 1 else ""
        plan.decimal, plan.thousands, doubts = marks_of(others, sep)
        plan.doubts += doubts
    plan.thousands = rule.thousands or plan.thousands


def _as_numbers(plan: ReadPlan, column: Column, gone: Sequence[str]) -> None:
    """The column as numbers where every filled cell is one, else as text with the reason."""
    name, filled = column.name, column.filled(gone)
    mark = plan.decimal_of(name)
    plain, marked = plain_number(mark), marked_number(mark, plan.thousands_of(name))
    bare = (mark != "," and column.simple(gone)) or all(map(plain.fullmatch, filled))
    if not bare:
        odd = next((c for c in filled if not plain.fullmatch(c) and not marked.fullmatch(c)), None)
        odd = _odd_sign(filled) if odd is None else odd
        if odd is not None:
            said = f"{name!r} stays text: {odd[:_SHOWN]!r} is no number like the others"
            plan.notes += (said,)
            return
    plan.numbers += (name,)
    if plan.form != "csv" or not bare or name in as_written(plan) or name in plan.marks:
        plan.marked += (name,)
    plan.set_missing(name, [c for c in gone if c in column.cells] or gone)


def _odd_sign(filled: Cells) -> str | None:
    """A cell whose sign of money or per cent the others do not share."""
    signs = {next((s for s in SIGNS if s in c), "") for c in filled}
    money = signs - {""}
    if len(money) > 1 or ("%" in money and "" in signs):
        return next(c for c in filled if any(s in c for s in SIGNS))
    return None


def _as_text(plan: ReadPlan, column: Column, rule: FileSettings) -> None:
    """Text: columns that pandas would turn into something else are named."""
    name, filled = column.name, column.filled()
    told = rule.missing_of(name)
    words = missing_in_text(column.cells) if told is None else told
    plan.set_missing(name, words)
    if plan.uses(name):
        plan.doubt(alike_values(name, column.filled(words), plan.spellings.get(name)))
    mixed = plan.form == "csv" or (column.typed and bool(column.cells) and column.plain)
    if name in rule.text or (mixed and any(map(looks_numeric, filled))):
        plan.text += (name,)
    code = code_like(filled) if plan.uses(name) and mostly_numbers(filled) else ""
    if code and name not in rule.text:
        plan.notes += (f"{name!r} stays text: {shown(code)} is a code",)


def _sentinel(plan: ReadPlan, column: Column) -> Doubt | None:
    """The doubt of a column where a number may mean no value, from its numbers as far as they are
    known, with how often each stands there."""
    name, values, times = column.name, [*column.values], [*column.values.values()]
    mark, missing = plan.decimal_of(name), plan.missing.get(name, ())
    if name in plan.numbers:
        plain = mark != "," and column.simple(missing)
        drop = re.compile(f"[$€£%\\s{re.escape(plan.thousands_of(name))}]")
        for cell, count in column.filled(missing).items():
            bare = drop.sub("", cell) if name in plan.marked and not plain else cell
            value = float(cell) if plain else as_number(bare, mark)
            if value is not None:
                values.append(value)
                times.append(count)
    elif column.cells:
        return None
    return no_number(name, values, times, {as_number(w, mark) for w in missing})


# ---- dates

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
    "%b": r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)",
    "%B": r"(?i:january|february|march|april|may|june|july|august|september|october|november"
    r"|december)",
}
_START = re.compile(r"\d{1,4}[-/. ]|[A-Za-z]{3}")
_CENTURY = 2035  # a two-digit year beyond it may be of the century before


def _find_dates(plan: ReadPlan, columns: Sequence[Column], rule: FileSettings) -> None:
    """Dates, where one format fits; the order of day and month that one column tells holds for
    all columns with the same mark between them, unless another tells the other order."""
    found: list[tuple[Column, list[str], list[str], Mapping[str, Any]]] = []
    orders: dict[str, set[bool]] = {}
    for column in columns:
        name = column.name
        if column.typed or name in plan.numbers or name in rule.text or not plan.uses(name):
            continue
        filled = column.filled(_missing_for(column, rule))
        words = set(open_words(filled) if rule.missing_of(name) is None else ())
        cells = [c for c in filled if c not in words]
        found.append((column, cells, [c for c in filled if c in words], days_of(cells)))
        told = {(mark_of(f), f.startswith("%d")) for f in found[-1][3] if mark_of(f)}
        if len(told) == 1:
            ((mark, first),) = told
            orders.setdefault(mark, set()).add(first)
    day_first = {mark: first for mark, (first, *more) in orders.items() if not more}
    for column, cells, words, days in found:
        _as_dates(plan, column, cells, words, days, day_first, rule)


def _as_dates(
    plan: ReadPlan,
    column: Column,
    cells: list[str],
    words: list[str],
    days: Mapping[str, Any],
    day_first: Mapping[str, bool],
    rule: FileSettings,
) -> None:
    name, form = column.name, rule.dates.get(column.name)
    if form:
        days = {form: parse(cells, form)}
        if days[form] is None:
            odd = next((c for c in cells if parse([c], form) is None), cells[0])
            plan.notes += (f"{name!r} stays text: {odd[:_SHOWN]!r} is no date as {form}",)
            return
    elif form is None:
        form, why, settle = date_format(cells, days, day_first)
        if why:
            plan.doubt(Doubt("date_order", why, f"dates: {{{yaml_word(name)}: {settle}", name))
    if not form:
        return
    if words:
        settle = f"missing: {{{yaml_word(name)}: {yaml_list(words)}}}"
        plan.doubt(Doubt("sentinel", f"{shown(words[0])} stands among dates", settle, name))
        return
    if rule.missing_of(name) is None:
        plan.doubt(no_day(name, cells, days[form]))
    plan.dates = {**plan.dates, name: form}
    plan.set_missing(name, [w for w in _missing_for(column, rule) if w in column.cells])


@cache
def pattern(form: str) -> re.Pattern[str]:
    """What a date of this format looks like."""
    text = re.sub(r"%.|.", lambda m: _PARTS.get(m[0]) or re.escape(m[0]), form, flags=re.S)
    return re.compile(text)


def formats(cells: Sequence[str]) -> list[str]:
    """The formats that every distinct cell fits; none for what are no dates."""
    if not cells or not _START.match(cells[0]):
        return []
    days = [d for d in _DAYS if pattern(d).match(cells[0])]
    fit = [d + t for d in days for t in _TIMES if all(map(pattern(d + t).fullmatch, cells))]
    may = any("%b" in f for f in fit)  # in May both names of the month fit
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
