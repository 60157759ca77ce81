# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a table is asked: which columns are targets, which stand beside them, and why others do not.

Tables of the two packages are asked what `packages.yaml` lists. Of a user's own table every column
may be a target that is a measure or a set of classes (`data_gen.columns`) and that no other column
gives (`data_gen.dare.leaks`); `--target` asks for any other. What the user wants is checked against
the tables before anything is built: a column is COL where one table is given, TABLE:COL where there
are several; TABLE is what the build calls the table, with or without its folder.
"""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import near_miss
from assay.errors import pandas as pd
from assay.tables.settings import Doubt
from assay.task import TaskError, derive_seed
from data_gen.certificate import Refusal, Refused
from data_gen.columns import Column, look, look_at, of_calendar, speaks_of, times_in, words_of
from data_gen.dare.layout import Frame
from data_gen.dare.leaks import (
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
from data_gen.dare.sources import Listed, Source
from data_gen.describe import About

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


# --- what the user wants to be asked

FAMILIES = {"class": ("IF", "MM"), "reg": ("IF", "MM"), "ts": ("XF", "CF")}
_NOTHING = ("constant", "text", "key", "name", "id", "lists")  # kinds that nobody can predict
_WORDS = {"class": "class", "reg": "reg", "series": "ts"}
_TRACKS = ("IF", "MM", "XF", "CF")


@dataclass(frozen=True)
class Wish:
    """What is wanted of one table; empty: the builder chooses."""

    targets: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    time: str = ""

    def named(self) -> tuple[str, ...]:
        return (*self.targets, *self.features, *((self.time,) if self.time else ()))


@dataclass(frozen=True)
class Wishes:
    """Wishes by table's name, and the kinds of tasks: family → variants."""

    tables: Mapping[str, Wish] = field(default_factory=dict[str, Wish])
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(FAMILIES))

    def of(self, name: str) -> Wish:
        return self.tables.get(name, Wish())

    def skips(self, name: str) -> bool:
        """Whether a table is left alone: targets are named, and none is in it."""
        wanted = any(wish.targets for wish in self.tables.values())
        return wanted and not self.of(name).targets

    def variants(self, family: str) -> tuple[str, ...]:
        return self.kinds.get(family, ())


def task_types(text: str) -> dict[str, tuple[str, ...]]:
    """`class,reg,series`, tracks, or both → family → variants. Raises `TaskError`."""
    words = [w.strip() for w in text.split(",") if w.strip()]
    known = [*_WORDS, *_TRACKS]
    for word in words:
        if word not in known:
            near = near_miss(word, known)
            raise TaskError(f"--task-types {word}: wanted {', '.join(known)}{near}")
    families = {_WORDS[w] for w in words if w in _WORDS} or set(FAMILIES)
    tracks = {w for w in words if w in _TRACKS} or set(_TRACKS)
    found = {
        f: tuple(v for v in own if v in tracks) for f, own in FAMILIES.items() if f in families
    }
    found = {f: own for f, own in found.items() if own}
    if not found:
        raise TaskError(
            f"--task-types {text}: class and reg have the tracks IF and MM, series has XF and CF"
        )
    return found


def table_named(word: str, sources: Sequence[Source]) -> list[Source]:
    """The tables that a word names: by slug, full name or title."""
    low = word.strip().lower()
    return [s for s in sources if low in (s.slug.lower(), s.name.lower(), s.title.lower())]


def _place(option: str, text: str, sources: Sequence[Source]) -> tuple[Source, str]:
    """The table and the rest of `TABLE:REST` or `REST`. Raises `TaskError`."""
    head, colon, rest = text.partition(":")
    hits = table_named(head, sources) if colon else []
    if len(hits) == 1:
        return hits[0], rest.strip()
    if not hits and len(sources) == 1:
        return sources[0], text.strip()
    names = [s.name for s in hits] or [s.slug for s in sources]
    raise TaskError(
        f"{option} {text}: {len(hits) or len(sources)} tables are "
        f"{f'called {head}' if hits else 'given'}, so write TABLE:COLUMN; the tables are "
        f"{_some(names, 5)}{near_miss(head, names) if colon and not hits else ''}"
    )


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


def read_wishes(
    targets: Sequence[str],
    features: Sequence[str],
    times: Sequence[str],
    kinds: str,
    sources: Sequence[Source],
) -> Wishes:
    """The wishes, checked against the tables. Raises `TaskError` in one sentence."""
    wishes = Wishes({}, task_types(kinds) if kinds else dict(FAMILIES))
    found: dict[str, Wish] = {}
    for text in targets:
        source, name = _place("--target", text, sources)
        wish = found.get(source.name, Wish())
        found[source.name] = replace(wish, targets=(*wish.targets, name))
    for text in features:
        source, rest = _place("--features", text, sources)
        names = tuple(n.strip() for n in next(csv.reader([rest], skipinitialspace=True), []))
        wish = found.get(source.name, Wish())
        found[source.name] = replace(wish, features=(*wish.features, *filter(None, names)))
    for text in times:
        source, name = _place("--time", text, sources)
        found[source.name] = replace(found.get(source.name, Wish()), time=name)
    by_name = {s.name: s for s in sources}
    for name, wish in found.items():
        _check(by_name[name], wish, wishes)
    return replace(wishes, tables=found)


