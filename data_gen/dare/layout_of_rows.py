# pandas ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false
"""What the rows of a table say of a column: laid out by somebody, shared by a group, one after the
other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.leaks import is_number
from data_gen.dare.outcomes import split
from data_gen.dare.targets import is_identifier

Column = Any  # a pandas Series

OWNED = 0.5  # adjusted R2 from which on the rows of one person or firm tell one another
NEXT = 0.9  # correlation of a row with the next one, from which on rows follow each other

_OWNER = re.compile(
    r"id\b|ident|subject|patient|student|school|firm|company|state|county|country|"
    r"person|household|family|village|city|town|district|plot|site|station|player|team|prof|worker|"
    r"hospital|animal|litter|farm|rater|judge|pig|rat\b|dog|tree|plant",
    re.I,
)


def _codes(column: Column) -> Any:
    import pandas as pd

    return pd.factorize(column)[0]


def codes_of(frame: Frame) -> dict[str, Any]:
    """The number of each value in its column, -1 where there is none."""
    return {str(name): _codes(frame[name]) for name in frame.columns}


def crossed(codes: Mapping[str, Any], name: str) -> str:
    """A column of which each value has equally many rows with each value of `name`: somebody laid
    the two out so. "" where there is none. `codes`: of all columns (`codes_of`)."""
    import numpy as np

    own = codes[name]
    width = int(own.max()) + 1
    for other, theirs in codes.items():
        many = int(theirs.max()) + 1
        if other == name or not 2 <= many <= len(own) / width or many * width < 6:
            continue
        both = (own >= 0) & (theirs >= 0)
        cells = np.bincount(theirs[both] * width + own[both], minlength=many * width)
        least = 1 if many * width >= 60 else 2
        if cells.min() >= least and np.ptp(cells) <= 0.01 * cells.mean():
            return other
    return ""


def excludes(frame: Frame, name: str, labels: Sequence[str]) -> str:
    """Another 0/1 column that is never 1 where this one is, though chance would have it so."""
    flags = [n for n in labels if is_number(frame[n]) and set(frame[n].dropna().unique()) <= {0, 1}]
    if name not in flags:
        return ""
    own = frame[name].eq(1).to_numpy()
    for other in flags:
        beside = frame[other].eq(1).to_numpy()
        expected = own.mean() * beside.mean() * len(frame)
        turned = (own | beside).mean() >= 0.999  # one is the other turned round
        if other != name and expected >= 8 and not turned and not (own & beside).any():
            return other
    return ""


def of_group(column: Column) -> bool:
    """Whether numbers of five digits and more come again and again: all rows of a place or a year
    have one of them. Whole numbers may come again by chance."""
    known = column.dropna()
    if not len(known) or column.dtype.kind != "f" or known.nunique() > len(known) / 4:
        return False
    different = known.unique()
    fine = [len(f"{abs(v):.9g}".replace(".", "").strip("0")) >= 5 and v % 1 != 0 for v in different]
    counts = known.value_counts()
    return sum(fine) >= 0.7 * len(fine) and float(counts.median()) >= 3


def runs_of(frame: Frame, codes: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that list the rows of the file value by value, each as codes. `codes`: of all
    columns (`codes_of`)."""
    return {n: c for n, c in codes.items() if _groups_rows(frame[n], c)}


def follows(frame: Frame, name: str, runs: Mapping[str, Any]) -> bool:
    """Whether a row's value is nearly the one of the row before, in the order of the file and apart
    from what groups of rows share. Not where the file is sorted by it or by another quantity.
    `runs`: the groups (`runs_of`)."""
    import numpy as np

    column = frame[name]
    if len(frame) < 60 or (not is_number(column) and column.nunique() > 10):
        return False
    values = column.astype(float) if is_number(column) else None
    if values is None:
        values = (column == column.mode().iloc[0]).astype(float)
    y = values.to_numpy()
    known = np.isfinite(y)
    y = y[known]
    if len(y) < 60 or np.ptp(y) == 0 or _sorted(y):
        return False
    for other, codes in runs.items():
        if other != name:
            y = y - _means(codes[known], y)
    if np.std(y) <= 1e-9 or _sorted(y):
        return False
    return float(np.corrcoef(y[:-1], y[1:])[0, 1]) >= NEXT


def owns(name: str, column: Column, text: str) -> bool:
    """Whether a column names what several rows are of: a person, a school."""
    many = column.nunique()
    if not 10 <= many <= len(column) / 3:
        return False
    if not is_number(column):
        return bool(many > 20 or _OWNER.search(split(name)))
    whole = bool((column.dropna() % 1 == 0).all())
    return whole and bool(is_identifier(name, column, text) or _OWNER.search(split(name)))


def owned(frame: Frame, name: str, owners: Sequence[str], codes: Mapping[str, Any]) -> str:
    """A column whose values go far towards this one: rows of one person on both sides of a split
    would give answers away. "" where there is none. `codes`: of all columns (`codes_of`)."""
    import numpy as np

    column = frame[name]
    amount = is_number(column) and column.nunique() > 10
    value = column.astype(float) if amount else column.eq(column.mode().iloc[0]).astype(float)
    y, there = value.to_numpy(float, na_value=np.nan), codes[name] >= 0
    for owner in owners:
        known = there & (codes[owner] >= 0)
        if owner == name or known.sum() < 60:
            continue
        own, groups = y[known] - y[known].mean(), codes[owner][known]
        sizes, sums = np.bincount(groups), np.bincount(groups, own)
        whole = float(own @ own)
        rest = whole - float((sums**2 / np.maximum(sizes, 1)).sum())
        free = len(own) - int((sizes > 0).sum())
        if whole > 0 and free > 0 and 1 - (rest / free) / (whole / (len(own) - 1)) >= OWNED:
            return owner
    return ""


def is_scaled_weight(name: str, column: Column) -> bool:
    """Whether a column called a weight is scaled to a mean of one: it says how rows count."""
    known = column.dropna()
    called = re.search(r"weight|wt", name, re.I) is not None
    return called and len(known) > 0 and abs(float(known.mean()) - 1) < 0.1


def _sorted(y: Any) -> bool:
    import numpy as np

    steps = np.sign(np.diff(y))
    return bool((steps >= 0).mean() > 0.95 or (steps <= 0).mean() > 0.95)


def _groups_rows(column: Column, codes: Any) -> bool:
    """Whether the file lists the rows value by value of a column: few runs, 20 values at most."""
    many = int(codes.max()) + 1 if len(codes) else 0
    if is_number(column) or not 2 <= many <= 20:
        return False
    changes = (codes[1:] != codes[:-1]) | (codes[1:] < 0)  # what is missing is a run of its own
    return int(changes.sum()) + 1 <= 2 * many


def _means(groups: Any, y: Any) -> Any:
    import numpy as np

    groups = groups - groups.min()
    return (np.bincount(groups, y) / np.maximum(np.bincount(groups), 1))[groups]
