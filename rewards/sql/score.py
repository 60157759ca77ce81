"""Scoring one query: the last fenced block of an answer, what it returns on the task's database,
and on hidden databases of the same schema.

What this module imports travels with an exported task.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, cast

from assay.task import Answer, Score, Task, TaskError, unscored
from rewards.sql.data import (
    ROUNDING,
    Cell,
    Database,
    Focus,
    Row,
    Stored,
    cell_of,
    hidden_database,
    read_tables,
    unpacked,
)
from rewards.sql.run import Failed, RunnerLost, run
from rewards.weights import SqlReward

# ---- results compared
# Whether two results of queries are equal.
#
# The outcome reads as the test-suite evaluation of Spider does (Zhong, Yu, Klein 2020,
# github.com/taoyds/test-suite-sql-eval, `exec_eval.result_eq`): names of columns do not count, nor
# does their order (one exchange of columns must fit all rows), duplicates count, and the order of
# rows counts where the question asks for one. Two empty results are equal. `bird_equal` is the
# reading of BIRD: two sets of rows.
#
# Three things are read more kindly than there. Numbers that are computed are equal within
# `TOLERANCE`: whole numbers are equal only if they are equal, and so is a number that stands in the
# database. A date at midnight is its date. Texts are compared under Unicode's NFC. `published=True`
# turns all off.


TOLERANCE = 1e-6  # relative, of computed fractions; as for exact numbers of the other families
_MOST = 0.01  # absolute: a millionth of a large number would be many of its units
_WHOLE = 2.0**53  # from there on every float is a whole number
_TRIES = 2_000  # exchanges of columns that are tried
_PAIRED = 2_000  # rows up to which every pair of unequal rows may be looked at
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?")

Same = Callable[[Cell, Cell], bool]


_NOTHING = Stored()


def same_cell(gold: Cell, said: Cell, published: bool = False, known: Stored = _NOTHING) -> bool:
    """Tell whether two cells are equal: NULL equals NULL alone, bytes equal bytes, text equals
    text (never a number), numbers as the head of this file says."""
    if isinstance(gold, int | float) and isinstance(said, int | float):
        return gold == said or (not published and _near(gold, said, known))
    if type(gold) is not type(said):
        return False
    if isinstance(gold, str) and isinstance(said, str) and not published:
        return gold == said or _text(gold) == _text(said)
    return gold == said


def _near(gold: float, said: float, known: Stored) -> bool:
    """Whether two unequal numbers may be one, computed in two ways."""
    if isinstance(gold, int) and isinstance(said, int):
        return False
    try:
        size, apart = max(abs(float(gold)), abs(float(said))), abs(gold - said)
    except OverflowError:  # a whole number beyond every float
        return False
    if not math.isfinite(apart) or (apart >= 1 and size < _WHOLE):
        return False
    rounding = ROUNDING * size
    if isinstance(gold, int) or isinstance(said, int) or gold in known.fractions:
        return apart <= min(rounding, _MOST)
    return apart <= max(rounding, min(TOLERANCE * size, _MOST), known.least)


def _text(text: str) -> str:
    found = _MIDNIGHT.fullmatch(text)
    return found.group(1) if found else unicodedata.normalize("NFC", text)


def same_row(one: Row, two: Row, same: Same = same_cell) -> bool:
    """Tell whether two rows are as long and equal cell by cell."""
    return len(one) == len(two) and all(map(same, one, two))


def equal(
    gold: Sequence[Row],
    said: Sequence[Row],
    ordered: bool,
    published: bool = False,
    known: Stored = _NOTHING,
) -> bool:
    """Tell whether two results are the same under some exchange of the columns of `said`;
    `ordered`: rows in the same order, else as a multiset. `known`: what stands in the database.
    `published`: as the test-suite evaluation of Spider compares."""
    if not gold and not said:
        return True
    if len(gold) != len(said) or len(gold[0]) != len(said[0]):
        return False
    same = partial(same_cell, published=published, known=known)
    check = partial(_in_order if ordered else _as_multiset, same=same)
    columns = len(gold[0])
    if columns == 1:
        return check(gold, said)
    for exchange in islice(_exchanges(gold, said, same), _TRIES):
        if check(gold, [tuple(row[at] for at in exchange) for row in said]):
            return True
    return False


def bird_equal(gold: Sequence[Row], said: Sequence[Row]) -> bool:
    """Tell whether two results are equal by BIRD's execution accuracy: as sets of rows, columns
    in their order."""
    return set(gold) == set(said)


def _exchanges(gold: Sequence[Row], said: Sequence[Row], same: Same) -> Iterator[tuple[int, ...]]:
    """For every column of gold a column of `said` that holds the same values, each once. Of
    columns that are the same throughout, one order is enough."""
    theirs = list(zip(*said, strict=True))
    fits = [
        [at for at, own in enumerate(theirs) if _same_values(column, own, same)]
        for column in zip(*gold, strict=True)
    ]

    def rest(place: int, taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if place == len(fits):
            yield taken
            return
        tried: list[tuple[Cell, ...]] = []
        for at in fits[place]:
            if at in taken or any(_identical(theirs[at], other) for other in tried):
                continue
            tried.append(theirs[at])
            yield from rest(place + 1, (*taken, at))

    yield from rest(0, ())


def _identical(one: Sequence[Cell], two: Sequence[Cell]) -> bool:
    return all(type(a) is type(b) and a == b for a, b in zip(one, two, strict=True))


def _same_values(one: Sequence[Cell], two: Sequence[Cell], same: Same) -> bool:
    return _as_multiset([(v,) for v in one], [(v,) for v in two], same)


def _in_order(gold: Sequence[Row], said: Sequence[Row], same: Same) -> bool:
    return all(same_row(a, b, same) for a, b in zip(gold, said, strict=True))


def _as_multiset(gold: Sequence[Row], said: Sequence[Row], same: Same) -> bool:
    """Rows pair up one to one. What is not exactly equal is paired within the tolerance."""
    left, right = Counter(gold), Counter(said)
    mine, theirs = list((left - right).elements()), list((right - left).elements())
    if len(mine) > _PAIRED:  # so many rows of computed numbers: side by side in their order
        mine, theirs = sorted(mine, key=_sort_key), sorted(theirs, key=_sort_key)
        return _in_order(mine, theirs, same)
    return _all_paired(mine, theirs, same)


def _sort_key(row: Row) -> list[tuple[int, float, str]]:
    return [_cell_key(cell) for cell in row]


def _cell_key(cell: Cell) -> tuple[int, float, str]:
    if isinstance(cell, int | float):
        try:
            return (1, float(cell), "")
        except OverflowError:
            return (1, math.inf if cell > 0 else -math.inf, "")
    return (
        (0, 0.0, "")
        if cell is None
        else (2, 0.0, _text(cell) if isinstance(cell, str) else repr(cell))
    )


def _all_paired(mine: Sequence[Row], theirs: Sequence[Row], same: Same) -> bool:
    """Whether a matching of equal rows covers all. By augmenting paths: equality within a
    tolerance is not transitive, so the first partner that fits may be another's only one."""
    order = sorted(range(len(theirs)), key=lambda at: _sort_key(theirs[at]))
    fits: list[list[int]] = []
    for row in mine:
        found = [at for at in order if same_row(row, theirs[at], same)]
        if not found:
            return False
        fits.append(found)
    owner: dict[int, int] = {}  # of a row of theirs: the row of mine that has it
    has: dict[int, int] = {}
    for start in range(len(mine)):
        reached: dict[int, int] = {}  # a row of theirs: from which of mine
        queue = [start]
        free: int | None = None
        for row in queue:
            new = [at for at in fits[row] if at not in reached]
            reached |= dict.fromkeys(new, row)
            free = next((at for at in new if at not in owner), None)
            if free is not None:
                break
            queue += [owner[at] for at in new]
        if free is None:
            return False
        while free is not None:  # each gives up what it had for what it reached
            row = reached[free]
            owner[free], has[row], free = row, free, has.get(row)
    return True