def loaded(source: Source) -> Frame:
    """The table with its columns' names stripped. Raises `TaskError` for one that cannot be
    read."""
    try:
        frame = source.load()
    except Exception as error:  # a table may be anything
        raise TaskError(f"table {source.slug} cannot be read: {error}") from None
    return frame.set_axis([str(c).strip() for c in frame.columns], axis=1)


def require_columns(option: str, names: Sequence[str], source: Source, frame: Frame) -> None:
    """Raises `TaskError` for a name that is no column of the table, with the nearest ones."""
    columns = [str(c) for c in frame.columns]
    for name in names:
        if name not in columns:
            near = near_miss(name, {c.lower(): c for c in columns} | {c: c for c in columns})
            raise TaskError(
                f"{option} {name}: table {source.slug} has no such column{near}"
                f"{'' if near else f'; its columns: {_some(columns, 8)}'}"
            )


def _check(source: Source, wish: Wish, wishes: Wishes) -> None:
    frame = loaded(source)
    require_columns("--target", wish.targets, source, frame)
    require_columns("--features", wish.features, source, frame)
    require_columns("--time", [wish.time] if wish.time else [], source, frame)
    if wish.features and len(set(wish.features)) < 2:
        raise TaskError(f"--features {','.join(wish.features)}: give two features or more")
    for name in wish.targets:
        if name in wish.features or name == wish.time:
            raise TaskError(f"--target {name}: it cannot be a feature or the time as well")
        found = look(name, frame[name], source.columns.get(name, ""))
        if found.kind in _NOTHING:
            why = found.why or "a name in each row"
            raise TaskError(f"--target {name}: {why}; there is nothing to predict")
    if wish.time:
        if "ts" not in wishes.kinds:
            raise TaskError(f"--time {wish.time}: --task-types leaves no series to use it for")
        if times_in(wish.time, frame[wish.time], said=True) is None:
            first = next(iter(frame[wish.time].dropna().map(str)), "")
            raise TaskError(f"--time {wish.time}: its values are no times, such as {first!r}")
    if wish.targets and not families_of(frame, wish, wishes.kinds):
        kinds = ", ".join({"ts": "series"}.get(k, k) for k in wishes.kinds)
        raise TaskError(
            f"--target {', '.join(wish.targets)}: no task of {kinds} can ask for "
            f"{'these together' if len(wish.targets) > 1 else 'it'}: classes are 2 to 10 labels of "
            "4 rows or more, a quantity has more than 10 different numbers"
        )


def families_of(frame: Frame, wish: Wish, kinds: Collection[str]) -> list[str]:
    """The families that fit all wished targets: class for labels, reg and ts for quantities; a
    series has one target."""
    columns = [frame[t] for t in wish.targets]
    found: list[str] = []
    if all(map(is_label_target, columns)) and len({c.dtype.kind in "iuf" for c in columns}) == 1:
        found.append("class")
    if all(map(is_quantity, columns)):
        found += ["reg", "ts"] if len(columns) == 1 else ["reg"]
    return [f for f in found if f in kinds]


def is_label_target(column: Frame) -> bool:
    """Whether a wished target can be classified: 2 to 10 labels, each in 4 rows or more."""
    counts = column.value_counts()
    return 2 <= len(counts) <= 10 and is_label(column) and bool(counts.iloc[-1] >= 4)


def is_quantity(column: Frame) -> bool:
    """Whether a wished target can be regressed on: numbers, more than 10 different ones."""
    return is_number(column) and column.dtype.kind != "b" and bool(column.nunique() > 10)


# --- the settings of a build, and what became of a table


@dataclass(frozen=True)
class Settings:
    """Of a build."""

    out: Path
    seed: int
    mini: bool
    published: frozenset[str]  # column fingerprints of evaluation databases
    per_table: int = 2
    wishes: Wishes = field(default_factory=Wishes)
    described: Mapping[str, About] = field(default_factory=dict[str, About])
    licences: tuple[str, ...] = ()  # only tables of these; empty: of any


@dataclass
class Built:
    """What one table gave: rows of the question list, and why others were refused."""

    source: str
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    marks: frozenset[str] = frozenset()  # of its columns, to know copies by
    refused: list[Refusal] = field(default_factory=list[Refusal])
    doubts: list[Doubt] = field(default_factory=list[Doubt])
    licence: str = "unknown"
    proof: Counter[str] = field(default_factory=Counter[str])  # verdicts of the second computation

    def refuse(self, why: Refusal, inputs: Iterable[str] = ()) -> None:
        """Note why something was not used. `inputs`: what of the table it was about."""
        self.refused.append(replace(why, where=why.where or ", ".join(inputs)))
