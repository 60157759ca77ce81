# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Resampling of a series as the published tasks do it: a rule, an aggregate, entity by entity.

A bin is named by its start; a week, which ends on Sunday, and a month by their last day, as pandas
names them. Bins without rows have no mean and no sum, and count 0.
"""

from __future__ import annotations

import random
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.time_columns import Timed

HOWS = ("mean", "sum", "count")
LEAST = 40  # bins that are worth forecasting from
_PANDAS = {"1min": "1min", "30min": "30min", "1H": "1h", "1D": "1D", "1W": "1W", "1M": "1ME"}
_FITS = (  # a series with a row every so many seconds at most → its rules
    (20, ("1min",)),
    (600, ("30min", "1H")),
    (6 * 3600, ("1D",)),
    (2 * 86400, ("1W", "1M")),
    (10 * 86400, ("1M",)),
)
Resample = tuple[str, str]


def choose(timed: Timed, rng: random.Random) -> Resample | None:
    """A rule and an aggregate that fit a series, for some of those that any fits."""
    if timed.form == "%Y" or rng.random() >= 0.5:
        return None
    rules, hows = fitting(timed)
    return (rng.choice(rules), rng.choice(hows)) if rules else None


def fitting(timed: Timed) -> tuple[list[str], tuple[str, ...]]:
    """(the rules, the aggregates) that fit a series; no rules where none does."""
    gaps = _gaps(timed)
    if timed.form == "%Y" or not len(gaps):
        return [], HOWS
    step = float(gaps.median())
    rules = next((rules for most, rules in _FITS if step <= most), ())
    uneven = bool(gaps.std() > 0.5 * gaps.mean())
    return [r for r in rules if _many(timed, r)], HOWS if uneven else HOWS[:2]


def _gaps(timed: Timed) -> Any:
    """Seconds between one time of an entity and the next."""
    frame = timed.frame.sort_values([*timed.keys, "_when"], kind="stable")
    times = frame.groupby(timed.keys)["_when"] if timed.keys else frame["_when"]
    return times.diff().dt.total_seconds().dropna()


def _many(timed: Timed, rule: str) -> bool:
    """Whether an entity has enough bins, and far fewer of them than rows."""
    span = timed.frame["_when"].max() - timed.frame["_when"].min()
    entities = len(timed.frame[timed.keys].drop_duplicates()) if timed.keys else 1
    bins = span / _length(rule)
    return bins >= LEAST and len(timed.frame) / entities >= 2.5 * bins


def _length(rule: str) -> Any:
    import pandas as pd

    return pd.Timedelta(days=30) if rule == "1M" else pd.Timedelta(_PANDAS[rule])


def binned(timed: Timed, target: str, resample: Resample) -> Frame:
    """Every bin that has a value: the keys, `_bin` (its name), `_start`, `_end`, the target."""
    import pandas as pd

    rule, how = resample
    frame = timed.frame
    grouped = frame.groupby(timed.keys, sort=True) if timed.keys else [((), frame)]
    parts: list[Any] = []
    for names, part in grouped:
        values = part.set_index("_when")[target].resample(_PANDAS[rule])
        found = values.sum(min_count=1) if how == "sum" else values.agg(how)
        rows = found.dropna().rename(target).rename_axis("_bin").reset_index()
        parts.append(rows.assign(**dict(zip(timed.keys, names, strict=True))))
    whole = pd.concat(parts, ignore_index=True)
    whole["_start"] = _start(whole["_bin"], rule)
    over = pd.offsets.MonthBegin(1) if rule == "1M" else pd.Timedelta(_PANDAS[rule])
    whole["_end"] = whole["_start"] + over
    return whole


def _start(labels: Any, rule: str) -> Any:
    import pandas as pd

    if rule == "1W":
        return labels - pd.Timedelta(days=6)
    return labels.dt.to_period("M").dt.start_time if rule == "1M" else labels


def until(timed: Timed) -> Any:
    """The moment up to which the series is whole: one usual step after its last time."""
    import pandas as pd

    last = timed.frame["_when"].max()
    return last + pd.Timedelta(seconds=float(_gaps(timed).median()))


def named(rule: str) -> str:
    """How a bin is named, in words."""
    if rule == "1W":
        return "A week runs from Monday to Sunday and is named by its Sunday."
    if rule == "1M":
        return "A month is a calendar month and is named by its last day."
    return "An interval is named by the moment at which it begins."
