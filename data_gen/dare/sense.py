# pandas ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false
"""Which columns make no sense as targets beside the others of their table, and which tables give
none: what came before, repeats, designs, censored times, values of groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.layout_of_rows import (
    codes_of,
    crossed,
    excludes,
    follows,
    is_scaled_weight,
    of_group,
    owned,
    owns,
    runs_of,
)
from data_gen.dare.leaks import is_number
from data_gen.dare.outcomes import invented, split
from data_gen.dare.sources import Source
from data_gen.dare.words import plain_about

Column = Any  # a pandas Series

_BEFORE_NAME = re.compile(
    r"^(base(line)?|pre(test|op|treat\w*)?|initial|init|lag(ged)?|previous|prev|prior|before|first|"
    r"orig(inal)?|start|past|last)\b|\b(base(line)?|pre|lag(ged)?|before|prior|history)( \d+)?$|"
    r"lag\d*$",
    re.I,
)
_BEFORE = re.compile(
    r"\b(baseline|pre-?treatment|pre-?test|pre-?operative\w*|at (the )?(study )?(entry|enrol\w*|"
    r"randomi[sz]ation|admission|intake)|(week|month|time|day) 0|before (the |a |any )?(trial|"
    r"study|"
    r"treatment|intervention|surgery|operation|experiment|test|diet|training|exercise|program\w*)|"
    r"pre-?season|base year|intake scores?|high[- ]school (gpa|grades?|percentile|rank)|prior to|"
    r"starting (wage|salary|value|level)|lag(ged|s)?|(one|two|three|four|"
    r"five|\d) (year|month|week|day|quarter|period)s? (lag|previous|"
    r"before|earlier|prior|ago)|previous|preceding|last (year|month|quarter|election)|"
    r"first (survey|observation|interview|visit|wave)|originally|history of|(at|when|by) (age )?"
    r"(1[0-8]|[1-9])( years?( old)?)?\W*$|at age \d+)\b",
    re.I,
)
GUESSED = re.compile(
    r"\b(predicted|expected|fitted|residuals?|imputed|forecasts?|forecasted|z-?scores?|"
    r"centered|centred|error term)\b",
    re.I,
)
_ESTIMATED = re.compile(
    r"^\W*(an? |the )?estimated\b|\bcomposite (index|score)\b|"
    r"\b(on[- ]base|slugging|batting average|earned run average|passer rating)\b",
    re.I,
)
_WHO_TEXT = re.compile(
    r"^\W*(=\s*1|1|one|indicator\w*|dummy\w*|factor\w*|whether|is)?\W*(if|for|indicating|"
    r"that is 1 if|"
    r"variable)?\W*(the )?(\w+('s)? )?(is |are |was )?(the )?(ever )?(gender|sex|marital status|"
    r"married|"
    r"race|ethnicity|ethnic group|nationality|citizenship|religion)\b",
    re.I,
)
_TIME_TO = re.compile(
    r"\btime (in (days|weeks|months|years) )?(to|until|from \w+ to) (death|relapse|failure|"
    r"recurrence|progression|the event|event|infection|discontinuation)\b|\bsurvival times?\b|"
    r"\bon[- ]study time\b|\bfollow-?up time\b|\bdeath indicator\b",
    re.I,
)
_PANEL = re.compile(
    r"\b(a|balanced|unbalanced) panel of \d+|\bpanel data\b|\bgrowth curves?\b", re.I
)
_SERIES = re.compile(
    r"\b(is|as|giving|a|an) (an? )?(multiple |multivariate |univariate )?time[- ]series\b|"
    r"\b(monthly|quarterly|weekly|daily|hourly) (totals|returns|observations|time series)\b|"
    r"\btsibble\b",
    re.I,
)
_TIMES = re.compile(
    r"^(t|times?|years?|yr|date|period|wave|visit|week|month|day|occasion|season|grade|age)$", re.I
)
_UNIT = re.compile(
    r"^(\w+ )?(hid|subject)$|"
    r"^(id|nr|pid|subj(ect)?|patient|person|individual|animal|pig|rat|mouse|dog|cow|tree|plant|"
    r"worker|"
    r"child|woman|respondent|participant|rater|judge|firm|farm|household)([ ._]?(id|no|nr|num))?$",
    re.I,
)
_CENSORED = re.compile(r"\b(right[- ]|left[- ]|un|reight )?censor(ed|ing|ship)?\b", re.I)
_CENSOR_NAME = re.compile(r"^(is[._ ]?)?cens(or(ed|ing)?)?[._ ]?\d*$", re.I)
_SURVIVAL = re.compile(
    r"\bSurv\(|\bcompeting risks?\b|\bmulti-?state model|\bcox (model|regression|proportional)|"
    r"\bcoxph\(|\bsurvfit\(|\bsurvival (data|times?|analysis)\b|\blast follow-?up\b|"
    r"\btime[- ]to[- ]event\b",
    re.I,
)
_ONE_OF = re.compile(r"==")
_NUMBERED = re.compile(r"^(.*?[A-Za-z._ ])0*(\d{1,2})$")
_FULL_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_SHORT_YEAR = re.compile(r"^(.*[A-Za-z._])([4-9]\d)$")
_IN_YEAR = re.compile(
    r"(?:\b(?:in|for|of|during|end|start)|,) ((?:19|20)\d\d)\b"
    r"(?! (?:us |u\.s\. |constant )?dollar)",
    re.I,
)


def no_table(source: Source, texts: Mapping[str, str], names: Sequence[str] = ()) -> str:
    """Why a table is asked for nothing, by what its source says: nobody measured its rows, or they
    are times until something happens; "" for other tables."""
    if invented(source.title, source.about):
        return "its rows were made up or simulated, by what its source says"
    told = any(_CENSORED.search(t) or _TIME_TO.search(t) for t in texts.values())
    told = told or any(_CENSOR_NAME.match(name) for name in names)
    about = source.about.replace("_", " ")  # titles of books stand between them
    if told or _SURVIVAL.search(f"{source.title}\n{about}"):
        return "its rows are times until an event, some of them censored: no class and no number"
    if _SERIES.search(plain_about(source.about)[:1500]):
        return "its rows are points of one series: no random split of them is fair"
    return ""


def panel(source: Source, frame: Frame, texts: Mapping[str, str]) -> str:
    """Why a table of the same units at several times is not split at random, "" for others: its
    source calls it a panel, or a column of units and one of times name its rows."""
    why = "its rows are the same units at several times: no random split of them is fair"
    if _PANEL.search(f"{source.title}. {plain_about(source.about)[:1200]}"):
        return why
    names = [str(c) for c in frame.columns]
    times = [n for n in names if _TIMES.match(n) and 3 <= frame[n].nunique() <= len(frame) / 3]
    units = [n for n in names if _UNIT.match(split(n)) and frame[n].nunique() >= 10]
    if any(len(frame) >= 2.5 * frame[unit].nunique() for unit in units):
        return why
    for owner in (n for n in names if n not in times):
        if not owns(owner, frame[owner], texts.get(owner, "")):
            continue
        if any(not frame.duplicated([owner, time]).any() for time in times):
            return why
    return ""


def misplaced(frame: Frame, texts: Mapping[str, str], series: bool = False) -> dict[str, str]:
    """Column → why it is no target in this table, for those that are none. `frame` holds all rows
    and columns in the order of the source. Of a `series` rows may follow from one another."""
    names = [str(c) for c in frame.columns]
    found: dict[str, str] = {}
    for rule in (_before, _guessed, _repeats, _alike, _alternatives):
        for name, why in rule(names, frame, texts).items():
            found.setdefault(name, why)
    codes = codes_of(frame)
    many = {n: int(c.max()) + 1 if len(c) else 0 for n, c in codes.items()}
    names = [n for n in names if many[n]]  # an empty column says nothing
    labels = [n for n in names if 2 <= many[n] <= 10]
    owners = [n for n in names if owns(n, frame[n], texts.get(n, ""))]
    runs = {} if series else runs_of(frame, codes)
    following = {} if series else {n: follows(frame, n, runs) for n in names}
    numbers = [n for n in names if is_number(frame[n]) and many[n] > 10]
    one_run = sum(following.get(n, False) for n in numbers) >= max(2, len(numbers) / 2)
    for name in names:
        if name in found:
            continue
        column = frame[name]
        if name in labels and (by := crossed(codes, name)):
            found[name] = f"a part of the design: its values come equally often beside each {by}"
        elif name in labels and (by := excludes(frame, name, labels)):
            found[name] = f"one of several indicators of one answer, as {by} is"
        elif is_number(column) and of_group(column):
            found[name] = "a value that many rows share to the last digit: of a group, not of a row"
        elif not series and (by := owned(frame, name, owners, codes)):
            found[name] = f"it belongs to what {by} names, and not to a row"
        elif is_number(column) and is_scaled_weight(name, column):
            found[name] = "a weight of the sample"
        elif one_run or following.get(name):
            found[name] = "each row continues the row before: no random split of them is fair"
    return found


def _before(names: Sequence[str], frame: Frame, texts: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        if _BEFORE_NAME.search(split(name)) or _BEFORE.search(texts.get(name, "")[:200]):
            found[name] = "a value from before the others"
        elif later := _later_kin(name, names):
            found[name] = f"a value from before {later}"
    return found


def _later_kin(name: str, names: Sequence[str]) -> str:
    """The same quantity in a later year: `re78` for `re74`, `mrt80` for `mrt`."""
    stem, own = dated(name)
    for other in names:
        kin, year = dated(other)
        if other != name and kin == stem and year and (not own or own < year):
            return other
    return ""


def dated(name: str) -> tuple[str, int]:
    """(the name without its year, the year or 0)."""
    if full := _FULL_YEAR.search(name):
        return (name[: full.start()] + name[full.end() :]).strip("._ ").lower(), int(full[1])
    if short := _SHORT_YEAR.match(name):
        return short[1].strip("._ ").lower(), 1900 + int(short[2])
    return name.lower(), 0


def year_of(name: str, text: str, names: Sequence[str] = ()) -> int:
    """The year that a column is of, by its name or, where that says none, its description. Two
    digits are a year where another of `names` has the same stem and other two digits."""
    told = sorted({int(year) for year in _IN_YEAR.findall(text)})
    full = _FULL_YEAR.search(name)
    short = _SHORT_YEAR.match(name)
    if full:
        return int(full[1])
    if short and (1900 + int(short[2]) in told or any(dated(n)[1] for n in kin(name, names))):
        return 1900 + int(short[2])
    return told[0] if len(told) == 1 else 0


def kin(name: str, names: Sequence[str]) -> list[str]:
    """The columns of the same stem in other years."""
    stem, own = dated(name)
    return [n for n in names if n != name and dated(n)[0] == stem and dated(n)[1] != own]


def _guessed(names: Sequence[str], frame: Frame, texts: Mapping[str, str]) -> dict[str, str]:
    why = "computed from other columns, by what is said of it"
    found: dict[str, str] = {}
    for name in names:
        text = texts.get(name, "")
        if GUESSED.search(f"{split(name)} {text[:120]}") or _ESTIMATED.search(text[:120]):
            found[name] = why
        elif _WHO_TEXT.match(text):
            found[name] = "it says who a row is of, and nobody asks for that"
        elif _ONE_OF.search(text):
            found[name] = "one of several indicators of one answer"
        elif any(mentions(text, other) for other in names if other != name):
            found[name] = why
    return found


def mentions(text: str, name: str) -> bool:
    """Whether a description computes with a column: `luclms - luclms[n-1]`, `price / size`,
    `log of price`. The name stands beside a sign of arithmetic."""
    if len(name) < 2 or name not in text:
        return False
    word = rf"(?<![\w.])(?:l|ln|log_?)?{re.escape(name)}(?![\w.])"
    sign = r"(?:\s*[*/^<>+]\s*|\s+-\s+|\s*==\s*|\[)"
    of = r"(?:log(?:arithm)?|ln|sqrt|square(?:d| root)?|natural log)\s*(?:of\s+|\()\s*"
    return bool(re.search(rf"{word}{sign}|[*/^<>+]\s*{word}|\s-\s+{word}|{of}{word}", text))


def _repeats(names: Sequence[str], frame: Frame, texts: Mapping[str, str]) -> dict[str, str]:
    """Numbered columns of one stem: of four or more none is asked for, of fewer the last."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        if (hit := _NUMBERED.match(name)) and not dated(name)[1]:
            groups.setdefault(hit[1].lower(), []).append((int(hit[2]), name))
    found: dict[str, str] = {}
    for members in groups.values():
        members.sort()
        gone = members if len(members) >= 4 else members[:-1]
        found |= {name: "one of several numbered repeats of a measure" for _, name in gone}
    return found


