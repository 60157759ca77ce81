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
What `assay audit` says of tasks beside the laws of every family is `audit_tables`: the leaks of the
specification's section 9, answers that are one label throughout, answers that are equal.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.console import progress
from assay.errors import pandas as pd
from assay.task import Task, TaskError
from data_gen.dare.layout import Frame, read_table
from rewards.dare.read import read_truth
from rewards.dare.score import TableGold, raw_r2, read_gold

if TYPE_CHECKING:
    from rewards.audit_laws import Broken

LIMIT = 0.995  # share of labels, or R2, from which on a column is given away
CLASSES = 20  # up to so many different whole numbers are labels
FEW = 30  # rows that are needed to say anything
EXACT = 0.9995  # R2 of a sum or product of two columns
POSITIVE = 0.8  # share of a column's values that are above zero, for it to be part of a product
MANY = 1e-4  # share of variance that a weighted sum of many columns may leave
NAMING = 12  # columns of which two may name a group of rows
NEAR = 0.95  # R2 from which on a feature is nearly the target itself
OWNED = 0.5  # adjusted R2 from which on the rows of one person or firm tell one another
SAMPLE = 1500  # rows that are looked at

Column = Any  # a pandas Series
Array = Any  # a numpy array

_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|^\d{1,2}[ -][A-Za-z]{3}")


def is_number(column: Column) -> bool:
    return column.dtype.kind in "iufb"


def is_label(column: Column) -> bool:
    """Whether a column holds labels, which are equal or not: text, or few different whole
    numbers."""
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
    return np.random.default_rng(7).permutation(size)[:SAMPLE]


def _groups(x: Column) -> Array:
    return pd.factorize(x)[0]


def _tells_label(x: Column, y: Column) -> str:
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
        if abs(_correlation(other, values)) >= LIMIT:
            return "a straight line through it"
        order = shuffled(len(values))
        a, b = other[order], values[order]
        if len(np.unique(a)) > CLASSES and abs(_correlation(_ranks(a), _ranks(b))) >= 0.999:
            return "a monotone function of it"
        if _smooth(a, b) >= LIMIT:
            return "a smooth function of it"
    return ""


def explained(groups: Array, values: Array) -> float:
    """R2 of the mean of a row's group, over groups of two rows or more, corrected for their
    number; 0 where those are less than a third of the rows."""
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


def _correlation(a: Array, b: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.corrcoef(a, b)[0, 1])


def _ranks(a: Array) -> Array:
    return pd.Series(a).rank().to_numpy()


def _smooth(a: Array, b: Array) -> float:
    """R2 of the neighbour by x, from the squared steps between neighbours (von Neumann's ratio)."""
    ranked = b[np.argsort(a, kind="stable")]
    spread = float(((ranked - ranked.mean()) ** 2).mean())
    return 1 - float((np.diff(ranked) ** 2).mean()) / 2 / spread if spread > 0 else 0.0


def dates_in(x: Column) -> Column | None:
    """The column as times, or None where it does not look like dates."""
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
    if not is_number(y) or y.nunique() < 2 or x.nunique() < 2:
        return False
    known = y.notna().to_numpy()
    return abs(_correlation(x.to_numpy(float)[known], y.to_numpy(float)[known])) >= least


def nearly(x: Column, y: Column) -> bool:
    """Whether one number is a line of another, or has its order, with an R2 of 0.95."""
    if not (is_number(x) and is_number(y)) or "b" in (x.dtype.kind, y.dtype.kind):
        return False
    both = x.notna() & y.notna()
    if both.sum() < 30 or x[both].nunique() < 5 or y[both].nunique() < 5:
        return False
    a, b = (c[both].to_numpy(float) for c in (x, y))
    pairs = ((a, b), (_ranks(a), _ranks(b)))
    return any(_correlation(*pair) ** 2 >= NEAR for pair in pairs)


def nearly_label(x: Column, y: Column) -> bool:
    """Whether the parts of a feature (its labels, zero, tenths of its numbers) leave at most a
    tenth of the mistakes that the commonest answer makes."""
    both = x.notna() & y.notna()
    x, y = x[both], y[both]
    if len(x) < 60 or not 2 <= y.nunique() <= 20 or (is_number(y) and y.nunique() > 10):
        return False
    if is_number(x) and x.nunique() > 20:
        tenths: Any = pd.qcut(x.rank(method="first"), 10, labels=False)
        x = tenths.where(x != 0, -1)
    parts, labels = pd.factorize(x)[0], pd.factorize(y)[0]
    many = int(labels.max()) + 1
    counts = np.bincount(parts * many + labels, minlength=(int(parts.max()) + 1) * many)
    wrong = 1 - int(counts.reshape(-1, many).max(axis=1).sum()) / len(x)
    return wrong <= 0.1 * (1 - int(np.bincount(labels).max()) / len(x))


