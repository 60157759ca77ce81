"""Whether the whole table fits what was decided from some of it, and what fits instead."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import json
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

from assay.tables.calls import Name, namespace
from assay.tables.columns import doubting, odd_sign, some_left, with_sentinels, word_doubt
from assay.tables.dates import own_format, parse, pattern
from assay.tables.doubts import Doubt, shown
from assay.tables.grid import yaml_list, yaml_word
from assay.tables.missing import NO_DAYS, missing_words, sentinels_of
from assay.tables.number_format import SIGNS, marked_number, marks_of, open_number, plain_number
from assay.tables.plan import Frame, ReadPlan, to_number, words_of

_SHOWN = 30
_PAIRS = 8  # of spellings that a settling line names
_PLAIN = {
    **dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-"),
    **dict.fromkeys([0x2018, 0x2019, 0x201B, 0x00B4], "'"),
    **dict.fromkeys([0x201C, 0x201D], '"'),
}
_DAYS = 5  # different ones beside which a day may mean no value
_ROWS = 8  # that show whether labels stand once for several of them
_BLANK = 0.25  # of the cells of a column of such labels, at least
_EXACT = 2.0**53  # whole numbers beyond it have no exact float
_LONG = 10**18  # a number of 19 digits is a name
_ANY = re.compile(r"(?s:.)*")
_EXACTLY = ("csv", "json", "lines", "sqlite", "duckdb", "parquet", "feather")  # read as text too
Texts = Callable[[list[str]], Frame]


def adjusted(reading: ReadPlan, raw: Frame, texts: Texts) -> ReadPlan:
    """The reading, or one that the whole table fits better. `raw` is the table before its
    statements, `texts` reads columns again as text. Raises `Unreadable` where every column is in
    doubt."""
    frame = raw.set_axis([str(c) for c in raw.columns], axis=1)
    used = set(reading.used)
    for place, column in enumerate(reading.columns):
        cells = frame.iloc[:, place]
        if column not in used:
            continue
        if column in reading.dates:
            reading = _date(reading, column, cells)
        elif column in reading.marked:
            reading = _marked(reading, column, cells)
        elif column in reading.text:
            reading = _alike(reading, column, cells)
        elif cells.dtype.kind in "iufb":
            reading = _number(reading, column, cells)
        elif column in reading.numbers:
            reading = _no_number(reading, column, cells)
        else:
            reading = _alike(reading, column, cells)
    reading = _labels_once(reading, frame)
    if reading.form == "csv":
        reading = _late_marks(reading, frame, texts)
    return some_left(_inexact(reading, frame, texts))


def _labels_once(reading: ReadPlan, frame: Frame) -> ReadPlan:
    """In doubt where the columns at the left have a value in the first of several rows alone, as
    where cells were merged: no value stands twice in succession, or there is one in each second or
    third row, and rows without one are full."""
    if reading.fill_told or len(frame) < _ROWS:
        return reading
    numpy = importlib.import_module("numpy")
    once: dict[str, str] = {}
    for place, column in enumerate(reading.columns):
        cells = frame.iloc[:, place]
        filled = cells.notna().to_numpy()
        if filled.all() and cells.dtype.kind in "iuf" and bool((cells.diff().iloc[1:] == 1).all()):
            continue  # the numbers of the rows
        values = cells[filled].tolist()
        steps = set(numpy.diff(filled.nonzero()[0]).tolist())
        regular = len(values) >= _DAYS and len(steps) == 1
        runs = len(values) > 1 and (regular or all(a != b for a, b in pairwise(values)))
        rest = frame.iloc[~filled, place + 1 :].notna().to_numpy()
        sparse = filled[:1].all() and not filled.all() and (~filled).mean() >= _BLANK
        if column in reading.fixed or not (sparse and runs and rest.size and rest.mean() >= 0.5):
            break
        once[column] = shown(str(values[0]))
    settle = f"fill_down: {yaml_list(once)}  # or of each missing: {{COLUMN: ['']}}"
    for column, cell in once.items():
        said = (
            f"{cell} stands in one row, and the cells below it are empty: it may stand for their "
        )
        doubt = Doubt("merged_cells", f"{said}rows as well", settle, column)
        reading = doubting(reading, doubt) if column in reading.used else reading
    return reading


def _alike(reading: ReadPlan, column: str, cells: Any) -> ReadPlan:
    """In doubt where values of a column of text differ by case, accents or blanks alone. Values
    that all stand there once name their rows: nothing is grouped by them."""
    filled = cells.dropna()
    listed = [v for v in filled.unique().tolist() if isinstance(v, str)]
    if column not in reading.spellings and (twice := _decoded_twice(column, listed)):
        return doubting(reading, twice)
    if reading.spellings.get(column) == {} or len(listed) == len(filled):
        return reading
    groups = [g for g in _folded(listed) if len(g) > 1]
    if not groups:
        return reading
    said = (
        f"{' and '.join(shown(v) for v in groups[0][:2])} differ by case, accents or blanks alone"
    )
    if len(groups) > 1:
        said += f", and {len(groups) - 1} more values"
    counts = filled.value_counts()
    most = [max(g, key=lambda v: (int(counts[v]), v)) for g in groups]
    pairs = [(v, m) for g, m in zip(groups, most, strict=True) for v in g if v != m]
    spelled = ", ".join(f"{_quoted(v)}: {_quoted(m)}" for v, m in pairs[:_PAIRS])
    more = ", …" if len(pairs) > _PAIRS else ""
    name = yaml_word(column)
    settle = f"spellings: {{{name}: {{{spelled}{more}}}}}  # or {{{name}: distinct}}"
    return doubting(reading, Doubt("alike_values", said, settle, column))


def _decoded_twice(column: str, values: list[str]) -> Doubt | None:
    """The doubt of letters that are the bytes of others, such as Ã¶ in place of ö."""
    for value in values:
        if not value.isascii():
            with suppress(UnicodeError):
                meant = value.encode("cp1252").decode("utf-8")
                settle = (
                    f"spellings: {{{yaml_word(column)}: {{{_quoted(value)}: {_quoted(meant)}}}}}"
                )
                said = f"{shown(value)} may be {shown(meant)}, decoded twice; mend the file"
                return Doubt("encoding", said, f"{settle}  # or distinct", column)
    return None


def _folded(values: list[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for value in values:
        groups.setdefault(folded(value), []).append(value)
    return list(groups.values())


def folded(text: str) -> str:
    """A text without case, accents and superfluous blanks, its dashes and quotes the plain ones."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text.casefold()).translate(_PLAIN)
        text = "".join(
            c for c in apart if not unicodedata.combining(c) and unicodedata.category(c) != "Cf"
        )
    return " ".join(text.casefold().split())


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _odd_cells(cells: Any, fits: re.Pattern[str]) -> dict[str, int]:
    """The distinct texts of a column that do not fit, with counts; other values are left out."""
    filled = cells.dropna()
    if filled.dtype == object:
        filled = filled[[isinstance(v, str) for v in filled]].astype("str")
    if not len(filled) or filled.dtype.kind in "iufbM":
        return {}
    apart = filled.drop_duplicates()
    apart = apart[~apart.str.fullmatch(fits.pattern).astype(bool)]
    odd = filled[filled.isin(apart)] if len(apart) else apart
    return {str(k): int(n) for k, n in odd.value_counts().items()}


