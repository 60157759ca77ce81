# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a table can be asked: kinds of columns, targets, leaks. No model needed."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from data_gen.dare.layout import Frame

MAX_ROWS = 4000
_INDEX = re.compile(
    r"^(unnamed.*|rownames?|index|row_?id|id|.*_id|obs|case|subject_?id?|key)$", re.I
)
_TIME = re.compile(r"(year|date|time|month|quarter|period|day)", re.I)


@dataclass(frozen=True)
class Looked:
    """A cleaned table: `kinds` says numerical or categorical for every column that stays."""

    frame: Frame
    kinds: dict[str, str]

    def features(self, without: list[str]) -> list[str]:
        return [c for c in self.frame.columns if c not in without]


def clean(frame: Frame, seed: int) -> Looked | None:
    """Drop running indices, constants, texts; categories as text, numbers as numbers. None: too
    little is left."""
    import numpy as np

    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    frame = frame.loc[:, ~frame.columns.duplicated()].copy()
    if len(frame) > MAX_ROWS:
        frame = frame.sample(MAX_ROWS, random_state=seed % (1 << 32)).sort_index()
    kinds: dict[str, str] = {}
    out: dict[str, Any] = {}
    for name in frame.columns:
        column = frame[name]
        if _INDEX.match(name) or "`" in name or not name or column.isna().mean() > 0.4:
            continue
        if column.dtype.kind in "iuf":
            values = column.astype(float).replace([np.inf, -np.inf], np.nan)
            whole = bool((values.dropna() == values.dropna().round()).all())
            if values.nunique() < 2 or values.abs().max() > 1e12:
                continue
            running = whole and values.nunique() == len(values) and values.is_monotonic_increasing
            if running and not _TIME.search(name):
                continue
            tidy = column.astype("int64") if whole and not values.isna().any() else values
            out[name], kinds[name] = tidy, "numerical"
        elif column.dtype.kind == "M":
            continue
        else:
            words = column.astype(object).where(column.notna(), None)
            words = words.map(lambda v: None if v is None else " ".join(str(v).split()) or None)
            if 2 <= words.nunique() <= 20 and words.dropna().map(len).max() <= 40:
                out[name], kinds[name] = words, "categorical"
    if len(out) < 4:
        return None
    import pandas as pd

    tidy = pd.DataFrame(out).drop_duplicates().reset_index(drop=True)
    return Looked(tidy, kinds) if len(tidy) >= 120 else None


def class_targets(looked: Looked) -> list[str]:
    """Columns with 2-10 classes, the two commonest with 20 rows or more, none above 85 %."""
    found: list[str] = []
    for name in looked.frame.columns:
        counts = looked.frame[name].value_counts()
        whole = looked.kinds[name] == "categorical" or looked.frame[name].dtype.kind == "i"
        enough = 2 <= len(counts) <= 10 and counts.iloc[1] >= 20 and counts.iloc[-1] >= 4
        if whole and enough and counts.iloc[0] <= 0.85 * len(looked.frame):
            found.append(name)
    return found


def number_targets(looked: Looked) -> list[str]:
    """Numeric columns with many values, not a time."""
    found: list[str] = []
    for name, kind in looked.kinds.items():
        if kind == "numerical" and not _TIME.search(name):
            distinct = looked.frame[name].nunique()
            if distinct >= 30 and distinct >= 0.1 * len(looked.frame):
                found.append(name)
    return found


def giveaways(looked: Looked, target: str) -> list[str]:
    """Features that alone tell the target: |r| ≥ 0.995, or values that name its class."""
    frame, found = looked.frame, list[str]()
    y = frame[target]
    classes = y.nunique()
    for name in looked.features([target]):
        x = frame[name]
        both = (x.notna() & y.notna()).to_numpy()
        numbers = x.dtype.kind in "if" and y.dtype.kind in "if"
        told = numbers and _straight(x[both], y[both])
        if not told and classes <= 10 and x.nunique() <= 40:
            told = _names_class(x[both], y[both])
        if told:
            found.append(name)
    return found


def _straight(x: Any, y: Any) -> bool:
    """Whether a straight line through x gives y."""
    import numpy as np

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return bool(abs(np.corrcoef(x.to_numpy(float), y.to_numpy(float))[0, 1]) >= 0.995)


def _names_class(x: Any, y: Any) -> bool:
    """Whether the commonest class of each value of x is the class of nearly every row."""
    import numpy as np
    import pandas as pd

    values, known = pd.factorize(x)
    classes, names = pd.factorize(y)
    table = np.bincount(values * len(names) + classes, minlength=len(known) * len(names))
    return bool(
        table.reshape(len(known), len(names)).max(axis=1, initial=0).sum() >= 0.995 * len(x)
    )
