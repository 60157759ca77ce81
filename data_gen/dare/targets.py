# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Which columns are worth predicting, and from which others: every refusal is a reason in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data_gen.dare.combined import made_of, shared_in_group, two_labels
from data_gen.dare.layout import Frame
from data_gen.dare.leaks import is_label, is_number, tells
from data_gen.dare.words import phrase

Column = Any  # a pandas Series
MOST_ONE = 0.95  # of the rows with one value: what is said of such a feature may be chance

INDEX = re.compile(
    r"^(unnamed.*|rownames?|index|row_?id|id|.*[ ._-]id|obs|case|(subj(ect)?|school|stud(ent)?|"
    r"pers(on)?|patient|fam(ily)?|house(hold)?|hh|firm|case|plant|plot|resp(ondent)?|state|county|"
    r"child|mother|class|teacher|hospital|flight|play?er|team|user|cust(omer)?)_?(id|code|nr|num|"
    r"no)|"
    r"id_?(code|nr|num|no)|key|uid|pid|hid|strat(um|a)|cluster|flight|caseno|serial(no)?|nr|"
    r"fips\w*|zip(code)?|ssn|isbn)$",
    re.I,
)
_ID_TEXT = re.compile(
    r"\b(identif(iers?|ication|ying)|id (number|code)|unique (id|number|key|code)|serial number|"
    r"row (number|name|index)|(subject|patient|case|student|person|household|school) (id|number|"
    r"code)|sequence number|fips|zip code|postal code|(institution|cent(re|er)|hospital|site) "
    r"(number|code)|(interview|respondent|questionnaire|record|account|policy|order|invoice|ticket|"
    r"employee|customer|member|district|building|county|firm|company|branch|department|"
    r"municipality|"
    r"occupation|industry) (number|code))\b|^ids?\b|\bids? of\b",
    re.I,
)
_WEIGHT = re.compile(
    r"\b(sampl\w+|survey|cell(ule)?|observation|probability|frequency|expansion|design|analysis|"
    r"person|"
    r"(post-?)?stratification|household) weights?\b|sampling probabilit|"
    r"\bweights? (the |of the )?sample\b"
)
_WEIGHT_NAME = re.compile(
    r"^([pfa]weight|per_?weight|samp_?wt|final_?wt|weights|\w*pspwght|[ad]n?weight)$", re.I
)
_COUNTER = re.compile(r"[^\W\d_]{3,}[._ ]?(number|num|no|nr)$", re.I)
_DESIGN = re.compile(
    r"^(treat(ed|ment)?s?|trt\w{0,2}|arm|armcd|actarm(cd)?|block|rep|replicate|plot|fold|train|"
    r"test|batch|run|runs|"
    r"trial|order|period|season|trend|sequence|seq|session|wave|visit|occasion|set|sample|split|"
    r"design|phase|round|pair|"
    r"freq|frequency)$",
    re.I,
)
_DERIVED = re.compile(
    r"^(l|log|ln|lg|sqrt|inv|sq|std|norm|z|scaled|total|sum|mean|avg|d|diff|delta|net|c)[._ ]|"
    r"^(log|ln|sqrt|total|sum|mean|avg|diff)\w|(sq|squared|_log|_ln|_z|_std|_code|_cat|_grp|"
    r"_group|_bin|_level|_sum|_total|_mean|_avg|_diff)$",
    re.I,
)
_WHOLE_TIMES: dict[str, tuple[float, float]] = {
    "year|yr|jahr": (1400, 2200),
    "month|mon|monat": (1, 12),
    "day|dayofmonth|mday|tag": (0, 31),
    "quarter|qtr": (1, 4),
    "week|weekofyear": (0, 53),
    "weekday|wday|dayofweek|dow": (0, 7),
    "hour|hr|stunde": (0, 24),
    "minute|second": (0, 60),
    "dayofyear|yday|doy|julian": (0, 366),
}
_TIME_WORDS = re.compile(
    r"^(mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?$",
    re.I,
)
_CODES = re.compile(r"(?<![\w.])\d\s*(?:[=:–]|-\s)\s*[A-Za-z\"'“]|[A-Za-z]\w*\s*\(?=\s*\d\b")
_BACKGROUND = re.compile(
    r"^(sex|gender|female|male|woman|man|race|black|white|hisp\w*|ethn\w*|afam|nonwhite|age\w*|"
    r"birth([._]?(year|yr|date|day|place|country|month|q\w*|order|ord|state))?|"
    r"cohort|pop|population|tot_?pop|region|site|location|place|state|county|country|province|"
    r"continent|area_?code|lat\w*|"
    r"lon\w*|[xy]_?coord\w*|easting|northing|elev\w*|altitude|south|north|east|west|urban|rural|"
    r"smsa)"
    r"([._ ].*|\d*)$",
    re.I,
)
_WHO = re.compile(
    r"^(sex|gender|female|male|woman|man|race|ethn\w*|hisp\w*|afam|nonwhite|married|marr|mrt|mar|"
    r"marital"
    r"([._]?status)?|maritl|single|divorced|widowed|evermarr|citizen|foreign|immigrant|religion|"
    r"nationality)\d*$",
    re.I,
)
_OPAQUE = re.compile(r"^[A-Za-z]{1,2}[._]?\d+$")  # y4, z10: says nothing without a description
_SPELL = re.compile(r"^t?[._]?(start|stop|begin|end)([._ ]?time)?$", re.I)
_FREQUENCY = re.compile(r"^\W*(the )?(frequency|frequencies)\W*$", re.I)
_TREATED = re.compile(
    r"\b(treatment (group|arm|level|condition|indicator|status)|\w+ treatment/|randomi[sz]ed|"
    r"assigned to|which eye was treated)\b",
    re.I,
)
_CODED = re.compile(r"^\W*(an? )?((un)?ordered )?factor\b|^\W*\w+ indicator variable\b", re.I)
_CHANGE = re.compile(
    r"^\W*(change|difference|growth) in \w+\W*$|^\W*(\w+) - \2(_1|\[_?n ?- ?1\])\W*$", re.I
)
_ENTITY = re.compile(
    r"^(student|pupil|school|course|class(room)?|teacher|subject|person|patient|hospital|clinic|"
    r"firm|"
    r"company|household|family|mother|father|litter|animal|plant|state|county|country|city|town|"
    r"village|district|precinct|site|station|store|brand|judge|rater|interviewer|player|team)$",
    re.I,
)
_YEAR = re.compile(r"^(1[5-9]|20)\d\d\b")
_CLOCK = re.compile(r"(^|[._ ])time$", re.I)
_ANGLE = re.compile(
    r"(^|[._ ])(wind_?dir\w*|direction|bearing|heading|azimuth|aspect|dir|wd)$", re.I
)
_STEP = re.compile(r"^(t|time|date|period|week|day|month|year|quarter|age_?group|cohort)$", re.I)


