"""Which columns of numbers are measured, and which of them may be added up.

The rule, in this order:
1. A column that names, orders or places rows is no measure, whatever its numbers: identifiers,
   codes, ranks, parts of a date, bounds of an interval, coordinates (by a word of its name or
   description); a running number, also one that several rows share; the whole numbers from 1 to
   the number of rows; a grid (evenly spaced values, each as often as the others); whole numbers
   with few different values (answers on a scale, classes; under a name of money those up to 30)
   unless the name says what is counted, or under a name of things that rows belong to ("site").
   Nor is a column whose name says nothing without a description ("v1", "x", "lc_ly_1": no word of
   three letters), or that holds values of several things, named in another column.
2. A measure may be summarised by mean, median, largest and standard deviation.
3. It may be added up only where its name or description says that it is an amount (people,
   cases, money, area …), no word of it says a rate, price, temperature or average, no value is
   negative, and not all values lie between 0 and 1.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Literal

Measure = Literal["", "mean", "total"]
LEAST_DISTINCT = 8
SCALE_MOST = 12  # whole numbers with no more different values are a scale or a code


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES_ROWS = _words(
    """
    id ids uid fid gid pid sid code codes index idx key no nr num row rows rowname rownames rownum
    obs observation case subject patient seq sequence serial lat latitude lon long lng longitude
    coordinate coordinates coord coords x y z xcoord ycoord easting northing utm zip zipcode
    postcode postal fips phone tel isbn issn month months day days weekday week hour minute
    quarter date dates year yr years decade dob rank ranking ranks order ordering position place
    class classes category cat type group grp cluster level levels factor treatment trt block plot
    replicate rep stratum strata fold flag dummy sex gender race zone district ward line page
    season session wave round period step lag version status indicator label target hhid idnum
    number episode start end begin beginning stop from until dose dosage
    """
)
_AMOUNTS = _words(
    """
    count counts cases deaths death births population pop inhabitants people persons visitors
    passengers sales revenue revenues amount amounts quantity qty production produced exports
    export imports import votes goals wins losses runs hits homeruns touchdowns spending
    expenditure expenditures expenses cost costs area acres hectares tons tonnes barrels units
    orders accidents crashes crimes arrests offences complaints fires burned injuries injured
    killed fatalities killings tickets downloads views enrolled enrollment enrolment students
    employees workers employment vehicles cars houses households claims purchases donations budget
    harvest catch catches emissions consumption rainfall precipitation games appearances murders
    assaults rapes robberies patients samples total totals shipments arrivals departures
    """
)
_RATES = _words(
    """
    rate rates ratio ratios percent percentage pct perc share shares proportion prop fraction per
    index score scores mean average avg median density speed velocity temp temperature
    temperatures degrees price prices age ages height log ln prob probability chance grade rating
    ratings gpa growth change diff difference yield std sd var variance error deviation quantile
    percentile z level capita mpg kmh ph hour efficiency relative pc normalized
    years year months days hours minutes seconds points cup length lngth width height depth
    thickness diameter circumference
    """
)
# things that rows belong to: whole numbers under such a name tell one from the other
_ENTITIES = _words(
    """
    site sites litter gen genotype family station village county school student location batch
    machine cow pig animal tree nest bird dog person individual farm field store shop customer
    account ticket invoice product item question judge rater plot sample household area_code cd
    hospital doctor team player ward precinct region city state country
    """
)
_SAID_CODE = _words(
    """
    id identifier identification code coded codes factor indicator dummy index rank ranks ranked
    ranking interval category categories categorical scale likert
    coordinate coordinates latitude longitude julian
    """
)
_OFTEN = 5  # rows with each value of a grid
_MONEY = _words("income incomes earnings salary salaries wage wages price prices wealth rent")
_CLASSES = 30  # whole numbers of money up to here are classes
_OPAQUE = re.compile(r"[A-Za-z]\d*|[A-Za-z]{1,3}[_.]?\d+")  # says nothing: v1, X, z10
_OF_COUNT = re.compile(r"(?i)\b(?:number|no|num|n)[ _.]+of\b|^n[_.]|\btotal\b|^num[_.]")


def words_of(text: str) -> list[str]:
    """The words of a name: parted at marks, digits and changes of case, in lower case."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return [w.lower() for w in re.findall(r"[^\W\d_]+", parted)]


def counted(name: str, described: str = "") -> bool:
    """Whether a name, or what is said of the column, speaks of an amount that adds up."""
    words = {*words_of(name), *words_of(described.partition("(")[0])}
    if words & _RATES or "%" in name + described or "/" in name:
        return False
    return bool(words & _AMOUNTS or _OF_COUNT.search(name) or _OF_COUNT.search(described))


