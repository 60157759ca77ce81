"""What the cells of an original mean as numbers and as words, decided column by column in SQL.

A mark is decided by cells that allow one reading only: in `36,0` the comma cannot group thousands,
in `1.234.567` the point can do nothing else. `1,234` alone allows both; then the other columns of
the file decide, and where these say nothing either, the column is not provable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from data_gen.dare.second.original import Opened, Unprovable

# Words that may mean "no value"; in a column of words they count as missing on both sides.
MISSING = (
    *("na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "null", "none", "nil", "missing"),
    *("", "-", "--", "?", ".", "..", "#n/a n/a", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind"),
)
_HABITS = (-99.9, -999.9, -9999.9, -99.99, -999.99, 999.9, -88.0, -888.0, -777.0, -32768.0, -9.0)
_NUMERIC = ("DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT", "DECIMAL")
_SIGN, _E, _GROUP = r"[+-]?", r"([eE][+-]?\d+)?", r"[ \x{A0}\x{202F}\x{2009}'\x{2019}]"


def _marked(mark: str, other: str) -> dict[str, str]:
    """Patterns of cells for one decimal mark, `other` being what may then group thousands."""
    return {
        # digits that `mark` cannot group, or groups of `other` before it
        "certain": rf"{_SIGN}(\d{{1,3}}({other}\d{{3}})+{mark}\d*|(\d{{4,}}|0*){mark}\d+{_E}"
        rf"|\d+{mark}(\d{{0,2}}|\d{{4,}}){_E}|\d+{mark}\d+[eE][+-]?\d+"
        rf"|\d{{1,3}}({_GROUP}\d{{3}})+{mark}\d*|\d{{1,3}}({other}\d{{3}}){{2,}})",
        # `1,234`: a fraction, or a thousand
        "open": rf"{_SIGN}[1-9]\d{{0,2}}{mark}\d{{3}}",
        # all that can be read once the mark is known
        "valid": rf"{_SIGN}((\d+|\d{{1,3}}(({other}|{_GROUP})\d{{3}})+)({mark}\d*)?|{mark}\d+){_E}",
    }


_POINT, _COMMA = _marked(r"\.", ","), _marked(",", r"\.")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _matches(cell: str, pattern: str) -> str:
    return f"regexp_full_match({cell}, {_quoted(pattern)})"


def is_number_type(kind: str) -> bool:
    return kind.lstrip("U").startswith(_NUMERIC)


def number(table: Opened, name: str) -> str:
    """SQL for a column's numbers, NULL where it has none. Raises `Unprovable`."""
    if (name, "number") not in table.decided:
        made = _number(table, name)
        gone = _gone(table, name)
        if gone is None:
            made = _without_codes(table, made)
        for word in gone or ():
            made = f"nullif({made}, {word!r}::double)"
        table.decided[name, "number"] = made
    return table.decided[name, "number"]


def _gone(table: Opened, name: str) -> list[float] | None:
    """The numbers that the user says mean no value in a column; None where nothing is said."""
    by_column = cast("dict[str, Any]", table.said.get("missing", {}))
    said = by_column.get(name, by_column.get("*"))
    if said is None:
        return None
    numbers: list[float] = []
    listed = cast("list[Any]", said if isinstance(said, list) else [said])
    for word in listed:
        try:
            numbers.append(float(word))
        except (TypeError, ValueError):
            continue  # a word is no number anyway
    return numbers


def _number(table: Opened, name: str) -> str:
    cell = table.column(name)
    kind = table.types[cell]
    if is_number_type(kind):
        return f"nullif(nullif(nullif({cell}::double, 'nan'), 'inf'), '-inf')"
    if kind != "VARCHAR":
        raise Unprovable(f"{name!r} holds no numbers but {kind.lower()}")
    bare = _bare(cell)
    mark = _mark(table, name, bare)
    marks = _POINT if mark == "." else _COMMA
    grouped = f"{'[,' if mark == '.' else '[.'}{_GROUP[1:]}"
    digits = f"replace(regexp_replace({bare}, {_quoted(grouped)}, '', 'g'), ',', '.')"
    made = f"case when {_matches(bare, marks['valid'])} then try_cast({digits} as double) end"
    said = ", ".join(map(_quoted, MISSING))
    known, read, words = table.one(
        f"select count(*), count({made}), count(distinct case when {made} is null then {bare} end) "
        f"from o where {cell} is not null and lower({bare}) not in ({said})"
    )
    if read < 0.5 * known or (words > 3 and read < 0.9 * known):
        raise Unprovable(f"{name!r} is no column of numbers: {known - read} of {known} cells")
    return made


def _bare(cell: str) -> str:
    """SQL for a cell without a sign of money or per cent at its ends."""
    before = rf"regexp_replace(trim({cell}), '^([+-]?) ?[$€£] ?', '\1')"
    return f"regexp_replace({before}, ' ?[$€£%]$', '')"


