# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Which column of a table is its time, which columns name the rows of one moment, and whether the
rows are the points of a series at all."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from assay.lazy import pandas as pd
from assay.tables.settings import Doubt
from data_gen.columns import is_running, look, speaks_of, words_of
from data_gen.dare.layout import Frame

REGULAR = 0.5  # share of the steps between times that are the usual one
NEAR = 0.1  # of the usual step: months and quarters differ by so much
_TIMES = ("calendar", "year", "clock", "date")  # kinds of columns that name no entity
TWICE = 0.1  # share of rows whose time has come before, up to which they are doubled stamps


@dataclass(frozen=True)
class Timed:
    """A table with a parsed time column `when` and the entity columns that make rows unique."""

    frame: Frame
    column: str
    form: str
    keys: list[str]


def find_time(frame: Frame) -> tuple[str, Any, str] | None:
    """(column, parsed times, strftime form): a date, text that is dates, or a column of years."""
    for name in map(str, frame.columns):
        if (found := times_in(name, frame[name])) is not None:
            return found
    return None


def times_in(name: str, column: Any, said: bool = False) -> tuple[str, Any, str] | None:
    """The column as times, as `find_time` gives it; `said`: somebody says that it is years."""
    if column.dtype.kind == "M":
        return name, column.dt.tz_localize(None), "%Y-%m-%d %H:%M:%S"
    if column.nunique() < 10 or column.isna().any():
        return None
    if column.dtype.kind in "iuf":
        whole = column.astype(float)
        years = said or speaks_of(words_of(name), "year")
        if years and whole.between(1500, 2100).all() and (whole == whole.round()).all():
            return name, pd.to_datetime(whole.astype(int).astype(str), format="%Y"), "%Y"
    elif column.dtype.kind != "b" and column.map(str).str.len().between(6, 25).all():
        digits = column.map(str).str.count(r"\d")
        if not digits.ge(4).all():
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times = pd.to_datetime(column, errors="coerce")
        if times.notna().all() and times.dt.year.between(1500, 2100).all():
            clock = (times.dt.normalize() != times).any()
            return name, times, "%Y-%m-%d %H:%M:%S" if clock else "%Y-%m-%d"
    return None


def entity_keys(frame: Frame, when: Any, words: list[str]) -> list[str] | None:
    """Columns that with the time name a row: none, one or two; None when nothing does."""
    if not when.duplicated().any():
        return []
    singles = [[w] for w in words]
    pairs = [[a, b] for i, a in enumerate(words) for b in words[i + 1 :]]
    for keys in [*singles, *pairs[:20]]:
        if not frame[keys].assign(_when=when).duplicated().any():
            return keys
    return None


def entity_columns(frame: Frame, time: str) -> list[str]:
    """Columns that could name an entity: few values a row, repeated over time. Names come before
    codes: people say the state, not its number."""
    found: list[str] = []
    for name in map(str, frame.columns):
        column = frame[name]
        count = column.nunique()
        whole = column.dtype.kind in "iu" or column.dtype.kind not in "f"
        fits = whole and column.notna().all() and 2 <= count <= len(frame) / 4
        if name != time and fits and look(name, column).kind not in _TIMES:
            found.append(name)
    return sorted(found, key=lambda c: frame[c].dtype.kind in "iuf")


def shifted(timed: Timed, target: str, name: str, most: int = 3) -> int:
    """By how many rows of its entity a column is the target moved, 0 if by none: yesterday's value
    beside today's tells, row by row, what is asked of the rows around it."""
    frame = timed.frame.sort_values([*timed.keys, "_when"], kind="stable")
    if frame[name].dtype.kind not in "iuf":
        return 0
    own = frame.groupby(timed.keys)[target] if timed.keys else frame[target]
    for step in (s for n in range(1, most + 1) for s in (n, -n)):
        moved = own.shift(step)
        both = moved.notna() & frame[name].notna()
        if both.sum() < 30:
            continue
        spread = float(moved[both].std())
        near = (frame[name][both] - moved[both]).abs() <= 1e-9 * max(spread, 1e-300)
        if near.mean() >= 0.98 and spread > 0:
            return step
    return 0


