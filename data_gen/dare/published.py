# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Knowing the tables of published evaluation databases again, by content alone.

`published.json` holds hashes and no data: a few of each of their columns, and one of each of their
files (`tests/support/make_published.py` made it). A column's sketch is the 24 smallest hashes of
its values, each value numbered by how often it came before: the same in whatever order, under
whatever name and in whatever format, and nearly the same when some rows are missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.fingerprints import spread
from assay.lazy import pandas as pd
from assay.tables.columns import date_format, days_of
from data_gen.dare.layout import VARIANTS, Entry, Frame, read_table
from rewards.published import published_database

FILE = Path(__file__).with_name("published.json")
_SIZE = 24  # hashes of a column
_ALIKE = 16  # of them shared: the same column
_DISTINCT = 20  # values a column must have to say anything
_TOP = 0.3  # the share of its rows that one value may have
_SHARE = 0.6  # of the columns of the narrower table
HALF = 16  # digits kept of git's hash
_WORDS = 200_000  # distinct texts beyond which a column is left out

Sketch = frozenset[int]


@dataclass(frozen=True)
class Published:
    """One published table: its database, its rows, the sketches of its columns. `part` says which
    of its tables was at hand (`tables_of`)."""

    name: str
    rows: int
    columns: tuple[Sketch, ...]
    part: str = "whole"


def same_as_published(frame: Frame) -> str:
    """Why a table may not be trained on, or nothing: it is the table of a published database, or
    one in whose rows and columns most of that table is."""
    near = [p for p in published_tables() if p.rows / 2 <= len(frame) <= 2 * p.rows]
    if not near:
        return ""
    sketches = sketches_of(frame)
    for known in near:
        pairs = [
            (i, j)
            for i, a in enumerate(sketches)
            for j, b in enumerate(known.columns)
            if _alike(a, b)
        ]
        shared = min(len({i for i, _ in pairs}), len({j for _, j in pairs}))
        narrow = min(len(sketches), len(known.columns))
        if shared >= max(2, _SHARE * narrow):
            return (
                f"{shared} of its columns are those of {known.name}, a published evaluation "
                "database: tasks made of it would train on a test"
            )
    return ""


def evaluation_database(entry: Entry) -> str:
    """Why a database of an official folder may not be trained on, or nothing: one of its files or
    questions is one of a published evaluation database, or its table holds most of such a one. Its
    name says nothing."""
    files = _files()
    for path in sorted((entry.folder / "source").glob("*")):
        if not tells(entry, path.name):
            continue
        if name := files.get(_git_hash(path)):
            return f"{path.name} is a file of {name}, a published evaluation database"
    questions = (str(entry.row.get(f"question_{v}") or "") for v in VARIANTS)
    if name := published_database(questions):
        return f"a question is one of {name}, a published evaluation database"
    return next((why for _, frame in tables_of(entry) if (why := same_as_published(frame))), "")


@cache
def _rows() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))


@cache
def _files() -> dict[str, str]:
    """Hash of a file → its database."""
    return {h: row["name"] for row in _rows() for h in row["files"]}


@cache
def published_tables() -> tuple[Published, ...]:
    """What `published.json` holds of tables."""
    return tuple(
        Published(
            r["name"],
            r["rows"],
            tuple(frozenset(int(h, 16) for h in c.split()) for c in r["columns"]),
            r["part"],
        )
        for r in _rows()
        if r["columns"]
    )


def _alike(one: Sketch, other: Sketch) -> bool:
    """Whether the smallest hashes of both together are mostly in both."""
    if len(one & other) < _ALIKE:
        return False
    least = sorted(one | other)[:_SIZE]
    return sum(h in one and h in other for h in least) >= _ALIKE


def sketches_of(frame: Frame) -> list[Sketch]:
    """The sketches of the columns that have enough different values."""
    columns = (frame.iloc[:, place].dropna() for place in range(frame.shape[1]))
    found = [_sketch(column) for column in columns if not few(column, _DISTINCT)]
    return [s for s in found if s]


def few(column: Any, least: int) -> bool:
    """Whether a column has fewer different values than that; False where they cannot be told
    apart without reading them as texts."""
    try:
        return bool(column.nunique() < least)
    except TypeError:  # lists and the like
        return False