def owner_of(frame: Frame, name: str, owners: Sequence[str]) -> str:
    """A column of `owners` whose values go far towards this one, of several rows each: rows of one
    person or school on both sides of a split would give answers away. "" where there is none."""
    column = frame[name]
    amount = is_number(column) and column.nunique() > 10
    value = column.astype(float) if amount else column.eq(column.mode().iloc[0]).astype(float)
    y = value.to_numpy(float, na_value=np.nan)
    for owner in owners:
        if owner == name or not 20 < frame[owner].nunique() <= len(frame) / 3:
            continue
        codes = pd.factorize(frame[owner])[0]
        known = column.notna().to_numpy() & (codes >= 0)
        if known.sum() < 60:
            continue
        own, groups = y[known] - y[known].mean(), codes[known]
        sizes, sums = np.bincount(groups), np.bincount(groups, own)
        whole = float(own @ own)
        rest = whole - float((sums**2 / np.maximum(sizes, 1)).sum())
        free = len(own) - int((sizes > 0).sum())
        if whole > 0 and free > 0 and 1 - (rest / free) / (whole / (len(own) - 1)) >= OWNED:
            return owner
    return ""


def made_of(frame: Frame, target: str, features: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """(columns that together give the target, how), or ((), ""): a sum, difference, product or
    quotient of two numeric features, or a weighted sum of several."""
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
    found = _pair(block, y)
    if found is not None:
        return (*found, "their sum or difference")
    # zeros have no logarithm, and say nothing of a quotient: a few rows of them hide no product
    places = np.flatnonzero((block > 0).mean(axis=0) >= POSITIVE)
    rows = (block[:, places] > 0).all(axis=1) & (y > 0)
    if len(places) >= 2 and rows.sum() >= max(FEW, len(y) / 3):
        found = _pair(np.log(block[rows][:, places]), np.log(y[rows]))
        if found is not None:
            return int(places[found[0]]), int(places[found[1]]), "their product or quotient"
    return _relative(block, y)


def _relative(block: Array, y: Array) -> tuple[int, int, str] | None:
    """Two columns of which one is the relative change from the other to y, or y per unit of it: y
    by the one runs on a straight line with the other."""
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


def given_away(
    train: Frame, test: Frame, target: str, names: Sequence[str], limit: float = LIMIT
) -> dict[str, float]:
    """Column → score, for each column of which a function, read from the training rows, gives the
    target of the test rows (both frames hold the target): 99.5 % of labels, or R2 of 0.995."""
    found: dict[str, float] = {}
    for name in names:
        score = _from_one(train[name], train[target], test[name], test[target])
        if score >= limit:
            found[name] = round(score, 4)
    return found


def _from_one(x: Column, y: Column, asked: Column, truth: Column) -> float:
    """The score of the best function of x: a mapping, the nearest neighbour, a straight line."""
    known = (x.notna() & y.notna()).to_numpy()
    x, y = x[known], y[known]
    if len(x) < FEW or y.nunique() < 2 or truth.nunique(dropna=False) < 2:
        return 0.0
    if not is_number(x) and (times := dates_in(pd.concat([x, asked]))) is not None:
        x = times.iloc[: len(x)].astype("int64").astype(float)
        asked = times.iloc[len(x) :].astype("int64").astype(float)
    label = is_label(y)
    usual = y.mode().iloc[0] if label else y.mean()
    lookup: Any = _commonest(x, y) if label else y.groupby(x.to_numpy()).mean()
    answers: list[Any] = [asked.map(lookup).fillna(usual).to_numpy()]
    if is_number(x) and is_number(asked):
        order = np.argsort(x.to_numpy(float), kind="stable")
        a, b = x.to_numpy(float)[order], y.to_numpy()[order]
        q = asked.fillna(x.median()).to_numpy(float)
        right = np.clip(np.searchsorted(a, q), 1, len(a) - 1)
        near = np.where(q - a[right - 1] <= a[right] - q, right - 1, right)
        answers.append(b[near])
        if not label:
            slope, base = np.polyfit(a, b.astype(float), 1) if np.ptp(a) > 0 else (0.0, 0.0)
            answers.append(base + slope * q)
            answers.append(np.interp(q, *_steps(a, b.astype(float))))
    return max(_agree(truth, answer, label) for answer in answers)


def _commonest(x: Column, y: Column) -> Column:
    """Value of x → the commonest label there; of equally common ones the least."""
    groups, values = pd.factorize(x.to_numpy())
    labels, names = pd.factorize(y.to_numpy(), sort=True)
    pairs, counts = np.unique(groups * len(names) + labels, return_counts=True)
    group, label = np.divmod(pairs, len(names))
    order = np.lexsort((label, -counts, group))
    first = np.unique(group[order], return_index=True)[1]
    return pd.Series(names[label[order][first]], index=values)


def _steps(a: Array, b: Array) -> tuple[Array, Array]:
    """Different values of x with the mean of y there."""
    values, part = np.unique(a, return_inverse=True)
    return values, np.bincount(part, b) / np.bincount(part)


def _agree(truth: Column, answer: Array, label: bool) -> float:
    if label:
        return float((truth.map(str).to_numpy() == np.array([str(v) for v in answer])).mean())
    y, said = truth.to_numpy(float), np.asarray(answer, float)
    fine = np.isfinite(y) & np.isfinite(said)
    spread = float(((y[fine] - y[fine].mean()) ** 2).sum()) if fine.any() else 0.0
    if spread == 0.0:
        return 0.0
    return 1 - float(((y[fine] - said[fine]) ** 2).sum()) / spread


# --- what `assay audit` says of tasks over tables

Finding = dict[str, Any]


def tables_of(task: Task, root: Path) -> tuple[Frame, Frame]:
    """(training table, test table) that a solver sees."""
    found = {n.split("_")[0].split(".")[0]: root / p for n, p in sorted(task.files.items())}
    try:
        return read_table(found["train"]), read_table(found["val"])
    except (KeyError, OSError) as error:
        raise TaskError(f"task {task.id}: its train or val file is not there ({error})") from None


def told_by_one_column(gold: TableGold, train: Frame, test: Frame) -> list[str]:
    """Columns whose straight line, fitted on the training file, gives R2 ≥ 0.99 (spec 9.3)."""
    (target,) = gold.targets[:1]
    whole = test.merge(read_truth(gold.truth_csv), on=list(gold.key_columns))
    found: list[str] = []
    for name in test.columns:
        if name in gold.key_columns or name not in train or train[name].dtype.kind not in "iuf":
            continue
        known = train[[name, target]].dropna()
        if known[name].nunique() < 2 or whole[name].isna().any():
            continue
        slope, base = np.polyfit(known[name].to_numpy(float), known[target].to_numpy(float), 1)
        if (raw_r2(whole[target], slope * whole[name] + base) or 0.0) >= 0.99:
            found.append(str(name))
    return found


def leaks(task: Task, gold: TableGold, train: Frame, test: Frame) -> Finding:
    """Shares of the answer that the handed files hold, by kind of leak."""
    found: Finding = {}
    if gold.task_type == "time-CF":
        keys = list(gold.key_columns)
        if set(keys) <= set(train.columns):
            known = train[keys].astype(str).drop_duplicates()
            hits = len(test[keys].astype(str).merge(known, on=keys))
            if hits:
                found["asked rows in the training file"] = round(hits / len(test), 4)
    if gold.task_type == "time-XF" and (names := told_by_one_column(gold, train, test)):
        found["columns that tell the target"] = names
    if gold.task_type.endswith("-MM"):
        names = [c for c in test.columns if c in train.columns and c != "row_id"]
        seen = train[names].astype(str).drop_duplicates()
        hits = len(test[names].astype(str).merge(seen, on=names))
        if hits > 0.01 * len(test):
            found["test rows seen in training"] = round(hits / len(test), 4)
    return found


def audited(task: Task, root: Path) -> Finding:
    """One row of the report. Raises `TaskError` for files that are not there or gold that cannot be
    read."""
    gold = read_gold(task.gold)
    train, test = tables_of(task, root)
    truth = read_truth(gold.truth_csv)[list(gold.targets)]
    one_label = task.track.endswith("-IF") and bool((truth.nunique() < 2).all())
    return {"guessable": one_label, "leaks": leaks(task, gold, train, test)}


def audit_tables(
    tasks: Sequence[Task], roots: Sequence[Path]
) -> tuple[list[Finding], Finding, list[Broken]]:
    """(a row a task, counts by track and over all tasks, no broken laws). Raises `TaskError` for
    files that are not there."""
    pairs = list(zip(tasks, roots, strict=True))
    rows = [audited(task, root) for task, root in progress(pairs, "audit of tables", "tasks")]
    tracks: dict[str, Finding] = {}
    for track in sorted({task.track for task in tasks}):
        mine = [row for task, row in zip(tasks, rows, strict=True) if task.track == track]
        leaky, guessable = (sum(bool(r[name]) for r in mine) for name in ("leaks", "guessable"))
        tracks[track] = {"tasks": len(mine), "leaky": leaky, "guessable": guessable}
    twins = len(tasks) - len({str(task.gold.get("truth_csv")) for task in tasks})
    return rows, {"tasks": len(rows), "same_answers": twins, "tracks": tracks}, []