def is_calendar(name: str, column: Column) -> bool:
    """Whether a column holds a part of a calendar: by what it is called and what it holds."""
    import pandas as pd

    if column.dtype.kind == "M":
        return True
    known = column.dropna()
    plain = re.sub(r"[^a-z]", "", name.lower())
    if not len(known):
        return False
    if not is_number(column):
        words = pd.Series(known.unique()).map(str)
        return bool(words.map(lambda w: bool(_TIME_WORDS.match(w) or _YEAR.match(w))).mean() > 0.9)
    whole = bool((known == known.round()).all())
    for words, (low, high) in _WHOLE_TIMES.items():
        ends = "|".join(rf"{w}s?$|^{w}(?=of|built|born|made)" for w in words.split("|"))
        few = known.nunique() < 3 and not words.startswith("year")  # two hours are an indicator
        if whole and not few and re.search(ends, plain) and known.between(low, high).all():
            return True
    years = whole and known.between(1800, 2100).all() and 2 < known.nunique() <= 0.5 * len(known)
    return bool(years and re.search(r"year|yr", plain))


def is_running(column: Column) -> bool:
    """Whether a column numbers the rows: whole numbers, each once, without gaps or ever rising."""
    known = column.dropna()
    if not is_number(column) or column.dtype.kind == "b" or len(known) < 2:
        return False
    if known.nunique() < 0.98 * len(known) or not bool((known == known.round()).all()):
        return False
    dense = known.max() - known.min() + 1 <= 1.1 * known.nunique()
    return bool(dense or (known.is_monotonic_increasing and known.nunique() == len(known)))


def is_identifier(name: str, column: Column, text: str = "") -> bool:
    """Whether a column names rows or groups of rows and measures nothing."""
    if INDEX.match(name.strip()) or re.search(r"[a-z](ID|Id)$", name):
        return True
    if is_number(column) and bool((column.dropna() % 1 != 0).any()):
        return False
    counter = _COUNTER.search(name) and is_number(column) and column.min() > 20
    return bool(counter or _ID_TEXT.search(text)) or is_running(column)


def stands_for_names(name: str, column: Column, text: str) -> bool:
    """Whether numbers are codes of many names: the source calls them a factor or an indicator, or
    the column is called what they name (a school, a student), and there are more of them than a
    question can list."""
    said = _CODED.match(text) or _ENTITY.match(name)
    if not is_number(column) or not said or column.nunique() <= 20:
        return False
    return bool((column.dropna() % 1 == 0).all())


def is_weight(name: str, text: str = "") -> bool:
    """Whether a column says how much a row counts in a survey, and nothing of the row."""
    return bool(_WEIGHT.search(text.lower()) or _WEIGHT_NAME.match(name))


def is_clock(name: str, column: Column) -> bool:
    """Whether numbers are times of a day: `hour`, or 517 and 2359 in a column called time."""
    known = column.dropna()
    if not is_number(column) or not len(known):
        return False
    if re.match(r"(hour|hr)s?$", name, re.I):
        return bool(known.between(0, 24).all())
    whole = bool((known == known.round()).all() and known.between(0, 2400).all())
    return bool(_CLOCK.search(name)) and whole and bool((known % 100 < 60).all())