def _sketch(column: Any) -> Sketch:
    values = _hashed(column)
    if values is None:
        return frozenset()
    values = np.sort(values)
    new = np.concatenate(([True], values[1:] != values[:-1])) if len(values) else values
    starts: Any = np.flatnonzero(new)
    lengths: Any = np.diff(np.append(starts, len(values)))
    if len(lengths) < _DISTINCT or lengths.max() > _TOP * len(values):
        return frozenset()
    before: Any = np.arange(len(values)) - np.repeat(starts, lengths)
    mixed = spread(values ^ spread(before.astype("u8")))
    return frozenset(int(h) >> 32 for h in np.sort(mixed)[:_SIZE])


def plain_values(column: Any) -> Any:
    """The present values of a column as they are however they are kept: numbers and days (in
    seconds) as an array of floats, anything else as a list of texts."""
    column = column.dropna()
    if column.dtype.kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert(None)  # numpy's days know no zones
        return column.to_numpy().astype("M8[s]").astype("i8").astype("f8")
    if column.dtype.kind in "iufb":
        return column.to_numpy(dtype="f8")
    said = column.tolist()
    bare = {v: " ".join(v.split()).casefold() for v in {v for v in said if type(v) is str}}
    words: Any = pd.Series([bare[v] if type(v) is str else _bare(v) for v in said])
    distinct: list[str] = words.unique().tolist()
    numbers: Any = pd.to_numeric(pd.Series(distinct), errors="coerce")
    if numbers.notna().all():
        plain: Any = pd.to_numeric(words, errors="coerce")
        return plain.to_numpy(dtype="f8")
    days = days_of(distinct)
    form = date_format(distinct, days, {})[0]
    if not form:
        return words.tolist()
    return plain_values(words.map(dict(zip(distinct, days[form], strict=True))))


def _bare(value: Any) -> str:
    return " ".join(str(value).split()).casefold()


def _hashed(column: Any) -> Any:
    """A 64-bit hash for every value, of numbers in single precision. None for a column that says
    nothing."""
    values = plain_values(column)
    if not isinstance(values, list):
        if column.dtype.kind == "b" or _counted(values):
            return None
        with np.errstate(over="ignore"):
            singles = values.astype("f4") + np.float32(0)
        return spread(singles.view("u4").astype("u8"))
    distinct = dict.fromkeys(values)
    if len(distinct) > _WORDS:
        return None
    digest = {w: hashlib.sha256(w.encode("utf-8", "replace")).digest()[:8] for w in distinct}
    return np.array([int.from_bytes(digest[w]) for w in values], dtype="u8")


def _counted(numbers: Any) -> bool:
    """Whether these are the numbers of the rows, the same for all tables of a size."""
    if not len(numbers) or not bool(np.all(numbers == np.round(numbers))):
        return False
    distinct = len(np.unique(numbers))
    return distinct == len(numbers) and float(np.ptp(numbers)) < 2 * distinct


def _git_hash(path: Path) -> str:
    """The first half of git's hash of a file."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:HALF]


def tells(entry: Entry, name: str) -> bool:
    """Whether a file has rows, and more in them than times and keys, which other databases may
    share."""
    starts = ("train.", "train_", "val_v1") if entry.family == "ts" else ("train_", "val_")
    return name.startswith(starts)


def tables_of(entry: Entry) -> Iterator[tuple[str, Frame]]:
    """The tables that a database was made of, as far as its files hold them: `whole`; of an
    incomplete copy also the features of IF alone (`features`), or the rows to predict (`test`)."""
    found = {p.stem: p for p in (entry.folder / "source").glob("*.*") if p.is_file()}
    stems = {"whole": ("train", "val_v2"), "test": ("val_v1",)}
    if entry.family != "ts":
        stems = {
            "whole": ("train_v2", "val_v2"),
            "features": ("train_v1_no_err", "val_v1"),
            "test": ("val_v2",),
        }
    for part, wanted in stems.items():
        if all(stem in found for stem in wanted):
            frames = [read_table(found[stem]) for stem in wanted]
            yield part, pd.concat(frames, ignore_index=True).drop(columns="row_id", errors="ignore")
