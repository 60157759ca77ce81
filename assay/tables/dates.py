"""The one format that all dates of a column fit, or why there is none."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

_NUMERIC = ("%Y-%m-%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y")
_DAYS = (
    *(form for form in _NUMERIC),
    *(form.replace("-", "/") for form in _NUMERIC),
    # nobody writes the month first between points
    *(form.replace("-", ".") for form in _NUMERIC if not form.startswith("%m")),
    *("%Y-%m", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%B %d, %Y"),
    *("%b %Y", "%B %Y", "%b-%Y"),
)
_TIMES = (
    *("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p"),
    *("T%H:%M", "T%H:%M:%S", "T%H:%M:%SZ", "T%H:%M:%S.%f", "T%H:%M:%S.%fZ"),
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_PARTS = {
    "%Y": r"(?:[12][0-9]{3}|9999|0001)",
    "%y": r"[0-9]{2}",
    "%m": r"(?:0?[1-9]|1[0-2])",
    "%d": r"(?:0?[1-9]|[12][0-9]|3[01])",
    "%H": r"(?:[01]?[0-9]|2[0-3])",
    "%I": r"(?:0?[1-9]|1[0-2])",
    "%M": r"[0-5][0-9]",
    "%S": r"[0-5][0-9]",
    "%f": r"[0-9]{1,6}",
    "%p": r"(?i:[ap]m)",
    "%b": f"(?i:{'|'.join(_MONTHS)})",
    "%B": r"(?i:january|february|march|april|may|june|july|august|september|october|november"
    r"|december)",
}
_START = re.compile(r"\d{1,4}[-/. ]|[A-Za-z]{3}")
_CENTURY = 2035  # a two-digit year beyond it may be of the century before


@cache
def pattern(form: str) -> re.Pattern[str]:
    """What a date of this format looks like."""
    text = re.sub(
        r"%.|.", lambda m: _PARTS[m[0]] if m[0] in _PARTS else re.escape(m[0]), form, flags=re.S
    )
    return re.compile(text)


def own_format(form: str) -> bool:
    """Whether a format has parts that are not decided here: one of the user's."""
    return any(m not in _PARTS for m in re.findall(r"%.", form))


def formats(cells: Sequence[str]) -> list[str]:
    """The formats that every distinct cell fits; none for what are no dates."""
    if not cells or not _START.match(cells[0]):
        return []
    days = [d for d in _DAYS if pattern(d).match(cells[0])]
    fit: list[str] = []
    for day in days:
        for time in _TIMES:
            form = pattern(day + time)
            if all(form.fullmatch(c) for c in cells):
                fit.append(day + time)
    may = [f for f in fit if "%b" in f]  # in May both names of the month fit
    return [f for f in fit if not ("%B" in f and may)]


def parse(cells: Sequence[str], form: str) -> Any | None:
    """The distinct cells as pandas reads them; None when one is no day of the calendar."""
    pd: Any = importlib.import_module("pandas")
    try:
        return pd.to_datetime(pd.Series(cells, dtype=object), format=form)
    except (ValueError, OverflowError):
        return None


def date_format(cells: Sequence[str], day_first: dict[str, bool]) -> tuple[str, str, str]:
    """(the format of the distinct cells, or nothing; why it is in doubt; the end of the line of
    `dates` that settles it). `day_first`: mark between day and month → what other columns of the
    table tell."""
    possible = formats(cells)
    if not possible and (other := _other_format(cells)):
        return (
            "",
            f"{cells[0]!r} and {other!r} are dates in two spellings",
            "false}  # or mend them",
        )
    fit = [f for f in possible if parse(cells, f) is not None]
    told = [f for f in fit if day_first.get(mark_of(f)) in (None, f.startswith("%d"))]
    fit = told or fit
    if len(fit) > 1:
        one, other = fit[0], fit[1]
        return "", f"{cells[0]!r} can be {one} or {other}", f'"{one}"}}  # or "{other}"'
    if not fit:
        return "", "", ""
    parsed = parse(cells, fit[0])
    if "%y" in fit[0] and parsed is not None and parsed.dt.year.max() > _CENTURY:
        return "", f"the century of {cells[0]!r} can be this one or the last", "false}"
    return fit[0], "", ""


def _other_format(cells: Sequence[str]) -> str:
    """A cell that is a date in no format of the first cell, where every cell is a date."""
    if not cells or not all(map(_any_date().fullmatch, cells)):
        return ""
    own = [pattern(form) for form in formats(cells[:1])]
    return next((c for c in cells if not any(form.fullmatch(c) for form in own)), "")


@cache
def _any_date() -> re.Pattern[str]:
    """What looks like a date in any format."""
    days, times = ("|".join(pattern(f).pattern for f in forms) for forms in (_DAYS, _TIMES))
    return re.compile(f"(?:{days})(?:{times})")


def mark_of(form: str) -> str:
    """The mark of a format whose day and month are numbers beside each other, else nothing."""
    found = re.match(r"%[dm]([-/.])%[dm]", form)
    return found[1] if found else ""
