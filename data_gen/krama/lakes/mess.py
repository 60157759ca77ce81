"""What makes a tidy table of a package like one of a real lake.

A table may lie in two or three files that share a key, all but the first without some rows. Missing
numbers may be written as a placeholder, which is told: who writes the file says in `tables.yaml`
what it means. Two texts may stand in one column ("City, State").
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from assay.seeds import derive_seed

Frame = Any  # a pandas DataFrame
_PLACEHOLDERS = ("M", "n/a", -9999.0, -999.0)
_TOGETHER = 0.4  # of the tables that can have two texts in one column
_APART = 0.7  # of the tables that can lie in two files
_LOST = 0.08  # of the rows of the second file, and of the third
_WIDE = 6  # columns beside the key from which on there may be a third file
_SUFFIXES = ("details", "more")
ASIDE = tuple(f"_{suffix}" for suffix in _SUFFIXES)  # ends of the names of further files
_LONGEST = 40  # characters of a text that shares a column


@dataclass(frozen=True)
class Part:
    """A table that becomes a file, and column → the word that stands there for no value."""

    name: str
    frame: Frame
    words: dict[str, str] = field(default_factory=dict[str, str])


def messy(owner: str, name: str, frame: Frame) -> list[Part]:
    """The files that the table becomes, by its name alone."""
    rng = Random(derive_seed("carried-mess", owner, name))
    frame = _together(frame, rng)
    parts = _apart(name, frame, rng)
    return [Part(part, *_placeholders(cells, rng)) for part, cells in parts]


def _texts(frame: Frame) -> list[str]:
    """Columns of short texts without commas and without gaps."""
    found: list[str] = []
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "iufbmM" or column.isna().any() or "," in name:
            continue
        texts = column.astype(str)
        if float(texts.str.contains(r"\d").mean()) > 0.2:
            continue  # dates, ages in classes: such things are not written beside another
        if int(texts.str.len().max()) <= _LONGEST and not texts.str.contains(",").any():
            found.append(str(name))
    return found


def _together(frame: Frame, rng: Random) -> Frame:
    """With the longest-valued text and a group in one column, where there are two such."""
    texts = _texts(frame)
    groups = [t for t in texts if 3 <= frame[t].nunique() <= min(60, len(frame) // 3)]
    if len(texts) < 2 or not groups or frame.shape[1] < 4 or rng.random() >= _TOGETHER:
        return frame
    first = max(texts, key=lambda t: (frame[t].nunique(), t))
    rest = [g for g in groups if g != first]
    if not rest:
        return frame
    second = rng.choice(rest)
    place = list(frame.columns).index(first)
    joined = frame[first].astype(str) + ", " + frame[second].astype(str)
    out = frame.drop(columns=[first, second])
    out.insert(min(place, out.shape[1]), f"{first}, {second}", joined)
    return out


def _apart(name: str, frame: Frame, rng: Random) -> list[tuple[str, Frame]]:
    """The table, or two or three with the same key: the others have other columns, in another order
    of rows."""
    keys = [
        str(c)
        for c in frame.columns
        if frame[c].dtype.kind not in "fbmM" and frame[c].is_unique and not frame[c].isna().any()
    ]
    texts = [k for k in keys if frame[k].dtype.kind not in "iu"]
    others = [c for c in frame.columns if c not in texts[:1]]
    if not texts or len(others) < 4 or rng.random() >= _APART:
        return [(name, frame)]
    files = 3 if len(others) >= _WIDE and rng.random() < 0.5 else 2
    ends = [len(others) * n // files for n in range(files + 1)]
    found = [(name, frame[[texts[0], *others[: ends[1]]]])]
    for suffix, start, end in zip(_SUFFIXES, ends[1:], ends[2:], strict=False):
        order = rng.sample(range(len(frame)), len(frame))
        kept = order[: max(15, round(len(frame) * (1 - _LOST)))]
        part = frame[[texts[0], *others[start:end]]].iloc[kept].reset_index(drop=True)
        found.append((f"{name}_{suffix}", part))
    return found


def _placeholders(frame: Frame, rng: Random) -> tuple[Frame, dict[str, str]]:
    """Missing numbers written as one placeholder for the table, where some are missing; and the
    columns that have it."""
    gaps = [c for c in frame.columns if frame[c].dtype.kind == "f" and frame[c].isna().sum() > 1]
    word = rng.choice(_PLACEHOLDERS)
    if not gaps or rng.random() < 0.3:
        return frame, {}
    out, words = frame.copy(), dict[str, str]()
    for name in map(str, gaps):
        column = out[name]
        if isinstance(word, float):
            if not column.min() >= 0:
                continue
            out[name] = column.fillna(word)
        else:
            out[name] = column.astype(object).where(column.notna(), word)
        words[name] = f"{word:g}" if isinstance(word, float) else str(word)
    return out, words