def _texted(reading: ReadPlan, column: str, why: str) -> ReadPlan:
    """The column as text, with the reason; words for missing numbers are words of it now."""
    kept = {k: v for k, v in reading.missing.items() if k != column}
    return replace(
        reading,
        numbers=tuple(c for c in reading.numbers if c != column),
        marked=tuple(c for c in reading.marked if c != column),
        dates={k: v for k, v in reading.dates.items() if k != column},
        text=reading.text if column in reading.text else (*reading.text, column),
        missing=reading.missing if column in reading.fixed else kept,
        notes=(*reading.notes, f"{column!r} stays text: {why}"),
    )


def _with_words(reading: ReadPlan, column: str, odd: dict[str, int]) -> ReadPlan:
    """With the words for no value that only the whole column shows."""
    if column in reading.fixed:
        return reading
    known = reading.missing.get(column, ())
    more = [w for w in missing_words(odd) if w not in known]
    if not more:
        return reading
    return replace(reading, missing={**reading.missing, column: (*known, *more)})


def _left(reading: ReadPlan, column: str, odd: dict[str, int]) -> list[str]:
    """Cells that are no value of the column and no word for a missing one."""
    words = set(words_of(reading, column))
    return sorted(c for c in odd if c.strip() and c not in words)


def _date(reading: ReadPlan, column: str, cells: Any) -> ReadPlan:
    form = reading.dates[column]
    fits = _ANY if own_format(form) else pattern(form)
    odd = _odd_cells(cells, fits)
    reading = _with_words(reading, column, odd)
    left = _left(reading, column, odd)
    if not left:
        words = reading.missing.get(column, ())
        filled = [c for c in cells.dropna().unique().tolist() if c not in words and c != ""]
        parsed = parse(filled, form) if filled else None
        if filled and parsed is None:
            left = [next((c for c in filled if parse([c], form) is None), filled[0])]
        elif parsed is not None and column not in reading.fixed:
            reading = doubting(reading, _no_day(column, filled, parsed))
    if not left:
        return reading
    return _texted(reading, column, f"{left[0][:_SHOWN]!r} is no date as {form}")


def _no_day(column: str, cells: list[str], parsed: Any) -> Doubt | None:
    """The doubt of days such as 9999-12-31 and 1900-01-01 far from all others."""
    typical = parsed.dt.strftime("%Y-%m-%d").isin(NO_DAYS)
    rest = parsed[~typical]
    if not bool(typical.any()) or len(rest) < _DAYS:
        return None
    low, high = rest.min(), rest.max()
    gap = (parsed - high).where(parsed > high, low - parsed)
    odd = [c for c, far in zip(cells, typical & (gap >= 0.3 * (high - low)), strict=True) if far]
    if not odd:
        return None
    said = f"{shown(odd[0])} is far from the other days, {low:%Y-%m-%d} to {high:%Y-%m-%d}: "
    settle = f"missing: {{{yaml_word(column)}: {yaml_list(odd)}}}  # or [] if it is a day"
    return Doubt("sentinel", f"{said}a value, or none", settle, column)