def unfit(name: str, column: Column, text: str = "") -> str:
    """Why no question should ask for a column, "" if it may be asked for. `text`: what the source
    says of it."""
    known = column.dropna()
    if known.nunique() < 2:
        return "a constant"
    if is_calendar(name, column) or (is_clock(name, column) and known.nunique() > 60):
        return "a part of the calendar"
    if is_identifier(name, column, text):
        return "an identifier or a running number"
    if not is_number(column):
        lengths = known.map(lambda v: len(str(v)))
        if lengths.max() > 60 or known.nunique() > 20:
            near = known.nunique() >= 0.9 * len(known)
            return "free text or names" if near or lengths.max() > 60 else "more than 20 categories"
    if is_weight(name, text):
        return "a weight of the sample"
    if _WHO.match(name):
        return "it says who a row is of, and nobody asks for that"
    if _OPAQUE.match(name) and not phrase(text):
        return "its name says nothing, and nothing describes it"
    if _DESIGN.match(name) or _TREATED.search(text) or _names_placebo(known):
        return "a part of the design, not an outcome"
    if _STEP.match(name) and known.nunique() <= len(known) / 3 and is_number(column):
        return "a point of time"
    if is_number(column) and re.match(r"\W*(julian )?(date|time ?stamp)\b", text, re.I):
        return "a date"
    if is_number(column) and (_SPELL.match(name) or _FREQUENCY.match(text)):
        return "a bound of a spell, or the count of a cell"
    if is_number(column) and _ANGLE.search(name) and known.between(0, 360).all():
        return "an angle"
    if known.value_counts(normalize=True).iloc[0] > 0.97:
        return "nearly constant"
    return ""


def _names_placebo(known: Column) -> bool:
    """Whether one of the values is a placebo: somebody drew lots for them."""
    if is_number(known) or known.nunique() > 20:
        return False
    return any("placebo" in str(value).lower() for value in known.unique())


def class_unfit(column: Column, text: str = "") -> str:
    """Why a column makes no classes: 2-10 labels, the commonest two with 20 rows or more, none
    above 85 %. Whole numbers are labels where there are two, or where the text says what they
    stand for (`1 = never, 2 = often`)."""
    counts = column.value_counts()
    coded = len(_CODES.findall(text)) >= 2 or re.search(r"\bfactor\b|categor", text)
    if is_number(column) and (column.dtype.kind not in "iub" or len(counts) > (10 if coded else 2)):
        return "numbers that are no classes"
    if not 2 <= len(counts) <= 10:
        return f"{len(counts)} classes; wanted 2 to 10"
    if counts.iloc[1] < 20 or counts.iloc[-1] < 4:
        return "a class has too few rows"
    if counts.iloc[0] > 0.85 * len(column):
        return "one class has more than 85 % of the rows"
    return ""


def number_unfit(column: Column, text: str = "") -> str:
    """Why a column is no quantity to regress on: 30 values or more, a tenth of the rows, and no
    value that most rows have."""
    if not is_number(column):
        return "no numbers"
    if _CODED.match(text):
        return "numbers that stand for names"
    if _CHANGE.search(text):
        return "a change from another row"
    counts = column.value_counts()
    if len(counts) < 30 or len(counts) < 0.1 * len(column):
        return "too few different values for a quantity"
    if counts.iloc[0] > 0.6 * len(column):
        return "more than 60 % of the rows have the same value"
    return ""


def is_background(name: str) -> bool:
    """Whether a column says who or where (sex, age, region, latitude): what people predict from,
    seldom what they predict. Asked for only where nothing else can be."""
    return bool(_BACKGROUND.match(name))


@dataclass(frozen=True)
class Verdict:
    """What stands in the way of asking for a target: `why` not at all, and `left_out`, the features
    that give it away, each with the way it does."""

    why: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])


def derived_one(names: Sequence[str], order: Sequence[str]) -> str:
    """Which of columns that give each other was made from the rest: the one whose name says so,
    else the last of the table."""
    said = [n for n in names if _DERIVED.search(n)]
    return max(said or names, key=list(order).index)


def judge(frame: Frame, target: str, features: Sequence[str], wished: bool = False) -> Verdict:
    """Whether a target may be asked for with these features, and which must be left out.

    Of columns that give each other, the derived one is refused as a target and left out of the
    features of the others. A target that the user wants (`wished`) is never refused: everything
    that gives it is left out.
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


def _coarser(x: Column, y: Column) -> bool:
    """Whether a feature of few values is a function of the target: a grouping of its classes, or of
    its numbers, says much of it, though not all."""
    if not is_label(x) or x.value_counts(normalize=True).iloc[:1].sum() > MOST_ONE:
        return False
    return bool(tells(y, x))


def is_label_target(column: Column) -> bool:
    """Whether a wished target can be classified: 2 to 10 labels, each in 4 rows or more."""
    counts = column.value_counts()
    return 2 <= len(counts) <= 10 and is_label(column) and bool(counts.iloc[-1] >= 4)


def is_quantity(column: Column) -> bool:
    """Whether a wished target can be regressed on: numbers, more than 10 different ones."""
    return is_number(column) and column.dtype.kind != "b" and bool(column.nunique() > 10)
