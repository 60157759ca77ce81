# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a table is asked: which columns are targets, which stand beside them, and why others do not.

Tables of the two packages are asked what `packages.yaml` lists. Of a user's own table every column
may be a target that is a measure or a set of classes (`data_gen.columns`) and that no other column
gives (`data_gen.leaks`); `--target` asks for any other.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.seeds import derive_seed
from data_gen.columns import Column, look_at, of_calendar, speaks_of, words_of
from data_gen.dare.layout import Frame
from data_gen.dare.sources import Listed
from data_gen.dare.wishes import Wish, families_of
from data_gen.leaks import (
    is_label,
    is_number,
    made_of,
    nearly,
    nearly_label,
    owner_of,
    shared_in_group,
    tells,
    two_labels,
)
from data_gen.tally import Refusal, Refused

MAX_ROWS = 4000
LEAST_ROWS = 120
LEAST_COLUMNS = 4
GAPS = 0.4  # share of a column's values that may be missing
CLASSES = 10  # of a target, at most
CATEGORIES = (20, 40)  # of a feature in words: how many, and characters of each, at most
SEVERAL = 0.2  # share of plans with two or three targets, as in the published tasks
MOST_ONE = 0.95  # of the rows with one value: what is said of such a feature may be chance
_UNUSED = ("id", "code", "name", "key", "text", "constant", "empty", "lists", "date", "weight")


@dataclass(frozen=True)
class Looked:
    """A cleaned table: `kinds` says numerical or categorical for every column that stays, `sense`
    what each column of the whole table is, `owned` which column's rows tell one another of it,
    `lost` why a column is in no task."""

    frame: Frame
    kinds: dict[str, str]
    sense: Mapping[str, Column] = field(default_factory=dict[str, Column])
    owned: Mapping[str, str] = field(default_factory=dict[str, str])
    lost: Mapping[str, str] = field(default_factory=dict[str, str])

    def features(self, without: Collection[str]) -> list[str]:
        return [c for c in self.frame.columns if c not in without]


@dataclass(frozen=True)
class Plan:
    """One database to try: a family, its targets, and columns that are no features beside them."""

    family: str
    targets: tuple[str, ...]
    without: frozenset[str] = frozenset()


def clean(
    frame: Frame,
    seed: int,
    texts: Mapping[str, str] | None = None,
    wanted: Collection[str] = (),
    listed: bool = False,
) -> Looked | None:
    """The columns that can be used, categories as text and numbers as numbers; None where too
    little is left. `texts`: what the source says of columns; `wanted` ones stay whatever they are,
    and of a table that is `listed` all that can."""
    import pandas as pd

    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    whole = frame.loc[:, ~frame.columns.duplicated()].copy()
    sense = look_at(whole, texts)
    rows = whole
    if len(whole) > MAX_ROWS:
        rows = whole.sample(MAX_ROWS, random_state=seed % (1 << 32)).sort_index()
    kinds: dict[str, str] = {}
    lost: dict[str, str] = {}
    out: dict[str, Any] = {}
    for name in rows.columns:
        free = listed or name in wanted
        if not free and sense[name].kind in _UNUSED:
            lost[name] = sense[name].why or "a name in each row"
        elif "`" in name or "\n" in name or not name:
            lost[name] = "a name that cannot stand in a question"
        else:
            kind, values = _usable(rows[name])
            if kind:
                out[name], kinds[name] = values, kind
            else:
                lost[name] = values
    if len(out) < LEAST_COLUMNS:
        return None
    tidy = pd.DataFrame(out).drop_duplicates().reset_index(drop=True)
    if len(tidy) < LEAST_ROWS:
        return None
    owned = {} if listed else {n: by for n in out if (by := owner_of(whole, n, _owners(sense)))}
    return Looked(tidy, kinds, sense, owned, lost)


def _usable(column: Any) -> tuple[str, Any]:
    """(numerical, categorical or nothing; the values, or why nothing)."""
    import numpy as np

    if (gaps := float(column.isna().mean())) > GAPS:
        return "", f"{gaps:.0%} of its values are missing"
    if column.dtype.kind in "iuf":
        values = column.astype(float).replace([np.inf, -np.inf], np.nan)
        if values.isna().mean() > GAPS or values.nunique() < 2 or values.abs().max() > 1e12:
            return "", "one value, infinite ones, or one beyond 1e12"
        exact = bool((values.dropna() == values.dropna().round()).all())
        return "numerical", values.astype("int64") if exact and not values.isna().any() else values
    if column.dtype.kind == "M":
        return "", "a date"
    words = column.astype(object).where(column.notna(), None)
    words = words.map(lambda v: None if v is None else " ".join(str(v).split()) or None)
    if 2 <= words.nunique() <= CATEGORIES[0] and words.dropna().map(len).max() <= CATEGORIES[1]:
        return "categorical", words
    most, longest = CATEGORIES
    return (
        "",
        f"{words.nunique()} different texts; wanted 2 to {most}, of {longest} characters each",
    )


