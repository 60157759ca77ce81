# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a series is asked: quantities that neither its keys nor one other column give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from data_gen.dare.beside import beside_none
from data_gen.dare.database import texts_of
from data_gen.dare.layout import Frame
from data_gen.dare.leaks import is_number, tells_within, told_by_key
from data_gen.dare.outcomes import OUTCOME, TOO_LITTLE, best, outcomes_beside
from data_gen.dare.sense import misplaced
from data_gen.dare.sources import Source
from data_gen.dare.targets import is_background, is_calendar, is_identifier, judge, unfit
from data_gen.dare.time_columns import Timed
from data_gen.dare.wishes import Wish

Column = Any  # a pandas Series

_TIME = re.compile(r"(^|[._ ])(time|hour|date|minute)s?$", re.I)
_LEVEL = re.compile(
    r"temp|rate|price|index|score|percent|pct|ratio|level|avg|mean|humid|pressure", re.I
)


def series_targets(
    timed: Timed, source: Source, wish: Wish, less_sure: bool = False
) -> tuple[list[str], list[str]]:
    """(columns that may be forecast, why others may not). A wished target is refused only when the
    keys of a row give it. `less_sure`: of a package also columns that little speaks for."""
    frame, texts = timed.frame, texts_of(source, [str(c) for c in timed.frame.columns])
    odd = {} if wish.targets else misplaced(frame.drop(columns="_when"), texts, series=True)
    found: list[str] = []
    refused: list[str] = []
    for name in wish.targets or [str(c) for c in frame.columns]:
        if name in ("_when", timed.column, *timed.keys) or name not in frame:
            continue
        column = frame[name]
        if column.dtype.kind not in "if" or column.nunique() < 30 or column.isna().any():
            if wish.targets:
                refused.append(f"series {name}: not a number in every row with 30 different values")
            continue
        why = "" if wish.targets else unfit(name, column, texts.get(name, ""))
        if not why and not wish.targets and is_background(name):
            why = "it says who or where"
        why = why or odd.get(name, "") or told_by_key(frame, name, frame["_when"], timed.keys)
        if why:
            refused.append(f"series {name}: {why}")
        else:
            found.append(name)
    if wish.targets:
        return found, refused
    names = [str(c) for c in frame.columns]
    ranks = best(found, names, texts, source.about, source.title)
    top = min(ranks.values(), default=0)
    if top > OUTCOME and source.many and not less_sure:
        return [], [*refused, f"series: {TOO_LITTLE}"]
    good = [name for name, own in ranks.items() if own == top]
    refused += [f"series {n}: others are more of an outcome" for n in found if n not in good]
    return good, refused


def beside(
    timed: Timed,
    target: str,
    others: Sequence[str],
    wish: Wish,
    source: Source,
    less_sure: bool = False,
) -> tuple[list[str], str]:
    """(the exogenous columns and keys that may stand beside a target, "" or why it is refused)."""
    texts = texts_of(source, [target, *others])
    frame, keys = timed.frame, timed.keys
    free = [
        c
        for c in others
        if c in keys or c in wish.features or (not wish.features and _measures(frame, c))
    ]
    exogenous = [c for c in free if c not in keys]
    verdict = judge(frame[[*exogenous, target]], target, exogenous, bool(wish.targets))
    if verdict.why:
        return [], verdict.why
    if wish.features and verdict.left_out:
        name, how = next(iter(verdict.left_out.items()))
        return [], f"feature {name} gives the target away ({how}); leave it out of --features"
    left = set(verdict.left_out)
    if not wish.features:
        left |= set(beside_none(frame, target, exogenous, texts))
        if source.many and not less_sure:
            columns = [str(c) for c in frame.columns]
            left |= outcomes_beside(target, columns, texts, source.about, source.title)
    if keys:
        entity = frame.groupby(list(keys), sort=False).ngroup()
        numbers = [c for c in exogenous if is_number(frame[c]) and c not in left]
        left |= {c for c in numbers if tells_within(frame[c], frame[target], entity)}
    return [c for c in free if c not in left], ""


def _measures(frame: Frame, name: str) -> bool:
    column = frame[name]
    return not is_identifier(name, column) or is_calendar(name, column)


def entities(frame: Frame, named: Sequence[str]) -> list[str]:
    """Columns that could name what a series is of, names before codes (people say the state, not
    its number), without times and parts of the calendar."""
    free = [c for c in named if not is_calendar(c, frame[c]) and not _TIME.search(c)]
    return sorted(free, key=lambda c: frame[c].dtype.kind in "iuf")


def adds_up(column: Column) -> bool:
    """Whether values of several times have a sum that means something: counts do, a temperature
    does not."""
    known = column.dropna()
    return bool((known == known.round()).all() and known.min() >= 0) and not _LEVEL.search(
        str(column.name)
    )
