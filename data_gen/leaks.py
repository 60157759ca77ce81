# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Leaks: does one column give another, and do one or two columns give the target?

Definition. Column x *tells* column y when a function of x alone gives y: 99.5 % of the labels, or
R2 of 0.995 for numbers, on rows that the function was not read from. Four families of functions
are tried, which together hold what people derive columns by:

- a mapping of values: equal values of x have equal values of y (codes, names, dictionaries);
- intervals: y is one label between two bounds of x (age group from age);
- a monotone function, by rank (logarithms, units, scalings, roundings);
- a smooth function: rows that are neighbours by x are neighbours by y (squares, distances).

A date tells what its calendar parts tell. Columns that several others give together, as a sum or
a product, are found by `made_of`; what the files of a finished task give away, by `given_away`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from data_gen.dare.layout import Frame

LIMIT = 0.995  # share of labels, or R2, from which on a column is given away
CLASSES = 20  # up to so many different whole numbers are labels
FEW = 30  # rows that are needed to say anything
SAMPLE = 1500  # rows that are looked at

Column = Any  # a pandas Series
Array = Any  # a numpy array

_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|^\d{1,2}[ -][A-Za-z]{3}")


def is_number(column: Column) -> bool:
    return column.dtype.kind in "iufb"


def is_label(column: Column) -> bool:
    """Whether a column is compared label by label: text, or few different whole numbers."""
    if not is_number(column):
        return True
    known = column.dropna()
    return known.nunique() <= CLASSES and bool((known == known.round()).all())


def tells(x: Column, y: Column) -> str:
    """How x alone gives y, in words; "" where it does not. Rows where one is missing say
    nothing."""
    both = (x.notna() & y.notna()).to_numpy()
    if both.sum() < max(FEW, 0.3 * len(y)):
        return ""
    x, y = x[both], y[both]
    if not is_number(x) and (times := dates_in(x)) is not None and (said := _calendar(times, y)):
        return said
    return _tells_label(x, y) if is_label(y) else _tells_number(x, y)


def shuffled(size: int) -> Array:
    """A fixed order, so that the order of rows in a file says nothing."""
    import numpy as np

    return np.random.default_rng(7).permutation(size)[:SAMPLE]


def _groups(x: Column) -> Array:
    import pandas as pd

    return pd.factorize(x)[0]


def _tells_label(x: Column, y: Column) -> str:
    import numpy as np

    groups, labels = _groups(x), _groups(y)
    if labels.max(initial=0) == 0:
        return ""
    if purity(groups, labels) >= LIMIT:
        return "equal values of it have equal labels"
    if not is_number(x):
        return ""
    order = shuffled(len(x))
    ranked = labels[order][np.argsort(x.to_numpy(float)[order], kind="stable")]
    changes = float((ranked[1:] != ranked[:-1]).sum())
    if changes - labels.max() <= (1 - LIMIT) * len(ranked):
        return "its intervals give the label"
    return ""


def purity(groups: Array, labels: Array) -> float:
    """Share of rows with the commonest label of their group, over groups of two rows or more; 0
    where those are less than a third of the rows."""
    import numpy as np

    width = int(labels.max()) + 1
    known = int(groups.max()) + 1
    if known * width > 4_000_000:
        return 0.0
    table = np.bincount(groups * width + labels, minlength=known * width).reshape(known, width)
    sizes = table.sum(axis=1)
    repeated = sizes >= 2
    rows = sizes[repeated].sum()
    if rows < max(FEW, len(groups) / 3):
        return 0.0
    return float(table[repeated].max(axis=1).sum() / rows)


def _tells_number(x: Column, y: Column) -> str:
    import numpy as np

    values = y.to_numpy(float)
    if not np.isfinite(values).all() or np.ptp(values) == 0:
        return ""
    if explained(_groups(x), values) >= LIMIT:
        return "equal values of it have equal values"
    if not is_number(x):
        return ""
    other = x.to_numpy(float)
    if not np.isfinite(other).all() or np.ptp(other) == 0:
        return ""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if abs(np.corrcoef(other, values)[0, 1]) >= LIMIT:
            return "a straight line through it"
        order = shuffled(len(values))
        a, b = other[order], values[order]
        if len(np.unique(a)) > CLASSES and abs(_rank_correlation(a, b)) >= 0.999:
            return "a monotone function of it"
        if _smooth(a, b) >= LIMIT:
            return "a smooth function of it"
    return ""