def is_regular(frame: Frame, when: Any, keys: list[str]) -> bool:
    """Whether the times of an entity go on in steps of one length, for half of the rows or more.
    Others are single events: charges, visits, purchases of machines."""
    ordered = frame[keys].assign(_when=when).sort_values([*keys, "_when"], kind="stable")
    ordered = ordered.drop_duplicates()
    times = ordered.groupby(keys)["_when"] if keys else ordered["_when"]
    gaps = times.diff().dt.total_seconds().dropna()
    usual = gaps.median()
    near = gaps.between((1 - NEAR) * usual, (1 + NEAR) * usual)
    return bool(len(gaps) and near.mean() >= REGULAR)


def are_things(frame: Frame, time: str) -> str:
    """A column of words in which each row has a name of its own: the rows are things, such as
    machines of a register, and no points of a series. "" where there is none."""
    for name in map(str, frame.columns):
        named = name != time and look(name, frame[name]).kind == "name"
        if named and times_in(name, frame[name]) is None:
            return name
    return ""


def doubled(frame: Frame, column: str, when: Any, keys: list[str]) -> Doubt | None:
    """The doubt of a series in which some times come twice."""
    names = [column, *keys]
    twice = frame[keys].assign(_when=when).duplicated()
    many = int(twice.sum())
    if not 0 < many <= TWICE * len(frame) or not is_regular(frame, when, keys):
        return None
    first = frame.loc[twice.idxmax(), column]
    said = f"{many} of {len(frame)} rows have a time that came before, the first of them {first!s}"
    return Doubt("duplicate_stamps", said, f"drop_duplicates: [{', '.join(names)}]")


def named(frame: Frame) -> Frame:
    """The columns with their names as text, each name once."""
    frame = frame.set_axis([str(c).strip() for c in frame.columns], axis=1)
    return frame.loc[:, ~frame.columns.duplicated()]


def without_counters(frame: Frame) -> Frame:
    """Columns by name once, without numbers of rows: they are no measurement. Years one after the
    other are the times of a series."""
    frame = named(frame).reset_index(drop=True)
    running = [n for n in frame.columns if is_running(frame[n])]
    return frame.drop(columns=[n for n in running if look(n, frame[n]).kind != "year"])


def is_one_series(frame: Frame) -> bool:
    """Whether the rows are the points of one series: times that never come twice, or seldom, evenly
    apart. A random split would put the neighbours of every asked row among the training rows."""
    frame = named(frame)
    if _is_calendar_run(frame) or any(_is_elapsed(n, frame[n]) for n in frame.columns):
        return True
    found = find_time(without_counters(frame))
    if found is None or not len(frame):
        return False
    name, when, _ = found
    if are_things(frame, name):
        return False
    return when.duplicated().mean() <= TWICE and is_regular(frame, when, [])


def _is_elapsed(name: str, column: Any) -> bool:
    """Whether a column counts the time since a start, row by row in steps of one length: seconds,
    or durations such as `0 days 00:00:01`."""
    if not speaks_of(words_of(name), "clock") or column.dtype.kind == "b" or column.isna().any():
        return False
    since = column
    if column.dtype.kind not in "iuf":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            since = pd.to_timedelta(column.map(str), errors="coerce").dt.total_seconds()
    gaps = since.diff().iloc[1:]
    if since.isna().any() or not len(gaps) or not bool((gaps >= 0).all() and gaps.median() > 0):
        return False
    return bool(gaps.between((1 - NEAR) * gaps.median(), (1 + NEAR) * gaps.median()).mean() >= 0.9)


def _is_calendar_run(frame: Frame) -> bool:
    """Whether a year, month or day in columns of their own rise together row by row: the days of a
    table without a date."""
    parts = [
        str(c)
        for c in frame.columns
        if frame[c].dtype.kind in "iuf" and look(str(c), frame[c]).kind in ("year", "calendar")
    ]
    for i, one in enumerate(parts):
        keys = parts[i : i + 3]
        if len(keys) < 2 or frame[keys].isna().any().any() or frame.duplicated(keys).any():
            continue
        ranks = frame[keys].apply(tuple, axis=1)
        if ranks.is_monotonic_increasing or ranks.is_monotonic_decreasing:
            return bool(frame[one].nunique() > 1)
    return False


def keys_of(frame: Frame) -> list[str]:
    """Columns that together with a time name the rows of a panel (a state, a disease); none where
    the table is none. Nobody predicts what a row is of."""
    plain = without_counters(frame)
    found = find_time(plain)
    if found is None:
        return []
    names = [c for c in entity_columns(plain, found[0]) if plain[c].dtype.kind not in "iufM"]
    return entity_keys(plain, found[1], names) or []
