"""Generated tasks obscured: the same questions over tables whose names and numbers are others.

Words (of file names, column names and cells) are exchanged by a bijection, measured columns are
multiplied by a factor each (whole numbers by a whole one), years moved. A question is composed
again from the same draws over the changed tables, so thresholds follow, and its gold pipeline is
run again: the answer is computed, never carried over. What a model remembers of a public table
answers the plain question and not this one (specification notes, section 9).
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from random import Random
from typing import Any

from data_gen.krama.lakes.files import Frame, Layout, read_frame, top_lines, write_frames
from data_gen.krama.lakes.tables import Table
from data_gen.krama.obscure.words import CALENDAR, WORD, exchange, new_words
from rewards.seeds import derive_seed

_MARKED = re.compile(r"(\s*[-+]?\$?)([\d,]*\.?\d+(?:[eE][-+]?\d+)?)(\s*%?\s*)")
_WHOLE = (2, 3, 4, 6, 7, 8, 9)
_SHIFTS = (-17, -13, -11, -7, 7, 11, 13, 17)


@dataclass(frozen=True)
class Key:
    """One lake's key: old word → new word, column → factor, year column → shift."""

    words: Mapping[str, str]
    factors: Mapping[str, Decimal]
    shifts: Mapping[str, int]

    def said(self, text: str) -> str:
        return exchange(text, self.words)

    def path(self, path: str) -> str:
        """The file's new name; its ending stays."""
        stem, dot, suffix = path.rpartition(".")
        return self.said(stem) + dot + suffix


def make_key(name: str, tables: Sequence[Table], seed: int) -> Key:
    """A key for a lake, from its name, its tables and the seed alone."""
    spoken: set[str] = set()
    factors: dict[str, Decimal] = {}
    shifts: dict[str, int] = {}
    for table in tables:
        heads = [table.path.rpartition(".")[0], table.layout.sheet]
        heads += [*table.numbers, *table.groups, *table.names, *table.years]
        spoken |= {w.lower() for text in heads for w in WORD.findall(text) if len(w) > 1}
        cells = [v for values in table.values.values() for v in values]
        spoken |= {w.lower() for cell in cells for w in WORD.findall(cell)}
        for column in table.numbers:
            rng = Random(derive_seed(seed, "factor", name, column))
            whole = column in table.whole
            drawn = Decimal(rng.choice(_WHOLE)) if whole else Decimal(rng.randrange(12, 98)) / 10
            factors.setdefault(column, drawn)
        for column in table.years:
            rng = Random(derive_seed(seed, "shift", name, column))
            shifts.setdefault(column, rng.choice(_SHIFTS))
    old = sorted(spoken - CALENDAR)
    new = new_words(len(old), derive_seed(seed, "words", name), frozenset(spoken | CALENDAR))
    return Key(dict(zip(old, new, strict=True)), factors, shifts)


_SWAPPED = str.maketrans(",.", ".,")


def scaled(cell: Any, factor: Decimal, mark: str = ".") -> Any:
    """A number times the factor, exactly, with the marks it is written with (`mark` before the
    decimals of a text); else unchanged."""
    if isinstance(cell, str) and mark == ",":
        return scaled(cell.translate(_SWAPPED), factor).translate(_SWAPPED)
    if isinstance(cell, str):
        match = _MARKED.fullmatch(cell)
        if match is None:
            return cell
        before, digits, after = match.groups()
        value = Decimal(digits.replace(",", "")) * factor
        return f"{before}{value:,f}{after}" if "," in digits else f"{before}{_plain(value)}{after}"
    if cell is None or isinstance(cell, bool) or cell != cell:
        return cell
    try:
        value = Decimal(str(cell)) * factor
    except InvalidOperation:
        return cell
    return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else float(value)


def _plain(value: Decimal) -> str:
    return f"{value:f}" if -12 < value.adjusted() < 16 else str(value)


def moved(cell: Any, shift: int) -> Any:
    """A year moved by whole years; what is no year stays."""
    try:
        value = Decimal(str(cell)) + shift
    except InvalidOperation:
        return cell
    if not value.is_finite():
        return cell
    return str(value) if isinstance(cell, str) else type(cell)(value)


def change_frame(frame: Frame, table: Table, key: Key) -> Frame:
    """A table's cells and column names under the key. Raises ValueError when two names meet."""
    out = frame.astype(object).copy()
    kinds = {c: frame[c].dtype for c in frame.columns}
    for column in out.columns:
        if column in table.numbers:
            mark, factor = table.layout.decimal, key.factors[column]
            out[column] = out[column].map(lambda v, f=factor, m=mark: scaled(v, f, m))
        elif column in table.years:
            out[column] = out[column].map(lambda v, s=key.shifts[column]: moved(v, s))
        else:
            out[column] = out[column].map(lambda v: key.said(v) if isinstance(v, str) else v)
        if kinds[column].kind in "iuf":  # a typed file keeps a column of numbers
            whole = kinds[column].kind != "f" and all(isinstance(v, int) for v in out[column])
            out[column] = out[column].astype("int64" if whole else "float64")
    names = [key.said(str(c)) for c in out.columns]
    if len(set(names)) < len(names):
        raise ValueError("two columns have one name under the key")
    out.columns = names
    return out


def change_table(table: Table, key: Key) -> Table:
    """The description of a changed table: every field mapped in its order, so that a question
    composed from the same draws asks the same of it."""

    def names(columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(key.said(c) for c in columns)

    sheet = key.said(table.layout.sheet)[:31]  # a workbook's own limit
    layout = replace(table.layout, path=key.path(table.path), sheet=sheet, encoding="utf-8")
    return replace(
        table,
        layout=layout,
        digest=f"{table.digest} obscured",
        numbers=names(table.numbers),
        groups=names(table.groups),
        names=names(table.names),
        years=names(table.years),
        dirty=names(table.dirty),
        whole=names(table.whole),
        values={key.said(c): [key.said(v) for v in vs] for c, vs in table.values.items()},
        levels={
            key.said(c): [float(Decimal(str(v)) * key.factors[c]) for v in vs]
            for c, vs in table.levels.items()
        },
    )


def obscure_tables(
    folder: Path, name: str, tables: Sequence[Table], used: Collection[str], seed: int, target: Path
) -> list[Table]:
    """The changed descriptions of all tables, in order; the files in `used` (old paths) are written
    below `target`. A file that cannot be written under the key is left out, as all others are."""
    key = make_key(name, tables, seed)
    files: dict[str, list[tuple[Layout, Frame, list[str]]]] = {}
    found = [change_table(table, key) for table in tables]
    for table, changed in zip(tables, found, strict=True):
        if table.path not in used:
            continue
        try:
            frame = change_frame(read_frame(table.load, folder, raw=True), table, key)
        except (ValueError, TypeError, OverflowError):
            continue  # questions about it then find no file, and are dropped
        top = [key.said(line) for line in top_lines(table.layout, folder)]
        files.setdefault(changed.path, []).append((changed.layout, frame, top))
    for parts in files.values():
        write_frames(target, parts)
    return found
