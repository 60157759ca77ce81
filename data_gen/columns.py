# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""What a column is, and which is the time of a table: one answer for every builder (DARE, lakes,
SQL).

A column is asked about only where its answer would mean something. What a column is follows from
its values wherever these say enough (running numbers, clock times, ranks, grids, dates, constants,
texts), in any script; where they do not, from the words of its name (`column_words.yaml`) or of
what the user says of it. Every kind but a plain measure or group has a sentence (`WHY`), so that a
build can say why nothing was asked of a column.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from assay.errors import pandas as pd
from assay.files import yaml_beside
from assay.tables.settings import Doubt

Frame = Any  # a pandas DataFrame
Series = Any  # a pandas Series

FILLED = 0.5  # share of the rows in which a column must have a value
DISTINCT = 8  # different values of a measure, at least
SCALE = 12  # whole numbers with no more different values are answers on a scale, or labels
GROUPS = 60  # different values of a column to group by, at most
LONGEST = 80  # characters of a text
KEYS = 5_000  # different values of a column that names rows or can be matched
MONEY_CLASSES = 30  # whole numbers of money up to here are classes of it
LONG_NUMBER = 8  # digits that every value has: telephone, account, serial numbers

# kind → why no figure is computed from a column, nor predicted
WHY: Mapping[str, str] = yaml_beside(__file__, "column_kinds.yaml")
_LABELS = ("group", "flag", "scale", "label", "thing", "code")


@dataclass(frozen=True)
class Column:
    """What a column is. `adds`: values of several rows may be added up; `whole`: its numbers have
    no fractions; `values`: how many different ones."""

    name: str
    kind: str
    values: int = 0
    adds: bool = False
    whole: bool = False

    @property
    def why(self) -> str:
        """Why no figure is computed from it, in one sentence; "" for measures, groups, names."""
        return WHY[self.kind]

    @property
    def is_label(self) -> bool:
        """Whether its values can be classes."""
        return self.kind in _LABELS


@lru_cache(maxsize=1)
def _lists() -> dict[str, tuple[frozenset[str], Any]]:
    """Kind → (whole words, the pattern of the others)."""
    found: dict[str, tuple[frozenset[str], Any]] = {}
    for kind, words in yaml_beside(__file__, "column_words.yaml").items():
        listed = str(words).split()
        wild = [re.escape(w).replace(r"\*", ".*") for w in listed if "*" in w]
        pattern = re.compile("|".join(wild)) if wild else None
        found[kind] = (frozenset(w for w in listed if "*" not in w), pattern)
    return found


def words_of(text: str) -> list[str]:
    """The words of a name: parted at marks, digits and changes of case, in lower case."""
    parted = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])", " ", text)
    return [w.lower() for w in re.findall(r"[^\W\d_]+", parted)]


def speaks_of(words: Iterable[str], kind: str) -> bool:
    """Whether one of the words is of a list of `column_words.yaml`."""
    whole, pattern = _lists()[kind]
    return any(w in whole or (pattern is not None and pattern.fullmatch(w)) for w in words)


def counted(name: str, described: str = "") -> bool:
    """Whether a name, or what is said of the column, speaks of an amount that adds up."""
    words = [*words_of(name), *words_of(described.partition("(")[0])]
    if speaks_of(words, "rate") or "%" in name + described or "/" in name:
        return False
    of = r"(?i)\b(?:number|no|num|n)[ _.]+of\b|^n[_.]|\btotal\b|^num[_.]"
    return speaks_of(words, "amount") or bool(re.search(of, name) or re.search(of, described))


def says_nothing(name: str) -> bool:
    """Whether a name says nothing without a description: `v1`, `x`, `z10`, `lc_ly_1`. In scripts of
    whole words, such as Chinese or Korean, one letter says something."""
    words = words_of(name)
    if any(ord(c) >= 0x2E80 for c in name if c.isalpha()):
        return False
    short = re.fullmatch(r"[^\W\d_]{1,3}[_.]?\d+|[^\W\d_]\d*", name) is not None
    return short or max(map(len, words), default=0) < 3