def _mark(table: Opened, name: str, bare: str) -> str:
    """The decimal mark of a column: '.' or ','."""
    cell = table.column(name)
    if table.said.get("decimal") in (".", ","):
        return str(table.said["decimal"])
    read, commas, points = table.one(
        f"select count(*) filter (where try_cast({bare} as double) is null), "
        f"count(*) filter (where contains({bare}, ',')), "
        f"count(*) filter (where contains({bare}, '.')) from o where {cell} is not null"
    )
    if not commas and (not points or (not read and table.sep in (",", ""))):
        return "."
    point, comma, one, other, plain = table.one(
        f"select count(*) filter (where {_matches(bare, _POINT['certain'])}), "
        f"count(*) filter (where {_matches(bare, _COMMA['certain'])}), "
        f"count(*) filter (where {_matches(bare, _POINT['open'])}), "
        f"count(*) filter (where {_matches(bare, _COMMA['open'])}), "
        f"count(*) filter (where {_matches(bare, _SIGN + r'[1-9][0-9]{3,}')}) "
        f"from o where {cell} is not null"
    )
    if point and comma:
        raise Unprovable(f"{name!r} holds decimal points and decimal commas")
    if point or comma:
        return "." if point else ","
    if one and other:
        raise Unprovable(f"{name!r}: its points and its commas may both group thousands")
    if plain:  # whole thousands stand there without a mark, so marks do not group
        return "," if other else "."
    if not one and not other:
        return "."
    return _by_the_file(table, name, bool(other))


def _by_the_file(table: Opened, name: str, comma: bool) -> str:
    """The mark of a column whose cells allow both readings, by the other columns of the file."""
    points, commas = evidence(table)
    if points and commas:
        raise Unprovable(f"{name!r}: other columns hold decimal points and decimal commas")
    if points or commas:
        return "." if points else ","
    if table.sep in (",", "") and not comma:
        return "."
    if table.sep == "," and comma:  # quoted, because it would separate: it groups
        return "."
    shown = "1,234" if comma else "1.234"
    raise Unprovable(f"{name!r}: numbers such as {shown} allow two readings")


def evidence(table: Opened) -> tuple[int, int]:
    """Cells of the file's start that hold a decimal point, and a decimal comma, for certain."""
    cells = [cell for cell, kind in table.types.items() if kind == "VARCHAR"]
    sums: list[str] = []
    for marks in (_POINT, _COMMA):
        counts = (
            f"count(*) filter (where {_matches(f'trim({c})', marks['certain'])})" for c in cells
        )
        sums.append(" + ".join(counts) or "0")
    found = table.one(f"select {', '.join(sums)} from (select * from o order by rn limit 3000)")
    return int(found[0]), int(found[1])


def _without_codes(table: Opened, made: str) -> str:
    """The same without a code of nines (-999, 9999) far outside of the other values."""
    low, high = table.one(f"select min({made}), max({made}) from o")
    for code in (low, high):
        if code is None or not _nines(code):
            continue
        rest_low, rest_high = table.one(
            f"select min(v), max(v) from (select {made} as v from o) where v != {code!r}"
        )
        if rest_low is None:
            continue
        far = abs(code) >= 10 * max(abs(rest_low), abs(rest_high))
        if (code <= -99 and (rest_low >= 0 or far)) or (code >= 999 and far):
            made = f"nullif({made}, {code!r})"
    return made


def _nines(value: float) -> bool:
    digits = f"{abs(value):.0f}"
    return value == int(value) and len(digits) >= 2 and set(digits) == {"9"}


def open_codes(table: Opened, name: str) -> list[float]:
    """Values at an end of a column that some take for a code of "no value" and others for data:
    either reading is right, if all rows follow it."""
    made = number(table, name)
    ends = table.one(f"select min({made}), max({made}) from o")
    if _gone(table, name) is not None:
        return []
    return [v for v in ends if v is not None and (_nines(v) or v in _HABITS)]


def words(table: Opened, name: str) -> str:
    """SQL for a column's cells as text with single spaces, NULL for what may mean no value.
    Raises `Unprovable` for numbers that the first reader took for words."""
    if (name, "words") not in table.decided:
        table.decided[name, "words"] = _words(table, name)
    return table.decided[name, "words"]


def _words(table: Opened, name: str) -> str:
    cell = table.column(name)
    kind = table.types[cell]
    if kind == "VARCHAR":
        made = tidy_words(cell)
        marked = rf"({_COMMA['valid']}|{_POINT['valid']})"
        known, marks = table.one(
            f"select count({made}), count(*) filter (where {_matches(made, marked)} "
            f"and try_cast({made} as double) is null) from o"
        )
        if known and marks == known and name not in table.said.get("text", ()):
            raise Unprovable(f"{name!r} holds numbers, which were taken for words")
        return made
    if is_number_type(kind):
        whole = f"{cell}::double = round({cell}::double)"
        cell = f"case when {whole} then {cell}::bigint::varchar else {cell}::varchar end"
    return tidy_words(f"({cell})::varchar")


def tidy_words(cell: str, kept: Sequence[str] = ()) -> str:
    """SQL for text as it is compared: single spaces; `true` as `True`; no value as NULL, but for
    words that are `kept`."""
    bare = f"regexp_replace(trim({cell}), '\\s+', ' ', 'g')"
    said = ", ".join(_quoted(word) for word in MISSING if word not in kept)
    return (
        f"case when lower({bare}) in ({said}) then null "
        f"when lower({bare}) = 'true' then 'True' when lower({bare}) = 'false' then 'False' "
        f"else {bare} end"
    )
