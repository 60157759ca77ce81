# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Which features were made with the target: sums that it is a part of, labels read off it and other
numbers. They need not give the target; nobody who asks for it would have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.leaks import is_number
from data_gen.dare.outcomes import split

Array = Any  # a numpy array

SUM = 0.95  # R2 from which on a total is a weighted sum of the target and other numbers
TOLD = 0.05  # share of mistakes at most, of a label that the target and other numbers tell
GAIN = 0.05  # what the target must add to the R2 of a label before it is looked at closely
FEW = 60  # rows below which nothing is said

_TOTAL = re.compile(
    r"\b(total|overall|sum|all|combined|composite|index|score|average|mean|generali[sz]ed|gross|"
    r"whole|spending)\b",
    re.I,
)
_BEGUN = re.compile(r"^(start|begin|begun|from|arriv\w*|open(ed)?)\b", re.I)
_ENDED = re.compile(r"^(end|finish(ed)?|stop|until|depart\w*|close(d)?)\b", re.I)
_LASTS = re.compile(r"\b(time|duration|length|hours|hrs|minutes|mins|days|stay)\b", re.I)
_EARNS = re.compile(r"\b(wages?|earn\w*|salar(y|ies)|pay|labou?r income)\b", re.I)
_PURSE = re.compile(
    r"\b(fam(ily)?|hh|household|total|non-? ?wife|nonwife|combined|taxable|gross|disposable|"
    r"personal)\b\W*(\w+\W+){0,2}(inc|income|earnings)\b|\b(fam|nwife|hh|tot)inc\w*\b",
    re.I,
)
# a quantity that is defined by two others: (its name, one of them, the other)
_DEFINED = tuple(
    tuple(re.compile(rf"\b({words})\b", re.I) for words in three)
    for three in (
        ("density", "mass|weight", "radius|diameter|volume"),
        ("bmi|body mass index|quetelet", "weight|wt|mass", "height|ht|stature"),
        ("(avg |average |mean )?(speed|velocity|pace)", "distance|miles|km", "time|duration"),
    )
)


def made_with(
    frame: Frame, target: str, features: Sequence[str], texts: Mapping[str, str]
) -> dict[str, str]:
    """Feature → why it was made with the target, for those that were."""
    said = f"{split(target)} {texts.get(target, '')[:90]}"
    found: dict[str, str] = {}
    if _EARNS.search(said) and not _PURSE.search(said):
        for name in features:
            if _PURSE.search(f"{name} {split(name)} {texts.get(name, '')[:90]}"):
                found[name] = "an income that what is asked for is a part of"
    found |= dict.fromkeys(_by_definition(target, features), "with it another one is defined")
    ends = [[f for f in features if form.match(split(f))] for form in (_BEGUN, _ENDED)]
    if _LASTS.search(said) and all(ends):
        found |= dict.fromkeys([*ends[0], *ends[1]], "one end of the time that is asked for")
    if not is_number(frame[target]) or frame[target].dtype.kind == "b":
        return found
    if _parts(target, [str(c) for c in frame.columns]):
        for name in features:
            if re.match(r"(total|overall|sum)\b", split(name), re.I):
                found.setdefault(name, "a total of what is asked for and its kin")
    numbers = [f for f in features if is_number(frame[f]) and frame[f].nunique() > 5][:40]
    labels = [f for f in features if 2 <= frame[f].nunique() <= 5]
    for name in labels:
        if _by_bounds(frame[[target, name]].dropna(), target, name):
            found.setdefault(name, "it was read off the target by bounds")
    rows = frame[[target, *numbers, *labels]].dropna()
    if len(rows) < FEW or rows[target].nunique() < 5:
        return found
    for name in _sums(rows, target, numbers, texts):
        found.setdefault(name, "a sum that the target is a part of")
    for name in _labels(rows, target, numbers, labels):
        found.setdefault(name, "with other features it was read off the target")
    return found


def _by_definition(target: str, features: Sequence[str]) -> list[str]:
    """Features that a definition ties to the target: mass and radius beside a density, a body mass
    index beside a weight where the height is known."""
    for whole, one, other in _DEFINED:
        ones, others = ([f for f in features if form.search(split(f))] for form in (one, other))
        wholes = [f for f in features if whole.search(split(f))]
        if whole.search(split(target)):
            if ones and others:
                return [*ones, *others]
        elif (one.search(split(target)) and others) or (other.search(split(target)) and ones):
            return wholes
    return []