def opaque_group(name: str) -> bool:
    """The same of a column to group by, whose values say what its name does not (`drv`: 4, f)."""
    return says_nothing(name) and (any(map(str.isdigit, name)) or len(name) == 1)


def look_at(frame: Frame, described: Mapping[str, str] | None = None) -> dict[str, Column]:
    """What each column of a table is, seen beside the others. `described`: words for columns."""
    said = described or {}
    names = [str(c) for c in frame.columns]
    found = {n: look(n, frame.iloc[:, i], said.get(n, "")) for i, n in enumerate(names)}
    groups = [n for n in names if found[n].kind == "group"]
    numbers = [n for n in names if found[n].kind == "measure"]
    whole = [n for n in numbers if found[n].whole]
    units = [n for n in names if found[n].kind in ("group", "key") and is_unit(n)]
    odd = {n: "mixed" for n in numbers if units or of_many_things(n, groups, said.get(n, ""))}
    if whole:
        counts = [n for n in whole if counts_cases(n, said.get(n, ""))]
        sizes = _sizes(frame, [n for n in names if n not in counts]) if counts else []
        for name in whole:
            if are_cells(name, said.get(name, ""), sizes, len(frame)):
                odd |= dict.fromkeys([name, *(whole if sizes else ())], "cells")
    odd |= {n: "cells" for n in numbers if _FREQUENCY.match(n)}  # halves of cases, too
    for name in numbers:
        if not found[name].adds and any(stands_for(frame[name], frame[g]) for g in groups):
            odd[name] = "code"
    return {n: replace(c, kind=odd.get(n, c.kind)) for n, c in found.items()}


def look(name: str, column: Series, described: str = "") -> Column:
    """What a column (a pandas Series, with its missing values) is, by itself."""
    filled = column.dropna()
    try:
        many = int(filled.nunique())
    except TypeError:  # lists, dictionaries
        return Column(name, "lists")
    if not len(column) or len(filled) < FILLED * len(column):
        return Column(name, "empty", many)
    if many < 2:
        return Column(name, "constant", many)
    if pd.api.types.is_bool_dtype(column):
        return Column(name, "flag", many)
    if column.dtype.kind in "mM":
        return Column(name, "date", many)
    if pd.api.types.is_numeric_dtype(column):
        whole = bool((filled == filled.round()).all())
        kind = _number(name, filled.astype(float), many, whole, described)
        adds = kind == "measure" and _adds(name, filled, described)
        return Column(name, kind, many, adds, whole)
    kind = _text(filled.astype(str).str.strip())
    return Column(name, "person" if kind == "group" and names_people(name) else kind, many)


def names_people(name: str) -> bool:
    """Whether a column holds names of people, or parts of them."""
    words = words_of(name)
    return speaks_of(words, "person") or ("name" in words and speaks_of(words, "part_of_name"))


def _number(name: str, filled: Series, many: int, whole: bool, described: str) -> str:
    words, amount = words_of(name), counted(name, described)
    if whole and many >= 5 and not amount and _is_year(words, filled):
        return "year"
    if whole and is_clock(filled, speaks_of(words, "clock")):
        return "clock"
    if whole and _is_date(filled):
        return "date"
    if not amount:
        names = ("id", "code", "rank", "label") if whole else ()
        for kind in (*names, "place", "calendar", "bound", "index"):
            if speaks_of(words, kind):
                return "date" if kind == "calendar" and _is_long(filled) else kind
    rising = many == len(filled) and filled.is_monotonic_increasing
    if rising and words and all(speaks_of([w], "id") for w in words):  # 1.1, 1.2, 2.1, …
        return "id"
    if speaks_of(words, "weight"):
        return "weight"
    if speaks_of(words_of(described), "said_code"):
        return "code"
    if not described and says_nothing(name):
        return "unsaid"
    return _by_values(words, filled, many, whole, amount)