def _owners(sense: Mapping[str, Column]) -> list[str]:
    """Columns that may name what several rows are of: a person, a school."""
    return [
        n for n, c in sense.items() if c.kind in ("id", "key", "person", "thing", "group", "code")
    ]


def refusals(looked: Looked) -> dict[str, Refusal | None]:
    """Column of the whole table → why it is no target, None where it may be one."""
    return {name: _refusal(looked, column) for name, column in looked.sense.items()}


def _refusal(looked: Looked, column: Column) -> Refusal | None:
    name = column.name
    if name not in looked.kinds:
        return Refusal(column.kind, looked.lost[name], name)
    words, values = words_of(name), looked.frame[name]
    if column.kind not in ("measure", "group", "flag", "label", "scale"):
        return Refusal(column.kind, column.why or "a name", name)
    if speaks_of(words, "who") or (column.kind == "group" and speaks_of(words, "thing")):
        return Refusal("who", "it says who or what a row is of; --target asks for it", name)
    if speaks_of(words, "design"):
        return Refusal("design", "a part of a design, not an outcome; --target asks for it", name)
    if column.kind == "group" and of_calendar(values.dropna().unique()):
        return Refusal("calendar", "a part of a date", name)
    why = number_unfit(values) if column.kind == "measure" else class_unfit(values, column)
    if why:
        return Refusal("unfit", why, name)
    if by := looked.owned.get(name, ""):
        said = f"rows with the same {by!r} tell one another of it: no random split is fair"
        return Refusal("owned", said, name)
    return None


def class_unfit(values: Any, column: Column) -> str:
    """Why a column makes no classes: 2 to 10 labels, the commonest two with 20 rows or more, none
    with fewer than 4, none above 85 %. Whole numbers of few values are labels where there are two,
    or where the name says so."""
    counts = values.value_counts()
    if column.kind == "scale" and len(counts) > 2:
        return f"{column.why}; --target asks for them as classes"
    if not 2 <= len(counts) <= CLASSES:
        return f"{len(counts)} classes; wanted 2 to {CLASSES}"
    if counts.iloc[1] < 20 or counts.iloc[-1] < 4:
        return "a class has too few rows"
    if counts.iloc[0] > 0.85 * len(values):
        return "one class has more than 85 % of the rows"
    return ""


def number_unfit(values: Any) -> str:
    """Why a column is no quantity to regress on: 30 values or more, a tenth of the rows, and no
    value that most rows have."""
    counts = values.value_counts()
    if len(counts) < 30 or len(counts) < 0.1 * len(values):
        return f"too few different values for a quantity: {len(counts)}"
    if counts.iloc[0] > 0.6 * len(values):
        return "more than 60 % of the rows have the same value"
    return ""


def plans(
    looked: Looked,
    wish: Wish,
    kinds: Collection[str],
    seed: int,
    listed: Sequence[Listed] = (),
    several: bool = True,
) -> tuple[list[Plan], list[Refusal]]:
    """(what to try, families in turn; why columns are no targets). `kinds`: the families that are
    asked for; `listed`: what is asked of a table of a package; `several`: some have more targets
    than one."""
    families = [f for f in ("class", "reg") if f in kinds]
    if wish.targets:
        found = families_of(looked.frame, wish, kinds)
        return [Plan(f, wish.targets) for f in found if f in families], []
    rng = random.Random(derive_seed(seed, "plans"))
    refused: list[Refusal] = []
    fit: dict[str, list[Plan]] = {family: [] for family in families}
    if listed:
        for one in (a for a in listed if a.kind in fit and a.target in looked.kinds):
            fit[one.kind].append(Plan(one.kind, (one.target,), one.without))
    else:
        for name, why in refusals(looked).items():
            family = "reg" if looked.sense[name].kind == "measure" else "class"
            if why is not None:
                refused.append(why)
            elif family in fit and name not in (*wish.features, wish.time):
                fit[family].append(Plan(family, (name,)))
    turns: list[tuple[bool, int, Plan]] = []
    for options in fit.values():
        rng.shuffle(options)
        options.sort(key=_not_named)
        for i, plan in enumerate(options):
            more = _several(looked, plan, options, rng)
            turns.append((_not_named(plan), i, more if several else plan))
    order = [plan for *_, plan in sorted(turns, key=lambda t: t[:2])]
    alone = [Plan(p.family, p.targets[:1], p.without) for p in order if len(p.targets) > 1]
    return [*order, *alone], refused


def _not_named(plan: Plan) -> bool:
    """Whether the name of a target does not say that it is asked for (`class`, `y`, `outcome`)."""
    return not speaks_of([plan.targets[0].strip().lower()], "asked")


def _several(looked: Looked, plan: Plan, options: list[Plan], rng: random.Random) -> Plan:
    """The plan, or, for some, with one or two more targets of its kind."""
    first = plan.targets[0]
    alike = [
        p
        for p in options
        if p is not plan
        and looked.kinds[p.targets[0]] == looked.kinds[first]
        and p.targets[0] not in plan.without
        and first not in p.without
    ]
    if rng.random() >= SEVERAL or not alike or len(looked.kinds) < 5:
        return plan
    more = min(len(alike), 1 if rng.random() < 0.7 else 2, len(looked.kinds) - 3)
    chosen = rng.sample(alike, more)
    without = plan.without.union(*(p.without for p in chosen))
    return Plan(plan.family, (first, *(p.targets[0] for p in chosen)), without)