TWINS = 3  # that a query has to be right on, unless gold says another number
MORE = 12  # that are added at most, where a constant could stand for a column of the result


LONGEST = 20_000  # characters of a query
_LABELS = ("", "sql", "sqlite", "sqlite3")
_FENCE = re.compile(r"^ {0,3}```[ \t]*(\S*)[^\n`]*$", re.MULTILINE)


@dataclass(frozen=True)
class Extracted:
    """`sql` is "" unless `why` is `ok`; else `why` says what is missing."""

    sql: str
    why: str = "ok"


def extract(text: str) -> Extracted:
    """Read the query of the last closed block of three backticks. Never raises.

    A block may be labelled `sql` or `sqlite` or have no label. `why` is `no_answer` (no closed
    block), `other_language`, `empty` or `too_long`.
    """
    marks = list(_FENCE.finditer(text)) if "```" in text else []
    blocks: list[tuple[str, str]] = []
    at = 0
    while at + 1 < len(marks):
        opening, closing = marks[at], marks[at + 1]
        if closing.group(1):  # an opening that nothing closes, then another
            at += 1
            continue
        blocks.append((opening.group(1).lower(), text[opening.end() : closing.start()]))
        at += 2
    if not blocks:
        return Extracted("", "no_answer")
    label, body = blocks[-1]
    sql = body.strip()
    if label not in _LABELS:
        return Extracted("", "other_language")
    if not sql:
        return Extracted("", "empty")
    return Extracted(sql) if len(sql) <= LONGEST else Extracted("", "too_long")