def explained(groups: Array, values: Array) -> float:
    """R2 of the mean of a row's group, over groups of two rows or more, corrected for their
    number; 0 where those are less than a third of the rows."""
    import numpy as np

    sizes = np.bincount(groups)
    repeated = sizes[groups] >= 2
    rows = int(repeated.sum())
    if rows < max(FEW, len(groups) / 3):
        return 0.0
    _, part = np.unique(groups[repeated], return_inverse=True)
    y = values[repeated]
    counts = np.bincount(part)
    means = np.bincount(part, y) / counts
    left = float(((y - means[part]) ** 2).sum()) / max(1, rows - len(counts))
    spread = float(((y - y.mean()) ** 2).sum()) / max(1, rows - 1)
    return 1 - left / spread if spread > 0 else 0.0


def _rank_correlation(a: Array, b: Array) -> float:
    import numpy as np
    import pandas as pd

    return float(np.corrcoef(pd.Series(a).rank(), pd.Series(b).rank())[0, 1])


def _smooth(a: Array, b: Array) -> float:
    """R2 of the neighbour by x, from the squared steps between neighbours (von Neumann's ratio)."""
    import numpy as np

    ranked = b[np.argsort(a, kind="stable")]
    spread = float(((ranked - ranked.mean()) ** 2).mean())
    return 1 - float((np.diff(ranked) ** 2).mean()) / 2 / spread if spread > 0 else 0.0


def dates_in(x: Column) -> Column | None:
    """The column as times, or None where it does not look like dates."""
    import pandas as pd

    if x.dtype.kind == "M":
        return x
    first = x.dropna().head(20).map(str)
    if not len(first) or not first.map(lambda v: bool(_DATE.search(v))).all():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ways = (pd.to_datetime(x, errors="coerce", dayfirst=first) for first in (False, True))
        return next((found for found in ways if found.notna().mean() > 0.9), None)


def calendar_parts(times: Column) -> dict[str, Column]:
    """What a calendar says of times, by name."""
    clock = times.dt
    return {
        "year": clock.year,
        "month": clock.month,
        "day": clock.day,
        "day of the year": clock.day_of_year,
        "week": clock.isocalendar().week.astype(float),
        "weekday": clock.day_of_week,
        "quarter": clock.quarter,
        "hour": clock.hour,
        "minute": clock.minute,
        "days since the start": (times - times.min()).dt.total_seconds() / 86400,
    }


def _calendar(times: Column, y: Column) -> str:
    for name, part in calendar_parts(times).items():
        if part.nunique() > 1 and tells(part.astype(float), y):
            return f"the {name} of it"
    return ""


def told_by_key(frame: Frame, target: str, when: Column, keys: Sequence[str]) -> str:
    """How the time and entity of a series' row give its target, "" if they do not: a part of the
    calendar that comes again, a constant of each entity, or a straight line through the time. That
    the time itself orders a smooth series is no leak: later times have no neighbours."""
    y = frame[target]
    for name, part in calendar_parts(when).items():
        if name in ("year", "days since the start"):
            told = _exact_line(part, y)
        else:
            told = part.nunique() > 1 and bool(tells(part.astype(float), y))
        if told:
            return f"the {name} of its time gives it"
    if not keys:
        return ""
    entity = frame.groupby(list(keys), sort=False).ngroup().map("e{}".format)  # a name, no number
    if tells(entity, y):
        return f"it is a constant of each {' and '.join(keys)}"
    if is_number(y):
        days = calendar_parts(when)["days since the start"]
        own = y - y.groupby(entity).transform("mean")
        if _exact_line(days - days.groupby(entity).transform("mean"), own, 0.998):
            return "it runs with the time"
    return ""


def tells_within(x: Column, y: Column, groups: Column) -> bool:
    """Whether a straight line through x, another in each group, gives y: a column that was scaled
    group by group."""
    import numpy as np

    known = (x.notna() & y.notna()).to_numpy()
    codes = _groups(groups[known])
    if not len(codes):
        return False
    sizes = np.bincount(codes)
    a, b = (v.to_numpy(float)[known] for v in (x, y))
    a, b = (v - (np.bincount(codes, v) / sizes)[codes] for v in (a, b))
    aa, bb, ab = (np.bincount(codes, v) for v in (a * a, b * b, a * b))
    usable = (sizes >= 10) & (bb > 0)
    with np.errstate(all="ignore"):
        exact = np.abs(ab / np.sqrt(aa * bb))[usable] >= 0.9998
    return bool(usable.sum() >= 3 and exact.sum() >= 0.8 * usable.sum())


def _exact_line(x: Column, y: Column, least: float = 0.99999) -> bool:
    import numpy as np

    if not is_number(y) or y.nunique() < 2 or x.nunique() < 2:
        return False
    known = y.notna().to_numpy()
    with np.errstate(all="ignore"):
        r = np.corrcoef(x.to_numpy(float)[known], y.to_numpy(float)[known])[0, 1]
    return bool(abs(r) >= least)