@dataclass(frozen=True)
class Verdict:
    """What stands in the way of asking for a target: `why` not at all, and `left_out`, the features
    that give it away, each with the way it does."""

    why: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


def narrowed(looked: Looked, plan: Plan, wish: Wish, listed: bool) -> Looked:
    """The table without the features that give a target away. Raises `Refused` where the target is
    refused or too little is left. Of a `listed` table also without those that the list names."""
    targets = list(plan.targets)
    features = list(wish.features) or [f for f in looked.features(targets) if f not in plan.without]
    gone: dict[str, str] = {}
    for target in targets:
        verdict = judge(looked.frame, target, features, bool(wish.targets))
        if verdict.why:
            raise Refused("draft", verdict.why)
        gone |= verdict.left_out
        if not wish.targets and not listed:
            gone |= near_ones(looked.frame, target, [f for f in features if f not in gone])
        others = [t for t in targets if t != target]
        told = judge(looked.frame, target, others, True).left_out
        if told := told or near_ones(looked.frame, target, others):
            raise Refused("draft", f"{next(iter(told))}, another target, gives it")
        made, how = made_of(looked.frame, target, [*others, *features]) if others else ((), "")
        if set(made) & set(others):
            raise Refused("draft", f"{' and '.join(made[:4])} give it ({how})")
    if wish.features and gone:
        raise Refused("draft", told_by(gone))
    keep = [c for c in looked.frame.columns if c in targets or (c in features and c not in gone)]
    if len(keep) < len(targets) + 2:
        raise Refused("draft", "fewer than two features are left")
    return Looked(looked.frame[keep], {c: looked.kinds[c] for c in keep}, looked.sense)


def told_by(left_out: Mapping[str, str]) -> str:
    """What is said where a feature that the user wants gives a target away."""
    name, how = next(iter(left_out.items()))
    return f"feature {name} gives the target away ({how}); leave it out of --features"


def near_ones(frame: Frame, target: str, features: Sequence[str]) -> dict[str, str]:
    """Features that nearly give a target: left out, though they are no exact leak."""
    y, why = frame[target], "it nearly gives the target"
    return {f: why for f in features if nearly(frame[f], y) or nearly_label(frame[f], y)}


def judge(frame: Frame, target: str, features: Sequence[str], wished: bool = False) -> Verdict:
    """Whether a target may be asked for with these features, and which must be left out.

    Of columns that give each other, the derived one (`derived_one`) is refused as a target and left
    out of the features of the others. A target that the user wants (`wished`) is never refused:
    everything that gives it is left out.
    """
    order = [str(c) for c in frame.columns]
    y = frame[target]
    left: dict[str, str] = {}
    for name in features:
        if how := tells(frame[name], y):
            back = tells(y, frame[name])
            if not wished and is_number(y) and not is_number(frame[name]):
                return Verdict(f"{name} alone gives it ({how})")  # an attribute of what x names
            if not wished and (not back or derived_one((name, target), order) == target):
                return Verdict(f"{name} alone gives it ({how})")
            left[name] = how
    rest = [f for f in features if f not in left]
    if is_label(y) and not wished and (pair := two_labels(frame, target, rest)):
        return Verdict(f"{' and '.join(pair)} give it (equal values of them have equal labels)")
    if not wished and (pair := shared_in_group(frame, target, rest)):
        return Verdict(f"{' and '.join(pair)} give it (they name groups of rows that share it)")
    coarser = [f for f in rest if _coarser(frame[f], y)]
    left |= dict.fromkeys(coarser, "it is a coarser form of the target")
    rest = [f for f in rest if f not in left]
    while True:
        made, how = made_of(frame, target, rest)
        if not made:
            return Verdict("", left)
        said = f"{' and '.join(made[:4])}{' …' if len(made) > 4 else ''}"
        odd = derived_one((*made, target), order)
        if not wished and (odd == target or is_label(y)):
            return Verdict(f"{said} give it ({how})")
        gone = made if wished else (odd,)
        left |= {name: f"with others it gives the target ({how})" for name in gone}
        rest = [f for f in rest if f not in gone]


def derived_one(names: Sequence[str], order: Sequence[str]) -> str:
    """Which of columns that give each other was made from the rest: the one whose name says so
    (`log_wage`, `total`), else the last of the table."""
    said = [n for n in names if speaks_of(words_of(n), "derived")]
    return max(said or names, key=list(order).index)


def _coarser(x: Any, y: Any) -> bool:
    """Whether a feature of few values is a function of the target: a grouping of its classes, or of
    its numbers, says much of it, though not all."""
    if not is_label(x) or x.value_counts(normalize=True).iloc[:1].sum() > MOST_ONE:
        return False
    return bool(tells(y, x))
