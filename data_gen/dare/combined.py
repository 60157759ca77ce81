# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Columns that several others give together: sums, differences, products, quotients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.leaks import (
    CLASSES,
    FEW,
    LIMIT,
    explained,
    is_label,
    is_number,
    purity,
    shuffled,
)

EXACT = 0.9995  # R2 of a sum or product of two columns
MANY = 1e-4  # share of variance that a weighted sum of many columns may leave
NAMING = 12  # columns of which two may name a group of rows

Array = Any  # a numpy array


def made_of(frame: Frame, target: str, features: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """(columns that together give the target, how), or ((), ""): a sum, difference, product or
    quotient of two numeric features, or a weighted sum of several."""
    import numpy as np

    names = [f for f in features if is_number(frame[f]) and frame[f].isna().mean() < 0.1]
    y = frame[target]
    if len(names) < 2:
        return (), ""
    rows = frame[names].notna().all(axis=1) & y.notna()
    if rows.sum() < max(FEW, 0.3 * len(frame)):
        return (), ""
    place = np.flatnonzero(rows.to_numpy())
    place = place[shuffled(len(place))]
    block = frame[names].iloc[place].to_numpy(float)
    if is_number(y):
        goal = y.iloc[place].to_numpy(float)[:, None]
        pair = _two(block, goal[:, 0])
        if pair is not None:
            return (names[pair[0]], names[pair[1]]), pair[2]
    elif y.nunique() <= CLASSES:
        labels = y.iloc[place].to_numpy()
        goal = np.stack([(labels == label).astype(float) for label in sorted(set(labels))], 1)
    else:
        return (), ""
    used = _weighted(block, goal)
    return (tuple(names[i] for i in used), "a weighted sum of them") if used else ((), "")


def two_labels(frame: Frame, target: str, features: Sequence[str]) -> tuple[str, ...]:
    """Two columns of few values whose pairs of values have one label each, () where there are
    none; those with the fewest values are looked at."""
    import pandas as pd

    few = [(int(frame[f].nunique()), f) for f in features if is_label(frame[f])]
    names = [f for count, f in sorted(few, key=lambda pair: pair[0]) if count <= CLASSES][:12]
    y = pd.factorize(frame[target])[0]
    codes = {f: pd.factorize(frame[f], use_na_sentinel=False)[0] for f in names}
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            both = pd.factorize(codes[one] * (CLASSES + 2) + codes[other])[0]
            if purity(both[y >= 0], y[y >= 0]) >= LIMIT:
                return one, other
    return ()


def shared_in_group(frame: Frame, target: str, features: Sequence[str]) -> tuple[str, ...]:
    """Two columns that together name a group of rows (a school by its size and its share of
    minorities, a state in a year by income and unemployment) in which the target is the same, ()
    where there are none: rows of one group would stand on both sides of a split. Those with the
    most values, each found in two rows or more on average, are looked at."""
    import pandas as pd

    rows = frame[target].notna().to_numpy()
    y = frame[target][rows]
    many = [(int(frame[f].nunique()), f) for f in features]
    fits = [(count, f) for count, f in many if 3 <= count <= len(y) / 2]
    names = [f for _, f in sorted(fits, key=lambda pair: (-pair[0], pair[1]))[:NAMING]]
    codes = {f: pd.factorize(frame[f][rows], use_na_sentinel=False)[0] for f in names}
    label = is_label(y)
    own = pd.factorize(y)[0] if label else y.to_numpy(float)
    if len(y) < FEW or y.nunique() < 2:
        return ()
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            both = pd.factorize(codes[one] * (len(y) + 1) + codes[other])[0]
            if (purity(both, own) if label else explained(both, own)) >= LIMIT:
                return one, other
    return ()


def _two(block: Array, y: Array) -> tuple[int, int, str] | None:
    """Two columns whose weighted sum, or product of powers, gives y."""
    import numpy as np

    found = _pair(block, y)
    if found is not None:
        return (*found, "their sum or difference")
    positive = (block > 0).all(axis=0)
    if (y > 0).all() and positive.sum() >= 2:
        places = np.flatnonzero(positive)
        found = _pair(np.log(block[:, places]), np.log(y))
        if found is not None:
            return int(places[found[0]]), int(places[found[1]]), "their product or quotient"
    return _relative(block, y)


def _relative(block: Array, y: Array) -> tuple[int, int, str] | None:
    """Two columns of which one is the relative change from the other to y, or y per unit of it: y
    by the one runs on a straight line with the other."""
    import numpy as np

    with np.errstate(all="ignore"):
        centred = block - block.mean(axis=0)
        size = np.sqrt((centred**2).sum(axis=0))
        for i in range(block.shape[1]):
            if (block[:, i] == 0).any() or size[i] == 0:
                continue
            for ratio in (y / block[:, i], y * block[:, i]):
                own = ratio - ratio.mean()
                r = np.abs(own @ centred) / (size * np.sqrt((own**2).sum()))
                r[~np.isfinite(r)] = 0.0
                r[i] = 0.0
                j = int(r.argmax())
                if r[j] ** 2 >= EXACT:
                    return i, j, "their product or quotient"
    return None


def _pair(block: Array, y: Array) -> tuple[int, int] | None:
    """The two columns with the best squared multiple correlation with y, if it is exact. From the
    correlation matrix alone, so all pairs cost no more than one."""
    import numpy as np

    with np.errstate(all="ignore"):
        r = np.corrcoef(np.column_stack([block, y]), rowvar=False)
        own, mutual = r[-1, :-1], r[:-1, :-1]
        top = own[:, None] ** 2 + own[None, :] ** 2 - 2 * own[:, None] * own[None, :] * mutual
        square = top / (1 - mutual**2)
    square[~np.isfinite(square) | (mutual**2 > 0.9999)] = 0.0
    np.fill_diagonal(square, 0.0)
    place = int(square.argmax())
    i, j = divmod(place, len(square))
    return (min(i, j), max(i, j)) if square[i, j] >= EXACT else None


def _weighted(block: Array, goal: Array) -> list[int]:
    """The columns of the weighted sum that gives every column of `goal`, none where none does."""
    import numpy as np

    if len(block) < 5 * block.shape[1]:
        return []
    spread = block.std(axis=0)
    spread[spread == 0] = 1.0
    x = np.column_stack([(block - block.mean(axis=0)) / spread, np.ones(len(block))])
    weights, *_ = np.linalg.lstsq(x, goal, rcond=None)
    left = ((goal - x @ weights) ** 2).sum(axis=0)
    whole = ((goal - goal.mean(axis=0)) ** 2).sum(axis=0)
    if (whole == 0).any() or (left > MANY * whole).any():
        return []
    size = np.abs(weights[:-1]).max(axis=1) / goal.std(axis=0).max()
    return [int(i) for i in np.flatnonzero(size >= 0.01)]
