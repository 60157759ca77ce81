# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What the user wants to be asked: targets, features, time column, kinds of tasks.

A column is COL where one table is given, TABLE:COL where there are several; TABLE is what the
build calls the table, with or without its folder. Everything is checked against the tables before
anything is built.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay.console import near_miss
from assay.task import TaskError
from data_gen.columns import look
from data_gen.dare.layout import Frame
from data_gen.dare.sources import Source
from data_gen.dare.time_columns import times_in
from data_gen.leaks import is_label, is_number

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