def fenced(sql: str) -> str:
    """Write the message that hands in a query; `extract(fenced(sql)).sql == sql` for a trimmed
    query without a line that begins with a fence."""
    return f"```sql\n{sql}\n```"


@dataclass(frozen=True)
class Case:
    """A database and what gold returns there."""

    database: Database
    rows: list[Row]


@dataclass(frozen=True, eq=False)
class Gold:
    """A task's gold as it is read: `focus` and `seed` say which hidden databases there are."""

    sql: str
    ordered: bool
    database: Database
    focus: tuple[Focus, ...]
    seed: int
    twins: int
    result: list[Row] | None


def read_gold(gold: Mapping[str, Any]) -> Gold:
    """Read a task's gold, from a cache. Raises `TaskError` naming the field that cannot be used."""
    key = (gold.get("sql"), gold.get("ordered"), gold.get("seed", 0), gold.get("twins", TWINS))
    try:
        rest = [gold.get("database"), gold.get("tables"), gold.get("focus"), gold.get("result")]
        return _read(*key, *(v if isinstance(v, str) else json.dumps(v) for v in rest))
    except (TypeError, RecursionError):
        raise TaskError("gold holds values that no task may hold") from None


@lru_cache(maxsize=512)
def _read(
    sql: Any, ordered: Any, seed: Any, twins: Any, database: str, tables: str, focus: str, rows: str
) -> Gold:
    if not isinstance(sql, str) or not sql.strip():
        raise TaskError("gold field 'sql' is missing; give the query there")
    if not isinstance(ordered, bool):
        raise TaskError(
            "gold field 'ordered' is missing; true where the question asks for an order"
        )
    if not isinstance(seed, int) or not isinstance(twins, int) or not 0 <= twins <= 20:
        raise TaskError("gold fields 'seed' and 'twins' are whole numbers; twins 0 to 20")
    if database == "null" and tables == "null":
        raise TaskError("gold has no 'database' (packed) and no 'tables' (a list)")
    found = read_tables(json.loads(tables)) if database == "null" else unpacked(database)
    return Gold(sql, ordered, found, _focus(json.loads(focus)), seed, twins, _rows(rows))


def _focus(found: Any) -> tuple[Focus, ...]:
    try:
        return tuple((str(t), str(c), cast("Cell", v)) for t, c, v in found or ())
    except (TypeError, ValueError):
        raise TaskError("gold field 'focus': wanted [table, column, value] entries") from None


def _rows(text: str) -> list[Row] | None:
    found: Any = json.loads(text)
    if found is None:
        return None
    if not isinstance(found, list) or not all(
        isinstance(r, list) for r in cast("list[Any]", found)
    ):
        raise TaskError("gold field 'result' is no list of rows")
    return [tuple(map(cell_of, row)) for row in cast("list[list[Any]]", found)]


