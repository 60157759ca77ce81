"""Generated tasks obscured: the same questions over tables whose names and numbers are others.

Words (of file names, column names, every text cell and title lines) are exchanged by a bijection,
measured columns are multiplied by a factor each (whole numbers by a whole one), years moved. A
question is composed
again from the same draws over the changed tables, so thresholds follow, and its gold pipeline is
run again: the answer is computed, never carried over. What a model remembers of a public table
answers the plain question and not this one (specification notes, section 9).
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import importlib
import re
import sqlite3
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.tables.plan import ReadPlan
from data_gen.krama.lakes.about import About
from data_gen.krama.lakes.files import Frame, Layout, top_lines, write_frames
from data_gen.krama.lakes.tables import Half, Read, Table
from data_gen.krama.obscure.words import CALENDAR, WORD, exchange, new_words
from rewards.seeds import derive_seed

_MARKED = re.compile(r"(\s*[-+]?\$?)([\d,]*\.?\d+(?:[eE][-+]?\d+)?)(\s*%?\s*)")
_WHOLE = (2, 3, 4, 6, 7, 8, 9)
_ABSENT = frozenset(  # texts that say "no value"
    ("NA", "N/A", "n/a", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "#N/A", "(null)")
)
_SHIFTS = (-17, -13, -11, -7, 7, 11, 13, 17)


@dataclass(frozen=True)
class Key:
    """One lake's key: old word → new word, column → factor, and how far years move. They move
    alike in all tables, which may be joined by them."""

    words: Mapping[str, str]
    factors: Mapping[str, Decimal]
    shift: int

    def said(self, text: str) -> str:
        return exchange(text, self.words)

    def path(self, path: str) -> str:
        """The file's new name; its ending stays."""
        stem, dot, suffix = path.rpartition(".")
        return self.said(stem) + dot + suffix


def make_key(name: str, tables: Sequence[Table], seed: int, texts: Iterable[str] = ()) -> Key:
    """A key for a lake, from its name, its tables, the seed and the `texts` that its files hold
    beside what the tables' descriptions tell."""
    spoken = {w.lower() for text in texts for w in WORD.findall(text)}
    factors: dict[str, Decimal] = {}
    for table in tables:
        heads = [table.path.rpartition(".")[0], _part(table.reading), table.about.title]
        heads += [*table.columns, *table.about.columns.values()]
        spoken |= {w.lower() for text in heads for w in WORD.findall(text) if len(w) > 1}
        cells = [v for values in table.values.values() for v in values]
        cells += [v for half in table.halves for v in half.values]
        spoken |= {w.lower() for cell in cells for w in WORD.findall(cell)}
        for column in table.numbers:
            rng = Random(derive_seed(seed, "factor", name, column))
            whole = column in table.whole
            drawn = Decimal(rng.choice(_WHOLE)) if whole else Decimal(rng.randrange(12, 98)) / 10
            factors.setdefault(column, drawn)
    shift = Random(derive_seed(seed, "shift", name)).choice(_SHIFTS)
    old = sorted(spoken - CALENDAR)
    new = new_words(len(old), derive_seed(seed, "words", name), frozenset(spoken | CALENDAR))
    return Key(dict(zip(old, new, strict=True)), factors, shift)


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
        return (
            f"{before}{value:,f}{after}" if "," in digits else f"{before}{_written(value)}{after}"
        )
    if cell is None or isinstance(cell, bool) or cell != cell:
        return cell
    try:
        value = Decimal(str(cell)) * factor
    except InvalidOperation:
        return cell
    return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else float(value)


def _written(value: Decimal) -> str:
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
    mark = "," if getattr(table.reading, "decimal", "") == "," else "."
    holes: Mapping[str, Sequence[str]] = getattr(table.reading, "missing", {})
    for column in out.columns:
        kept = frozenset(w.strip() for w in holes.get(str(column), ()))
        if column in table.numbers:
            factor = key.factors[column]
            out[column] = out[column].map(
                lambda v, f=factor, k=kept: v if _said(v) in k else scaled(v, f, mark)
            )
        elif column in table.years:
            out[column] = out[column].map(
                lambda v, k=kept: v if _said(v) in k else moved(v, key.shift)
            )
        elif str(column) not in _plain(table):
            gone = kept | _ABSENT
            out[column] = out[column].map(
                lambda v, k=gone: key.said(v) if isinstance(v, str) and v.strip() not in k else v
            )
        if kinds[column].kind in "iuf":  # a typed file keeps a column of numbers
            whole = kinds[column].kind != "f" and all(isinstance(v, int) for v in out[column])
            out[column] = out[column].astype("int64" if whole else "float64")
    names = [key.said(str(c)) for c in out.columns]
    if len(set(names)) < len(names):
        raise ValueError("two columns have one name under the key")
    out.columns = names
    return out


def _plain(table: Table) -> frozenset[str]:
    """Columns whose cells are numbers or dates: no names stand there."""
    reading = table.reading
    return frozenset((*getattr(reading, "numbers", ()), *getattr(reading, "dates", {})))


def texts_in(frame: Frame, table: Table) -> list[str]:
    """Every distinct text of a table's cells, whatever its column is good for."""
    found: set[str] = set()
    for column in frame.columns:
        if str(column) not in _plain(table) and frame[column].dtype.kind not in "iufbmM":
            cells = frame[column].dropna().unique().tolist()
            found |= {c for c in cells if isinstance(c, str) and c.strip() not in _ABSENT}
    return sorted(found)