def _alike(names: Sequence[str], frame: Frame, texts: Mapping[str, str]) -> dict[str, str]:
    """Three columns or more whose descriptions differ in a word or two (`price for pier mode`,
    `expenditure when visiting lake Conroe`), years and numbers apart: parts or alternatives."""
    groups: dict[tuple[str, ...], set[str]] = {}
    for name in names:
        words = tuple(re.sub(r"[^a-z0-9 ]", " ", texts.get(name, "").lower()).split())
        if not 4 <= len(words) <= 14 or any(word.isdigit() for word in words):
            continue
        for head in (len(words) - 1, len(words) - 2):
            for tail in (0, 1):
                if head - tail >= 2 and head >= 3:
                    key = (*words[: head - tail], "*", *words[len(words) - tail :])
                    groups.setdefault(key, set()).add(name)
    found = [members for members in groups.values() if len(members) >= 3]
    return {name: "one of several columns of one description" for one in found for name in one}


def _alternatives(names: Sequence[str], frame: Frame, texts: Mapping[str, str]) -> dict[str, str]:
    """Columns that end in the values of another column (`cost.car`, `cost.bus` beside a choice of
    car and bus): they say what was offered."""
    found: dict[str, str] = {}
    for label in names:
        if is_number(frame[label]) or not 2 <= frame[label].nunique() <= 12:
            continue
        ends = tuple(f"{mark}{value}" for value in frame[label].dropna().unique() for mark in "._")
        of = [n for n in names if n.endswith(ends)]
        if len(of) >= 2:
            found |= {n: f"an attribute of the values of {label}, not an outcome" for n in of}
    return found
