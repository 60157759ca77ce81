# pandas ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false
"""Which features make no sense beside a target: what came later, what is computed with it, and what
nearly gives it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.leaks import is_number
from data_gen.dare.outcomes import split
from data_gen.dare.sense import GUESSED, dated, kin, mentions, year_of

Column = Any  # a pandas Series

NEAR = 0.95  # R2 from which on a feature is nearly the target itself

_STATISTIC = re.compile(
    r"\b(avg|average|mean|median|min|max|minimum|maximum|low|high|lowest|highest|total|sum|sd|"
    r"std)\b",
    re.I,
)
_WHOLE = re.compile(r"\b(overall|total|final|cumulative|average|avg|mean|tot)\b", re.I)
_CHANGES = re.compile(
    r"\b(growth|change|increase|decrease|reduction|gain|difference|diff)|growth$|change$", re.I
)
_EVENT = re.compile(
    r"\b(death|died|dead|dies|die|alive|surviv\w*|status|event|relapse\w*|fail\w*|censor\w*)\b",
    re.I,
)
_UNTIL = re.compile(
    r"\b(until|till|to) (the )?(death|event|censor|failure|relapse|last (contact|visit|known))"
    r"|follow[- ]?up|\bfu ?time\b|\bsurvival times?\b|\b(days|months|years|time) survived\b",
    re.I,
)
# R2 from which on all numbers together give a target: of packages with hundreds of tables, in which
# it is a sum of its parts more often than not, and of tables that somebody chose
OF_MANY, OF_FEW = 0.94, 0.99
_COMMON = frozenset(
    [
        "number",
        "with",
        "from",
        "that",
        "this",
        "year",
        "years",
        "numeric",
        "vector",
        "each",
        "were",
        "percent",
        "percentage",
        "rate",
        "average",
        "state",
        "country",
        "county",
        "factor",
        "indicator",
    ]
)


def beside_none(
    frame: Frame, target: str, features: Sequence[str], texts: Mapping[str, str]
) -> dict[str, str]:
    """Feature → why it makes no sense beside a target: it comes later, is computed with it, is part
    of it by name, or is nearly the same quantity."""
    found: dict[str, str] = {}
    names = [target, *features]
    changes = bool(_CHANGES.search(f"{split(target)} {texts.get(target, '')[:90]}"))
    dates = any(kin(name, names) for name in names)
    own = year_of(target, texts.get(target, ""), names) or (dated(target)[1] if dates else 0)
    for name in features:
        text = texts.get(name, "")
        year = year_of(name, text, names) or (dated(name)[1] if dates else 0)
        if own and year > own:
            found[name] = "it is from later"
        elif mentions(text, target) or mentions(texts.get(target, ""), name):
            found[name] = "one is computed from the other, by what is said of it"
        elif _within(target, name) or _within(name, target):
            found[name] = "its name holds the target's, or the other way round"
        elif GUESSED.search(split(name)):
            found[name] = "somebody computed it"
        elif _stem(name) == _stem(target) or _summary(name, text, target, texts.get(target, "")):
            found[name] = "another statistic of the same quantity"
        elif changes and any(dated(n)[1] < dated(name)[1] for n in kin(name, names)):
            found[name] = "with its earlier value it gives the change that is asked for"
        elif _same_whole(text, texts.get(target, "")):
            found[name] = "by what is said of them, one is a part of the other or of the same whole"
        elif frame[target].nunique() <= 3 and _until(name, text, target, texts.get(target, "")):
            found[name] = "it says when what is asked for happened"
        elif nearly(frame[name], frame[target]) or nearly_label(frame[name], frame[target]):
            found[name] = "it nearly gives the target"
        elif _compares(frame, name, target, features):
            found[name] = "it says how the target compares with another feature"
    return found


def _stem(name: str) -> str:
    """A name without the words for a statistic: `humidity` of `avg_humidity`; its own name for one
    that has none, so that it is nobody's stem."""
    plain = " ".join(_STATISTIC.sub(" ", split(name)).split()).lower()
    return plain if plain and plain != split(name).lower() else f"={name}"


def _summary(name: str, text: str, target: str, said: str) -> bool:
    """Whether a feature sums up what the target is a part of: an overall grade beside an exam's."""
    whole, part = f"{split(name)} {text[:90]}", f"{split(target)} {said[:90]}"
    if not _WHOLE.search(whole) or _WHOLE.search(part):
        return False
    words = [set(re.findall(r"[a-z]{4,}", t.lower())) - {"total", "mean"} for t in (whole, part)]
    return bool({w for w in words[0] & words[1] if w not in _COMMON})


def _same_whole(one: str, other: str) -> bool:
    """Whether of two descriptions one holds the other (`total income`, `wife's total income`), or
    both are shares that begin alike (`percent of voters for A`, `percent of voters for B`)."""
    short, long = sorted((" ".join(t.lower().strip(" .").split()) for t in (one, other)), key=len)
    if len(short.split()) >= 2 and re.search(rf"\b{re.escape(short)}\b", long):
        return True
    pairs = zip(short, long, strict=False)
    alike = list(takewhile(lambda pair: pair[0] == pair[1], pairs))
    share = r"percent|%|share|proportion|fraction"
    return len(alike) >= 12 and bool(re.search(share, short)) and bool(re.search(share, long))