@lru_cache(maxsize=512)
def case_of(gold: Gold, number: int | None) -> Case:
    """Run gold on the task's own database (None) or on one of the hidden ones; cached. Raises
    `RunnerLost` where gold does not run, or returns here something else than was recorded."""
    base = gold.database
    hidden = number is not None
    database = hidden_database(base, gold.focus, gold.seed, number) if hidden else base
    rows = run(database, gold.sql)
    if isinstance(rows, Failed):
        raise RunnerLost(f"gold does not run with this SQLite: {rows.why}")
    if not hidden and gold.result is not None and not equal(gold.result, rows, gold.ordered):
        raise RunnerLost("gold returns other rows with this SQLite than were recorded")
    return Case(database, rows)


@lru_cache(maxsize=512)
def count_hidden(gold: Gold) -> int:
    """Count the hidden databases that a query is run on: as many as gold says, and more as long
    as one value stands in a column of gold's result throughout (the data, all of them so far).
    Raises `RunnerLost`."""
    count = gold.twins
    if not count:
        return 0
    results = [case_of(gold, number).rows for number in (None, *range(count))]
    asked = {value for _, _, value in gold.focus}
    while count < gold.twins + MORE and constants(results) - asked:
        results.append(case_of(gold, count).rows)
        count += 1
    return count


def constants(results: Sequence[Sequence[Row]]) -> set[Cell]:
    """Collect the values that a column of these results has in every row of each."""
    rows = [row for result in results for row in result]
    columns = list(zip(*rows, strict=True))
    return {
        column[0] for column in columns if all(same_cell(column[0], cell) for cell in column[1:])
    }


def right_on(case: Case, sql: str, ordered: bool) -> bool:
    """Tell whether a query gives gold's rows there. Raises `RunnerLost`."""
    rows = run(case.database, sql)
    return not isinstance(rows, Failed) and equal(
        case.rows, rows, ordered, known=case.database.stored
    )


def score_sql(task: Task, answer: Answer, weights: SqlReward) -> Score:
    """Score the query in the last fenced block, run on the task's database and on the hidden
    ones."""
    return score_query(task.gold, answer.text, answer.truncated, weights)


def score_query(found: Mapping[str, Any], text: str, truncated: bool, weights: SqlReward) -> Score:
    """Score a message against gold. `outcome` is 0 or 1: execution accuracy on the task's database
    (`compare.equal`). `reward`: 1 only where the query is right on every hidden database too, else
    `weights.runs` where it runs.

    Raises `TaskError` for gold that cannot be used; never for what a model wrote.
    """
    gold = read_gold(found)
    said = extract(text)
    parts = {"runs": 0.0, "twins": 0.0, "published": 0.0, "bird": 0.0}
    try:
        if said.why != "ok":
            case_of(gold, None)  # gold that cannot be had gives no outcome, whatever was answered
            why = "truncated" if truncated and said.why == "no_answer" else said.why
            return Score(0.0, 0.0, parts, why)
        return _scored(gold, said.sql, parts, weights)
    except RunnerLost as lost:
        return unscored(str(lost))


def _scored(gold: Gold, sql: str, parts: dict[str, float], weights: SqlReward) -> Score:
    case = case_of(gold, None)
    rows = run(case.database, sql)
    if isinstance(rows, Failed):
        return Score(0.0, 0.0, parts, f"{rows.error}: {rows.why}")
    parts["runs"] = 1.0
    parts["published"] = float(equal(case.rows, rows, gold.ordered, published=True))
    parts["bird"] = float(bird_equal(case.rows, rows))
    known = case.database.stored
    if not equal(case.rows, rows, gold.ordered, known=known):
        order = gold.ordered and equal(case.rows, rows, False, known=known)
        return Score(0.0, weights.runs, parts, "wrong_order" if order else "wrong")
    count = count_hidden(gold)
    right = sum(right_on(case_of(gold, number), sql, gold.ordered) for number in range(count))
    parts["twins"] = right / count if count else 1.0
    if right < count:
        return Score(1.0, weights.runs, parts, "only_these_values")
    return Score(1.0, 1.0, parts)