def _parts(target: str, names: Sequence[str]) -> bool:
    """Whether the target is one of several columns of one quantity, by their names:
    `beer_servings`, `wine_servings`."""
    words = split(target).lower().split()
    others = [split(n).lower().split() for n in names if n != target]
    alike = [o for o in others if len(o) == len(words) >= 2 and o[-1] == words[-1]]
    return bool(alike)


def _sums(rows: Frame, target: str, numbers: list[str], texts: Mapping[str, str]) -> list[str]:
    """Totals, by what is said of them, that are a sum of the target and other numbers, and are none
    without it. Without such words nobody can tell a whole from its parts."""
    import numpy as np

    found: list[str] = []
    for name in numbers:
        if not _TOTAL.search(f"{split(name)} {texts.get(name, '')[:90]}"):
            continue
        parts = [n for n in numbers if n != name]
        whole = rows[name].to_numpy(float)
        apart = rows[parts].to_numpy(float)
        beside = rows[[*parts, target]].to_numpy(float)
        if len(rows) < 5 * beside.shape[1] + 30 or not parts:
            continue
        gives = _explained(beside, whole[:, None])
        if gives[0] < SUM:
            continue
        alone = _explained(apart, whole[:, None])
        scaled = (beside - beside.mean(axis=0)) / (beside.std(axis=0) + 1e-12)
        weights = np.linalg.lstsq(scaled, whole - whole.mean(), rcond=1e-9)[0] / whole.std()
        adds = weights[-1] > 0 and (weights > -0.1).all()
        if adds and 1 - alone[0] >= 2 * (1 - gives[0]) + 0.02:
            found.append(name)
    return found


def _by_bounds(rows: Frame, target: str, name: str) -> bool:
    """Whether each value of a label holds one range of the target: who won, by the share of votes.
    Five rows of the rarest value tell that from chance."""
    sizes = rows[name].value_counts()
    if len(rows) < FEW or len(sizes) < 2 or sizes.min() < 5:
        return False
    label = rows.sort_values(target, kind="stable")[name].astype("category").cat.codes.to_numpy()
    return int((label[1:] != label[:-1]).sum()) == len(sizes) - 1


def _labels(rows: Frame, target: str, numbers: list[str], labels: list[str]) -> list[str]:
    """Labels that the target and other numbers tell, and the other numbers alone do not: who won,
    by both scores; a group, by the thresholds of a measure."""
    import numpy as np

    labels = [n for n in labels if rows[n].value_counts().min() >= 2 and rows[n].nunique() > 1]
    if not labels:
        return []
    apart = rows[numbers].to_numpy(float)
    beside = rows[[*numbers, target]].to_numpy(float)
    each = [(n, rows[n] == value) for n in labels for value in rows[n].unique()]
    flags = np.column_stack([flag for _, flag in each]).astype(float)
    gain = _explained(beside, flags) - _explained(apart, flags)
    near = {name for (name, _), more in zip(each, gain, strict=True) if more >= GAIN}
    found: list[str] = []
    for name in (n for n in labels if n in near):
        with_it = _mistakes(beside, rows[name])
        if with_it <= TOLD and _mistakes(apart, rows[name]) >= max(0.1, 4 * with_it):
            found.append(name)
    return found


def _explained(x: Array, y: Array) -> Array:
    """R2 of least squares, for each column of y (N, K) on x (N, P)."""
    import numpy as np

    if x.shape[1]:
        x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-12)
    x = np.column_stack([x, np.ones(len(y))])
    left = y - x @ np.linalg.lstsq(x, y, rcond=1e-9)[0]
    whole = ((y - y.mean(axis=0)) ** 2).sum(axis=0)
    return 1 - (left**2).sum(axis=0) / np.maximum(whole, 1e-300)


def _mistakes(x: Array, y: Any) -> float:
    """The share of labels that the better of a line and a small tree gets wrong, on rows that it
    was not fitted on."""
    import warnings

    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    codes = y.astype("category").cat.codes.to_numpy()
    if not x.shape[1]:
        return 1 - float(y.value_counts(normalize=True).iloc[0])
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    line: Any = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=100))
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a line that has not settled is as good as it is
        ways = [cross_val_score(model, x, codes, cv=folds).mean() for model in (line, tree)]
    return 1 - float(max(ways))