def _within(part: str, whole: str) -> bool:
    """Whether a name of four letters or more is a part of another: `wage` of `lwage`."""
    plain, longer = (re.sub(r"[^a-z0-9]", "", n.lower()) for n in (part, whole))
    return len(plain) >= 4 and plain in longer


def _until(name: str, text: str, target: str, said: str) -> bool:
    """Whether a feature is the time until the event that is the target, or until it was looked
    for."""
    event = _EVENT.search(f"{split(target)} {said[:90]}")
    return bool(event and _UNTIL.search(f"{split(name)} {text[:120]}"))


def nearly(x: Column, y: Column) -> bool:
    """Whether one number is a line of another, or has its order, with an R2 of 0.95."""
    from scipy.stats import rankdata

    if not (is_number(x) and is_number(y)) or "b" in (x.dtype.kind, y.dtype.kind):
        return False
    both = x.notna() & y.notna()
    if both.sum() < 30 or x[both].nunique() < 5 or y[both].nunique() < 5:
        return False
    a, b = (c[both].to_numpy(float) for c in (x, y))
    return _tied(a, b) or _tied(rankdata(a), rankdata(b))


def _tied(a: Any, b: Any) -> bool:
    import numpy as np

    a, b = a - a.mean(), b - b.mean()
    with np.errstate(all="ignore"):
        return bool((a @ b) ** 2 / ((a @ a) * (b @ b)) >= NEAR)


def nearly_label(x: Column, y: Column) -> bool:
    """Whether the parts of a feature (its labels, zero, tenths of its numbers) leave at most a
    tenth of the mistakes that the commonest answer makes."""
    import numpy as np
    import pandas as pd

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


def _compares(frame: Frame, name: str, target: str, features: Sequence[str]) -> bool:
    """Whether a yes-or-no feature says if the target is above another number: who won, by the
    score that is asked for and the other score."""
    import numpy as np

    if frame[name].nunique() != 2 or not is_number(frame[target]) or frame[target].nunique() < 5:
        return False
    yes = (frame[name] == frame[name].dropna().iloc[0]).to_numpy()
    there = (frame[name].notna() & frame[target].notna()).to_numpy()
    asked = frame[target].to_numpy(dtype=float, na_value=np.nan)
    for other in features:
        if other == name or not is_number(frame[other]):
            continue
        values = frame[other].to_numpy(dtype=float, na_value=np.nan)
        known = there & ~np.isnan(values)
        above, said = (asked > values)[known], yes[known]
        if len(said) < 60 or not 0.02 < above.mean() < 0.98 or not 0 < said.mean() < 1:
            continue
        wrong = min((above & said).sum(), (above & ~said).sum())
        wrong += min((~above & said).sum(), (~above & ~said).sum())
        usual = min(said.mean(), 1 - said.mean()) * len(said)
        if wrong <= 0.1 * usual and frame[other].nunique() >= 5:
            return True
    return False


def two_give(frame: Frame, target: str, features: Sequence[str], near: float = OF_FEW) -> str:
    """Two numbers whose weighted sum is the target with an R2 of 0.99, or whose product or quotient
    is with one of 0.97, in words; "" where there are none: lean mass by weight and fat. Or that all
    numbers together give it, with an R2 of `near` either way: a part of an index, by the index and
    its other parts."""
    import numpy as np

    names = [f for f in features if is_number(frame[f]) and frame[f].nunique() > 2][:40]
    if not is_number(frame[target]) or len(names) < 2:
        return ""
    rows = frame.loc[frame[target].notna(), [*names, target]].astype(float)
    known = rows.dropna()
    whole = len(known) >= max(60, len(rows) / 2)
    known = known if whole else rows  # with many gaps each pair of columns has rows of its own
    if len(known) < 60 or known[target].nunique() < 5:
        return ""
    for log, enough in ((False, 0.99), (True, 0.97)):
        part = known.loc[:, ~(known <= 0).any()] if log else known
        if target not in part or part.shape[1] < 3:
            continue
        with np.errstate(all="ignore"):
            scaled = np.log(part) if log else part
            found = (
                np.corrcoef(scaled.to_numpy(), rowvar=False)
                if whole
                else scaled.corr(min_periods=60).to_numpy()
            )
        own, apart = found[-1, :-1], found[:-1, :-1]
        for i, one in enumerate(part.columns[:-1]):
            for j in range(i + 1, part.shape[1] - 1):
                free = 1 - apart[i, j] ** 2
                both = own[i] ** 2 + own[j] ** 2 - 2 * own[i] * own[j] * apart[i, j]
                if free > 1e-6 and both / free >= enough:
                    way = "product" if log else "weighted sum"
                    return f"{one} and {part.columns[j]} give it (nearly a {way} of them)"
        if whole and _all_give(found, len(part), min(near, enough)):
            way = "product" if log else "weighted sum"
            return f"the other numbers together give it (nearly a {way} of them)"
    return ""


def _all_give(correlated: Any, rows: int, enough: float) -> bool:
    """Whether all numbers together give the last one with an R2 of `enough`, by their correlations
    (P, P), where there are rows enough to say so."""
    import numpy as np

    known = np.nan_to_num(correlated)  # what never varies goes with nothing
    own, apart = known[-1, :-1], known[:-1, :-1]
    if rows < 5 * len(own) + 30:
        return False
    return float(own @ np.linalg.lstsq(apart, own, rcond=1e-9)[0]) >= enough
