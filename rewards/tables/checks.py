"""Whether the whole table fits what was decided from some of it, and what fits instead."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rewards.tables.columns import Column, as_numbers, fits_date, with_sentinels
from rewards.tables.marks import marked_number, marks_of, plain_number
from rewards.tables.missing import as_number, missing_words, sentinels_of
from rewards.tables.reading import Frame, Reading
from rewards.tables.script import words_of

_SHOWN = 30
_EXACT = 2.0**53  # whole numbers beyond it have no exact float
Texts = Callable[[list[str]], Frame]


def revised(reading: Reading, raw: Frame, texts: Texts) -> Reading:
    """The reading, or one that the whole table fits better. `raw` is the table before its
    statements, `texts` reads columns again as text. Raises `Ambiguous`."""
    frame = raw.set_axis([str(c) for c in raw.columns], axis=1)
    for place, column in enumerate(reading.columns):
        cells = frame.iloc[:, place]
        if column in reading.dates:
            reading = _date(reading, column, cells)
        elif column in reading.marked:
            reading = _marked(reading, column, cells)
        elif cells.dtype.kind in "iufb":
            reading = _number(reading, column, cells)
        elif column in reading.numbers:
            reading = _no_number(reading, column, cells)
    if reading.form == "csv":
        reading = _late_marks(reading, frame, texts)
        reading = _inexact(reading, frame, texts)
    return reading


def _counted(cells: Any) -> dict[str, int]:
    """Distinct texts of a column with counts; values of other kinds are left out."""
    counts = cells.dropna().astype(object).value_counts()
    return {str(k): int(n) for k, n in counts.items() if isinstance(k, str)}


def _texted(reading: Reading, column: str, why: str) -> Reading:
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


def _with_words(reading: Reading, column: str, counts: dict[str, int]) -> Reading:
    """With the words for no value that only the whole column shows."""
    if column in reading.fixed:
        return reading
    known = reading.missing.get(column, ())
    more = [w for w in missing_words(counts) if w not in known]
    if not more:
        return reading
    return replace(reading, missing={**reading.missing, column: (*known, *more)})


def _filled(reading: Reading, column: str, counts: dict[str, int]) -> list[str]:
    words = set(words_of(reading, column))
    return [c for c in counts if c.strip() and c not in words]


def _date(reading: Reading, column: str, cells: Any) -> Reading:
    counts = _counted(cells)
    reading = _with_words(reading, column, counts)
    filled = _filled(reading, column, counts)
    form = reading.dates[column]
    odd = fits_date(filled, form) if filled else None
    if odd is None:
        return reading
    return _texted(reading, column, f"{odd[:_SHOWN]!r} is no date as {form}")


def _marked(reading: Reading, column: str, cells: Any) -> Reading:
    counts = _counted(cells)
    reading = _with_words(reading, column, counts)
    filled = _filled(reading, column, counts)
    if cells.dtype.kind in "iufb":
        return reading
    fits = marked_number(reading.decimal, reading.thousands)
    odd = next((c for c in filled if not fits.fullmatch(c)), None)
    if odd is not None:
        return _texted(reading, column, f"{odd[:_SHOWN]!r} is no number like the others")
    bare = replace(reading, numbers=(), marked=(), missing={}, notes=())
    again = as_numbers(bare, Column(column, dict.fromkeys(filled, 1)), ())
    if again.notes:
        return _texted(reading, column, again.notes[0].partition(": ")[2])
    return _number(reading, column, _as_floats(reading, filled, cells))


def _as_floats(reading: Reading, filled: list[str], cells: Any) -> Any:
    """The column as numbers, to look for those that mean no value."""
    pd: Any = importlib.import_module("pandas")
    known = {c: n for c in filled if (n := _plain(reading, c)) is not None}
    return pd.to_numeric(cells.astype(object).map(known))


def _plain(reading: Reading, cell: str) -> float | None:
    drop = {" ": "", "'": "'’"}.get(reading.thousands, reading.thousands)
    text = "".join(c for c in cell if c not in f"$€£%{drop}" and not c.isspace())
    return as_number(text, reading.decimal)


def _number(reading: Reading, column: str, cells: Any) -> Reading:
    if cells.dtype.kind == "b" or column in reading.fixed:
        return reading
    return with_sentinels(reading, column, sentinels_of(cells))


def _no_number(reading: Reading, column: str, cells: Any) -> Reading:
    """A column decided to be numbers that pandas reads as text: a cell is none."""
    counts = _counted(cells)
    if not counts:
        return reading
    found = _with_words(reading, column, counts)
    filled = _filled(found, column, counts)
    plain = plain_number(found.decimal)
    odd = [c for c in filled if not plain.fullmatch(c)]
    if not odd:
        return found if found != reading else _texted(reading, column, "of numbers too large")
    fits = marked_number(found.decimal, found.thousands)
    if all(fits.fullmatch(c) for c in filled):
        return replace(found, marked=(*found.marked, column))
    return _texted(reading, column, f"{odd[0][:_SHOWN]!r} is no number")


def _late_marks(reading: Reading, frame: Frame, texts: Texts) -> Reading:
    """Where no number of the sample had a decimal mark, and some of the table have."""
    if reading.decimal or reading.sep == ",":
        return reading
    late = [c for c in reading.columns if frame[c].dtype.kind == "f" and _fractions(frame[c])]
    if not late:
        return reading
    again = texts(late)
    marks = marks_of([(c, again[c].dropna().unique().tolist()) for c in late], reading.sep)
    return replace(reading, decimal=marks.decimal, thousands=marks.thousands)


def _fractions(column: Any) -> bool:
    filled = column.dropna()
    return bool((filled != filled.round()).any())


def _inexact(reading: Reading, frame: Frame, texts: Texts) -> Reading:
    """Whole numbers of more digits than a float holds, beside missing cells, stay text."""
    large = [
        c
        for c in reading.columns
        if frame[c].dtype.kind == "f" and bool((frame[c].abs() >= _EXACT).any())
    ]
    if not large:
        return reading
    again = texts(large)
    for column in large:
        cells: list[str] = again[column].dropna().unique().tolist()
        odd = next((c for c in cells if c.strip().lstrip("+-").isdigit() and len(c) > 15), None)
        if odd is not None and column not in reading.text:
            reading = _texted(reading, column, f"{odd!r} has more digits than a number holds")
    return reading
