"""How the text of a column becomes numbers, decided in SQL: the second way's own rules.

Which mark stands before decimals is a property of the file: a number that can be meant in one way
only decides for all. A value such as -9999 stands for "missing" where it lies far from all others.
"""

# duckdb ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from data_gen.krama.lakes.reread import Held, Shelf, ident, literal
from data_gen.krama.lakes.unproved import NotProvable

# texts that say "no value" in any column, as statistics programs write them
ABSENT = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A", "-nan")
_NINES = tuple(
    sign * value
    for sign in (1, -1)
    for value in (99.0, 999.0, 9999.0, 99999.0, 999999.0, 99.9, 999.9, 9999.9, 99.99, 999.99)
)
_SHARE = 0.6  # of the filled cells, in a column that tells how numbers are written
_FAR = 3.0

_PLAIN = r"[-+]?\d+"
_POINTED = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
_COMMAED = r"[-+]?(\d+,?\d*|,\d+)([eE][-+]?\d+)?"
_GROUPED_BY_COMMA = r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?"
_GROUPED_BY_POINT = r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?"
_NUMERAL = r"[-+]?[0-9.,]*[0-9]"  # what looks like a number in any way


def _sure(mark: str, group: str) -> str:
    """Numbers whose `mark` stands before decimals, however one reads them."""
    return "|".join(
        (
            rf"[-+]?\d*{mark}(\d{{1,2}}|\d{{4,}})",
            rf"[-+]?(0+|0\d*|\d{{4,}})?{mark}\d{{3}}",
            rf"[-+]?\d{{1,3}}({group}\d{{3}})+{mark}\d+",
            rf"[-+]?\d{{1,3}}({group}\d{{3}}){{2,}}",
            rf"[-+]?\d*{mark}\d+[eE][-+]?\d+",
        )
    )


_SURE_POINT, _SURE_COMMA = _sure(r"\.", ","), _sure(",", r"\.")


def filled(column: str) -> str:
    """The cell without blanks around it, NULL where it says that there is no value."""
    said = f"regexp_replace({ident(column)}, '^\\s+|\\s+$', '', 'g')"
    absent = ", ".join(map(literal, ABSENT))
    return f"(CASE WHEN {said} IN ({absent}) THEN NULL ELSE {said} END)"


def _bare(column: str) -> str:
    return f"regexp_replace({filled(column)}, '[$€£%\\s]', '', 'g')"


def _is(expression: str, pattern: str) -> str:
    return f"regexp_full_match({expression}, {literal(pattern)})"


def decimal_mark(con: Any, held: Held) -> str:
    """`.` or `,`, for the whole file. Raises `NotProvable` where no number tells."""
    if held.typed:
        return "."
    if held.decimal:
        return held.decimal
    marks: set[str] = set()
    open_cell = ""
    either = "|".join(
        f"(?:{p})" for p in (_POINTED, _COMMAED, _GROUPED_BY_COMMA, _GROUPED_BY_POINT)
    )
    for count, numbers, point, comma, marked in _told(con, held, either):
        if not count or numbers < _SHARE * count:
            continue
        marks |= ({"."} if point else set()) | ({","} if comma else set())
        if marked and not (point or comma):
            open_cell = open_cell or str(marked)
    if len(marks) == 2:
        raise NotProvable("numbers with both decimal marks in one file")
    if marks:
        return marks.pop()
    if open_cell and held.sep not in (",", "html"):
        raise NotProvable(f"{open_cell!r} can be read in two ways")
    return "."