def _by_values(words: Sequence[str], filled: Series, many: int, whole: bool, amount: bool) -> str:
    """What the values say where the name allows a measure."""
    low, high = float(filled.min()), float(filled.max())
    if whole and (is_running(filled) or (not amount and _never_twice(filled, many, high - low))):
        return "id"
    if many < DISTINCT:
        return "scale"
    if whole and not amount and speaks_of(words, "thing"):
        return "thing"
    if whole and not amount and many <= SCALE:
        return "scale"
    if whole and speaks_of(words, "money") and low >= 0 and high <= MONEY_CLASSES:
        return "scale"
    if whole and not amount and _is_long(filled) and many > 0.5 * len(filled):
        return "id"
    if whole and 0 <= low <= 3 and _is_rank(filled, many, high):
        return "rank"
    if not amount and whole and _is_numbering(filled, many):
        return "id"
    return "grid" if not amount and _is_grid(filled) else "measure"


def _adds(name: str, filled: Series, described: str) -> bool:
    return counted(name, described) and float(filled.min()) >= 0 and float(filled.max()) > 1


def _is_year(words: Sequence[str], filled: Series) -> bool:
    wide = (1500, 2100) if speaks_of(words, "year") else (1800, 2035)
    priced = speaks_of(words, "money") or speaks_of([w for w in words if len(w) > 4], "rate")
    return bool(filled.between(*wide).all()) and (wide[0] == 1500 or not priced)