def _marked(reading: ReadPlan, column: str, cells: Any) -> ReadPlan:
    if cells.dtype.kind in "iufb":
        return reading
    mark, group = reading.decimal_of(column), reading.thousands_of(column)
    odd = _odd_cells(cells, marked_number(mark, group))
    reading = _with_words(reading, column, odd)
    left = _left(reading, column, odd)
    if left:
        why = f"{left[0][:_SHOWN]!r} is no number like the others"
        return _worded(reading, column, left, odd, cells) or _texted(reading, column, why)
    words = words_of(reading, column)
    texts = cells[cells.notna() & ~cells.isin([*words, ""])]
    if (sign := _odd_sign(texts)) is not None:
        return _texted(reading, column, f"{sign[:_SHOWN]!r} is no number like the others")
    numbers = to_number(reading, column, Name("cells")).value({**namespace(), "cells": texts})
    return _number(reading, column, numbers)


def _odd_sign(texts: Any) -> str | None:
    """A cell whose sign of money or per cent the others do not share."""
    if texts.dtype == object:
        return None
    signed = texts[texts.str.contains(f"[{SIGNS}]", regex=True).astype(bool)]
    cells = dict.fromkeys(signed.unique().tolist(), 1)
    return odd_sign(cells | ({"": 1} if len(signed) < len(texts) else {}))


def _number(reading: ReadPlan, column: str, cells: Any) -> ReadPlan:
    if cells.dtype.kind == "b" or column in reading.fixed:
        return reading
    return with_sentinels(reading, column, sentinels_of(cells))


def _no_number(reading: ReadPlan, column: str, cells: Any) -> ReadPlan:
    """A column decided to be numbers that pandas reads as text: a cell is none."""
    odd = _odd_cells(cells, plain_number(reading.decimal))
    if cells.isna().all():
        return reading
    found = _with_words(reading, column, odd)
    left = _left(found, column, odd)
    if not left:
        return found if found != reading else _texted(reading, column, "of numbers too large")
    fits = marked_number(found.decimal, found.thousands)
    if all(fits.fullmatch(c) for c in left):
        return replace(found, marked=(*found.marked, column))
    why = f"{left[0][:_SHOWN]!r} is no number"
    return _worded(reading, column, left, odd, cells) or _texted(reading, column, why)


def _worded(
    reading: ReadPlan, column: str, left: list[str], odd: dict[str, int], cells: Any
) -> ReadPlan | None:
    """In doubt where words among the numbers may mean no value."""
    rest = int(cells.notna().sum()) - sum(odd[c] for c in left)
    if column in reading.fixed or rest < 1:
        return None
    doubt = word_doubt(column, {**{c: odd[c] for c in left}, "0": rest})
    return doubting(reading, doubt) if doubt else None


def _late_marks(reading: ReadPlan, frame: Frame, texts: Texts) -> ReadPlan:
    """Columns of which no number of the sample had a decimal mark, and some of the table have."""
    used = set(reading.used) - set(reading.clear) - set(reading.marked) - set(reading.text)
    late = [c for c in reading.columns if c in used and _fractions(frame[c])]
    if not late:
        return reading
    again = texts(late)
    listed = {c: again[c].dropna().unique().tolist() for c in late}
    if not reading.decimal:
        marks = marks_of(list(listed.items()), reading.between)
        reading = replace(reading, decimal=marks.decimal, thousands=marks.thousands)
        return replace(
            reading,
            clear=(*reading.clear, *marks.clear),
            doubts=(*reading.doubts, *marks.doubts),
        )
    for column, cells in listed.items():
        doubt = open_number(column, cells, reading.decimal)
        reading = doubting(reading, doubt)
        if doubt is None:
            reading = replace(reading, clear=(*reading.clear, column))
    return reading


def _fractions(column: Any) -> bool:
    if column.dtype.kind != "f":
        return False
    filled = column.dropna()
    return bool((filled != filled.round()).any())


def _inexact(reading: ReadPlan, frame: Frame, texts: Texts) -> ReadPlan:
    """Whole numbers of more digits than a number holds stay text, in all their digits."""
    large = [
        c
        for c in reading.used
        if c not in reading.text
        and ((kind := frame[c].dtype.kind) == "f" or (kind in "iu" and reading.form != "csv"))
        and bool(frame[c].abs().max() >= (_EXACT if kind == "f" else _LONG))
    ]
    if not large or reading.form not in _EXACTLY:
        return reading
    again = texts(large)
    for column in large:
        cells: list[str] = again[column].dropna().unique().tolist()
        odd = next((c for c in cells if c.strip().lstrip("+-").isdigit() and len(c) > 15), None)
        if odd is not None:
            reading = _texted(reading, column, f"{odd!r} has more digits than a number holds")
            if reading.form != "csv":
                reading = replace(reading, exact=(*reading.exact, column))
    return reading