def _told(con: Any, held: Held, either: str) -> list[tuple[Any, ...]]:
    """What the cells of each column tell of the mark: how many are filled, how many are numbers,
    how many texts have a sure point or a sure comma, and one number that has a mark."""
    places = ", ".join(map(str, range(len(held.columns))))
    columns = ", ".join(map(ident, held.columns))
    # one query for all columns: each of its patterns is compiled once. Each text is looked at
    # once, however often it stands there.
    cells = f"SELECT unnest([{places}]) AS k, unnest([{columns}]) AS cell FROM {held.name}"
    texts = f"SELECT k, {_bare('cell')} AS c, count(*) AS n FROM ({cells}) GROUP BY ALL"
    told = (
        f"SELECT k, c, n, {_is('c', either)} AS number, {_is('c', _SURE_POINT)} AS point, "
        f"{_is('c', _SURE_COMMA)} AS comma, {_is('c', _PLAIN)} AS plain FROM ({texts})"
    )
    found = con.execute(
        "SELECT k, coalesce(sum(n) FILTER (c IS NOT NULL), 0), "
        "coalesce(sum(n) FILTER (number), 0), count(*) FILTER (point), "
        "count(*) FILTER (comma), min(c) FILTER (number AND NOT plain) "
        f"FROM ({told}) GROUP BY k ORDER BY k"
    ).fetchall()
    return [row[1:] for row in found]


def number_in(shelf: Shelf, held: Held, column: str) -> str:
    """`number` in a table of the shelf; what the table says is asked once."""
    if held.name not in shelf.marks:
        shelf.marks[held.name] = decimal_mark(shelf.con, held)
    key = (held.name, column)
    if key not in shelf.numbers:
        shelf.numbers[key] = number(shelf.con, held, column, shelf.marks[held.name])
    return shelf.numbers[key]


def number(con: Any, held: Held, column: str, mark: str) -> str:
    """SQL that gives the number in a cell of the raw table, or NULL."""
    cell = _bare(column)
    value = _value(cell, mark)
    odd = f"c IS NOT NULL AND v IS NULL AND {_is('c', _NUMERAL)}"
    nines = ", ".join(map(repr, _NINES))
    # each text is looked at once, however often it stands there
    texts = f"SELECT DISTINCT {cell} AS c FROM {held.name}"
    some, seen, low, high = con.execute(
        f"SELECT count(*) FILTER ({odd}), list(DISTINCT v) FILTER (v IN ({nines})), "
        f"min(v) FILTER (v NOT IN ({nines})), max(v) FILTER (v NOT IN ({nines})) "
        f"FROM (SELECT c, {_value('c', mark)} AS v FROM ({texts}))"
    ).fetchall()[0]
    if some:
        ((first,),) = con.execute(
            f"SELECT c FROM (SELECT {cell} AS c, {value} AS v FROM {held.name}) WHERE {odd} LIMIT 1"
        ).fetchall()
        raise NotProvable(f"column {column!r}: {first!r} is no number with the mark {mark!r}")
    absent = [*_placeholders(seen or [], low, high), *_stated(held, column, mark)]
    if absent:
        value = (
            f"(CASE WHEN {value} IN ({', '.join(map(repr, absent))}) THEN NULL ELSE {value} END)"
        )
    return value


def _value(cell: str, mark: str) -> str:
    """SQL of the number that a text says with this decimal mark, or NULL."""
    plain, grouped, group = (
        (_POINTED, _GROUPED_BY_COMMA, ",") if mark == "." else (_COMMAED, _GROUPED_BY_POINT, ".")
    )
    bare = f"replace({cell}, {literal(group)}, '')"
    if mark == ",":
        bare = f"replace({bare}, ',', '.')"
    text = f"CASE WHEN {_is(cell, plain)} OR {_is(cell, grouped)} THEN {bare} END"
    return f"try_cast({text} AS DOUBLE)"


def _stated(held: Held, column: str, mark: str) -> list[float]:
    """Numbers that stand for "missing" by the user's word."""
    said = [*held.missing.get(column, ()), *held.missing.get("*", ())]
    found: list[float] = []
    for text in said:
        with suppress(ValueError):
            found.append(float(text.replace(",", ".") if mark == "," else text))
    return found


def _placeholders(seen: Sequence[float], low: float | None, high: float | None) -> list[float]:
    """Values of nines that lie far outside all others of the column, which lie between `low` and
    `high`."""
    if not seen or low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return []
    reach = max(abs(low), abs(high))
    negative = {v for v in seen if v < 0 and (low >= 0 or -v > _FAR * reach)}
    positive = {v for v in seen if v > 0 and v > _FAR * reach}
    return sorted(negative | positive)