def measure(name: str, column: Any, described: str = "") -> Measure:
    """What may be computed of a column of numbers (a pandas Series without missing values): "" for
    nothing, "mean" for all but a total, "total" for all."""
    amount = counted(name, described)
    if not amount and set(words_of(name)) & _NAMES_ROWS:
        return ""
    if set(words_of(described)) & _SAID_CODE or (not described and _says_nothing(name)):
        return ""
    distinct = column.nunique()
    if distinct < LEAST_DISTINCT:
        return ""
    whole = bool((column == column.round()).all())
    if whole and not amount and set(words_of(name)) & _ENTITIES:
        return ""
    if whole and distinct <= SCALE_MOST and not amount:
        return ""
    low, high = float(column.min()), float(column.max())
    if whole and set(words_of(name)) & _MONEY and low >= 0 and high <= _CLASSES:
        return ""
    if whole and (is_running(column) or _is_clock(column)):
        return ""
    if whole and 0 <= low <= 3 and _is_rank(column, distinct, high):
        return ""
    if not amount and (_is_grid(column) or (whole and _is_numbering(column, distinct))):
        return ""
    return "total" if amount and low >= 0 and high > 1 else "mean"


_ANY_VALUE = _words("value values val measurement reading result score amount estimate obs_value")
_OF_WHAT = _words(
    "variable variables indicator indicators measure metric series parameter statistic item key"
)


def of_many_things(name: str, texts: Iterable[str], described: str = "") -> bool:
    """Whether a column holds values of several things, which another column names, as in a long
    table: `variable, value`. A mean over them says nothing."""
    several = set(words_of(name)) & _ANY_VALUE or set(words_of(described)) & _OF_WHAT
    return bool(several) and any(set(words_of(t)) & _OF_WHAT for t in texts)


_CELLS = _words("freq frequency count counts n number")
_FREQUENCY = re.compile(r"(?i)\W*(the )?freq(uency|uencies)?\W*$")  # of a cell, by itself
_CASES = re.compile(
    r"(?i)\b(number|count) of (\w+ )?(cases|subjects|people|persons|individuals|respondents|"
    r"observations|patients|men|women|children)\b"
)
_CODED_LEAST = 8  # names that numbers stand for
_VALUES_MOST, _CELLS_EACH = 60, 8  # of a column that cases are counted by


def counts_cases(name: str, described: str = "") -> bool:
    """Whether a column of whole numbers says how many cases a row stands for."""
    return bool(set(words_of(name)) & _CELLS or _CASES.search(described))


def are_cells(name: str, described: str, sizes: Sequence[int], rows: int) -> bool:
    """Whether rows are the cells of a table by categories, in which a column counts the cases: a
    mean over cells says nothing of the cases. `sizes`: of every other column that counts nothing,
    how many different values it has; no two rows have the same ones."""
    if _FREQUENCY.match(name) or _FREQUENCY.match(described):
        return True
    if not sizes or not counts_cases(name, described):
        return False
    crossed = prod(sizes) <= 2 * rows
    often = len(sizes) > 1 and max(sizes) <= _VALUES_MOST and rows >= _CELLS_EACH * max(sizes)
    return crossed or often


def stands_for(column: Any, names: Any) -> bool:
    """Whether whole numbers are codes of the names beside them: each name, found in several rows,
    has a number of its own."""
    known = column.notna() & names.notna()
    one, two = column[known], names[known]
    count = one.nunique()
    if not _CODED_LEAST <= count <= len(one) / 2 or two.nunique() != count:
        return False
    return bool((one.groupby(two).nunique() == 1).all()) and bool((one == one.round()).all())


def is_running(column: Any) -> bool:
    """Whether a column numbers the rows."""
    if column.dtype.kind not in "iuf" or column.isna().any():
        return False
    return bool(column.is_unique) and bool((column.diff().dropna() == 1).all())


def opaque_group(name: str) -> bool:
    """Whether the name of a column to group by says nothing without a description (`e2b`)."""
    return bool(_OPAQUE.fullmatch(name)) or (
        any(map(str.isdigit, name)) and max(map(len, words_of(name)), default=0) < 3
    )


def _says_nothing(name: str) -> bool:
    return bool(_OPAQUE.fullmatch(name)) or max(map(len, words_of(name)), default=0) < 3


def _is_clock(column: Any) -> bool:
    """Whether whole numbers are times of a day, such as 930 and 2345."""
    low, high = float(column.min()), float(column.max())
    fives = bool((column % 5 == 0).all()) and bool((column % 100 < 60).all())
    return fives and low >= 0 and 300 < high <= 2400 and column.nunique() >= LEAST_DISTINCT


def _is_rank(column: Any, distinct: int, high: float) -> bool:
    """Nearly every whole number up to the number of rows, nearly each once; some rows may lack."""
    return distinct >= 0.75 * len(column) and high <= 1.2 * len(column) + 1


def _is_numbering(column: Any, distinct: int) -> bool:
    """Whole numbers that rise from row to row with few gaps, as numbers of families or visits do,
    of which several rows may have one."""
    dense = float(column.max()) - float(column.min()) <= 3 * distinct
    return distinct >= 20 and dense and bool(column.is_monotonic_increasing)


def _is_grid(column: Any) -> bool:
    """Evenly spaced values, each as often as the others: what was chosen, and not measured."""
    counts = column.value_counts().sort_index()
    steps = counts.index.to_series().diff().dropna()
    even = float(steps.max()) - float(steps.min()) <= 1e-6 * float(steps.max())
    least, most = int(counts.min()), int(counts.max())
    return even and ((least >= _OFTEN and most <= 1.5 * least) or least == most >= 2)
