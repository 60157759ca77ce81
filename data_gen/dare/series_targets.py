# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a series is asked: quantities that neither its keys nor one other column give."""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.dare.database import texts_of
from data_gen.dare.layout import Frame
from data_gen.dare.leaks import told_by_key
from data_gen.dare.sources import Source
from data_gen.dare.targets import is_calendar, is_identifier, judge, unfit
from data_gen.dare.time_columns import Timed
from data_gen.dare.wishes import Wish


def series_targets(timed: Timed, source: Source, wish: Wish) -> tuple[list[str], list[str]]:
    """(columns that may be forecast, why others may not). A wished target is refused only when the
    keys of a row give it."""
    frame, texts = timed.frame, texts_of(source, [str(c) for c in timed.frame.columns])
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
        why = why or told_by_key(frame, name, frame["_when"], timed.keys)
        if why:
            refused.append(f"series {name}: {why}")
        else:
            found.append(name)
    return found, refused


def beside(timed: Timed, target: str, others: Sequence[str], wish: Wish) -> tuple[list[str], str]:
    """(the exogenous columns and keys that may stand beside a target, "" or why it is refused)."""
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
    return [c for c in free if c not in verdict.left_out], ""


def _measures(frame: Frame, name: str) -> bool:
    column = frame[name]
    return not is_identifier(name, column) or is_calendar(name, column)