def change_table(table: Table, key: Key) -> Table:
    """The description of a changed table: every field mapped in its order, so that a question
    composed from the same draws asks the same of it."""

    def names(columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(key.said(c) for c in columns)

    return replace(
        table,
        reading=change_reading(table.reading, key),
        columns=names(table.columns),
        numbers=names(table.numbers),
        groups=names(table.groups),
        names=names(table.names),
        years=names(table.years),
        totals=names(table.totals),
        holes=names(table.holes),
        whole=names(table.whole),
        single_years=names(table.single_years),
        halves=tuple(
            Half(key.said(h.column), h.cut, tuple(map(key.said, h.values))) for h in table.halves
        ),
        values={key.said(c): [key.said(v) for v in vs] for c, vs in table.values.items()},
        fewest={key.said(c): n for c, n in table.fewest.items()},
        spans={key.said(c): [v + key.shift for v in vs] for c, vs in table.spans.items()},
        levels={
            key.said(c): [float(Decimal(str(v)) * key.factors[c]) for v in vs]
            for c, vs in table.levels.items()
        },
        marks=frozenset(f"{mark} obscured" for mark in table.marks),
        about=About(
            key.said(table.about.title),
            table.about.licence,
            {key.said(c): key.said(w) for c, w in table.about.columns.items()},
        ),
    )


def _said(cell: Any) -> str:
    """A cell as the words for missing values are written."""
    return cell.strip() if isinstance(cell, str) else f"{cell:g}" if _is_number(cell) else ""


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _part(reading: Read) -> str:
    """The part of a file that has a name of its own."""
    return reading.part if reading.form in ("excel", "sqlite") else ""


def change_reading(reading: Read, key: Key) -> Read:
    """How the changed table is read: as the old one, under other names."""
    if not isinstance(reading, ReadPlan):
        own = cast("Any", reading)  # every form has a path, and lists of columns
        lists = [n for n in ("columns", "numbers") if hasattr(own, n)]
        new = {n: tuple(key.said(c) for c in getattr(own, n)) for n in lists}
        return replace(own, path=key.path(reading.path), **new)
    named = _part(reading)

    def names(columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(key.said(c) for c in columns)

    return replace(
        reading,
        path=key.path(reading.path),
        part=key.said(named)[:31] if named else reading.part,  # a workbook's own limit
        encoding="utf-8",
        quote='"' if reading.form == "csv" else reading.quote,
        escape="",
        header=True,
        skip=reading.skip if reading.header else max(0, reading.skip - 1),
        columns=names(reading.columns),
        numbers=names(reading.numbers),
        marked=names(reading.marked),
        text=names(reading.text),
        missing={key.said(c): words for c, words in reading.missing.items()},
        dates={key.said(c): form for c, form in reading.dates.items()},
        ragged="",
    )


def raw_frame(reading: Read, folder: Path) -> Frame:
    """The table with the cells of text as they are written. Raises what pandas raises."""
    if not isinstance(reading, ReadPlan):
        return cast("Any", reading).load(folder)
    pd: Any = importlib.import_module("pandas")
    if reading.form == "sqlite":
        quoted = reading.part.replace('"', '""')
        with closing(sqlite3.connect(folder / reading.path)) as db:
            return pd.read_sql(f'select * from "{quoted}"', db)
    bare = replace(reading, numbers=(), marked=(), dates={}, missing={}, text=reading.columns)
    space: dict[str, Any] = {"pd": _Rooted(pd, folder)}
    exec(bare.code("t"), space)  # our own statements, made of quoted parts
    return space["t"]


class _Rooted:
    """pandas whose readers take `data/…` from a folder."""

    def __init__(self, pandas: Any, folder: Path) -> None:
        self._pandas, self._folder = pandas, folder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pandas, name)
        if not name.startswith("read_"):
            return found

        def read(path: str, **how: Any) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return found(self._folder / path.removeprefix("data/"), **how)

        return read


def layout_of(table: Table, folder: Path, key: Key) -> Layout:
    """The file that the changed table is written into."""
    new, old = change_reading(table.reading, key), table.reading
    if not isinstance(new, ReadPlan) or not isinstance(old, ReadPlan):
        return Layout(new.path, cast("Any", new.form))
    top = _above(old, folder)
    form = cast("Any", new.form)
    return Layout(new.path, form, new.sep, sheet=new.part, top=tuple(map(key.said, top)))


def _above(reading: Read, folder: Path) -> tuple[str, ...]:
    """The lines above the column names."""
    if not isinstance(reading, ReadPlan) or reading.form not in ("csv", "excel"):
        return ()
    place = folder / reading.path
    return top_lines(place, reading.form, reading.part, reading.skip, reading.encoding)


def obscure_tables(
    folder: Path, name: str, tables: Sequence[Table], used: Collection[str], seed: int, target: Path
) -> list[Table]:
    """The changed descriptions of all tables, in order; the files in `used` (old paths) are written
    below `target`. A file that cannot be written under the key is left out, as all others are."""
    raw: dict[str, Frame] = {}
    texts: list[str] = []
    for table in tables:
        if table.path not in used:
            continue
        try:
            raw[table.key] = raw_frame(table.reading, folder)
        except (ValueError, TypeError, OverflowError):
            continue  # questions about it then find no file, and are dropped
        texts += [*texts_in(raw[table.key], table), *_above(table.reading, folder)]
    key = make_key(name, tables, seed, texts)
    files: dict[str, list[tuple[Layout, Frame]]] = {}
    found = [change_table(table, key) for table in tables]
    for table, changed in zip(tables, found, strict=True):
        if table.key not in raw:
            continue
        try:
            frame = change_frame(raw[table.key], table, key)
            layout = layout_of(table, folder, key)
        except (ValueError, TypeError, OverflowError):
            continue
        files.setdefault(changed.path, []).append((layout, frame))
    for parts in files.values():
        write_frames(target, parts)
    return found