def is_clock(filled: Series, said: bool) -> bool:
    """Whether whole numbers are times of a day, such as 930 and 2345: no minutes from 60 on, in
    four hours or more, and other minutes than 0 and 50. Where the name does not say so (`said`),
    20 different ones."""
    if float(filled.min()) < 0 or not 300 < float(filled.max()) <= 2400:
        return False
    minutes = filled % 100
    fits = bool((minutes < 60).all()) and (filled // 100).nunique() >= 4
    if said:
        return fits and filled.nunique() >= 5
    return fits and filled.nunique() >= 20 and not set(minutes.unique()) <= {0.0, 50.0}


def _is_date(filled: Series) -> bool:
    """Whether whole numbers are days such as 20230725, or seconds of a clock since 1970."""
    low, high = float(filled.min()), float(filled.max())
    if low >= 10**9 and high < 2 * 10**9 and high - low > 3_600:
        return filled.nunique() > 0.5 * len(filled)
    if not 18_000_101 <= low <= high <= 21_001_231:
        return False
    days = pd.Series(filled.unique()).astype("int64").astype(str)
    return bool(pd.to_datetime(days, format="%Y%m%d", errors="coerce").notna().all())


def _is_long(filled: Series) -> bool:
    low, high = float(filled.min()), float(filled.max())
    return low >= 10 ** (LONG_NUMBER - 1) and len(f"{low:.0f}") == len(f"{high:.0f}")


def is_running(column: Series) -> bool:
    """Whether a column numbers the rows: whole numbers, one after the other, in any order."""
    if column.dtype.kind not in "iuf" or column.isna().any() or not column.is_unique:
        return False
    if len(column) < 2 or not bool((column == column.round()).all()):
        return False
    return float(column.max()) - float(column.min()) == len(column) - 1


def _never_twice(column: Series, many: int, span: float) -> bool:
    """Whether no whole number comes twice, where among numbers drawn from as wide a range some
    would (in 19 of 20 columns): somebody gave each row a number of its own."""
    return many == len(column) >= 120 and many * many > 6 * span


def _is_rank(column: Series, many: int, high: float) -> bool:
    """Nearly every whole number up to the number of rows, nearly each once; some rows may lack."""
    return many >= 0.75 * len(column) and high <= 1.2 * len(column) + 1


def _is_numbering(column: Series, many: int) -> bool:
    """Whole numbers that rise from row to row with few gaps, as numbers of families or visits do,
    of which several rows may have one."""
    dense = float(column.max()) - float(column.min()) <= 3 * many
    return many >= 20 and dense and bool(column.is_monotonic_increasing)


def _is_grid(column: Series) -> bool:
    counts = column.value_counts().sort_index()
    steps = counts.index.to_series().diff().dropna()
    even = float(steps.max()) - float(steps.min()) <= 1e-6 * float(steps.max())
    least, most = int(counts.min()), int(counts.max())
    return even and ((least >= 5 and most <= 1.5 * least) or least == most >= 2)


def _text(filled: Series) -> str:
    counts = filled.value_counts()  # what is looked at is each text, once
    texts = counts.index.to_series().astype(str)
    if len(counts) < 2:
        return "constant"
    if int(texts.str.len().max()) > LONGEST or not all(map(str.isprintable, texts)):
        return "text"
    figures = texts.str.fullmatch(r"[-+<>=]*[\d.,:/\s-]*\d[.%]?|[-+]?inf").to_numpy()
    if int(counts.to_numpy()[figures].sum()) > 0.5 * len(filled):
        return "code"
    if len(counts) <= min(GROUPS, len(filled) // 3):
        return "group"
    if len(counts) == len(filled):
        return "name" if len(counts) <= KEYS else "text"
    return "key" if len(counts) <= KEYS else "text"


def of_calendar(texts: Iterable[Any]) -> bool:
    """Whether texts are names of days or months, or begin with a year."""
    listed = [str(v).strip().rstrip(".").lower() for v in texts]
    hits = sum(speaks_of([w], "days") or bool(re.match(r"(1[5-9]|20)\d\d\b", w)) for w in listed)
    return bool(listed) and hits > 0.9 * len(listed)


def of_many_things(name: str, texts: Iterable[str], described: str = "") -> bool:
    """Whether a column holds values of several things, which another column names, as in a long
    table: `variable, value`. A mean over them says nothing."""
    several = speaks_of(words_of(name), "any_value") or speaks_of(words_of(described), "of_what")
    return several and any(speaks_of(words_of(t), "of_what") for t in texts)


def is_unit(name: str) -> bool:
    """Whether a column says in which unit the numbers of a row are; no `business unit`."""
    words = words_of(name)
    return bool(words) and all(speaks_of([w], "unit") for w in words)


_FREQUENCY = re.compile(r"(?i)\W*(the )?freq(uency|uencies)?\W*$")  # of a cell, by itself
_CASES = re.compile(
    r"(?i)\b(number|count) of (\w+ )?(cases|subjects|people|persons|individuals|respondents|"
    r"observations|patients|men|women|children)\b"
)


def counts_cases(name: str, described: str = "") -> bool:
    """Whether a column of whole numbers says how many cases a row stands for."""
    return speaks_of(words_of(name), "cells") or bool(_CASES.search(described))


def are_cells(name: str, described: str, sizes: Sequence[int], rows: int) -> bool:
    """Whether rows are the cells of a table by categories, in which a column counts the cases: a
    mean over cells says nothing of the cases. `sizes`: of every other column that counts nothing,
    how many different values it has; no two rows have the same ones."""
    if _FREQUENCY.match(name) or _FREQUENCY.match(described):
        return True
    if not sizes or not counts_cases(name, described):
        return False
    crossed = prod(sizes) <= 2 * rows
    often = len(sizes) > 1 and max(sizes) <= GROUPS and rows >= 8 * max(sizes)
    return crossed or often


def _sizes(frame: Frame, names: list[str]) -> list[int]:
    """How many values each column has that numbers no rows; none where two rows have the same."""
    keys = frame[[n for n in names if not is_running(frame[n])]].astype(str)
    return [] if keys.empty or keys.duplicated().any() else [int(keys[c].nunique()) for c in keys]


def stands_for(column: Series, names: Series) -> bool:
    """Whether whole numbers are codes of the names beside them: each name, found in several rows,
    has a number of its own."""
    known = column.notna() & names.notna()
    one, two = column[known], names[known]
    count = one.nunique()
    if not DISTINCT <= count <= len(one) / 2 or two.nunique() != count:
        return False
    return bool((one.groupby(two).nunique() == 1).all()) and bool((one == one.round()).all())


# --- which column is the time of a table, and whether its rows are the points of a series


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
