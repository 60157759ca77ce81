"""What the cells of an original mean as numbers, words and times, decided column by column in SQL.

A mark is decided by the cells of its column that allow one reading only: in `36,0` the comma cannot
group thousands, in `1.234.567` the point can do nothing else. Where a column allows two readings
and the user says nothing, it is not provable. Of times every format that reads all cells is tried;
where two of them differ (3/4/2020), or the century is not written, nothing is proved either.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from data_gen.proof.original import NOTHING, NotProvable, Opened, is_number_type, literal

_SIGN, _GROUP = r"[+-]?", r"[ \x{A0}\x{202F}\x{2009}'\x{2019}]"
# 12E3 is a code, 1.2E3 and 12e-3 are numbers
_E = r"([eE][+-]?\d+)?"
_BELOW_ZERO = tuple(float(v) for n in (9, 99, 999, 9999, 99999) for v in (-n, -n + 1, -n + 2))
_HABITS = (*_BELOW_ZERO, -66.0, -77.0, -88.0, -777.0, -888.0, -99.9, -999.9, -9999.9, -99.99)
_HABITS_HIGH = (
    *(999.9, 99.9, 9999.9, 999.99, 888.0, 8888.0, 777.0, 998.0, 9998.0),
    *(77.0, 88.0, 7777.0, 997.0, 9997.0),
)
_EXACT = 2**53
_SHORT = 3  # letters of what may be a code, as NA for Namibia


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
        "valid": rf"{_SIGN}((\d+|\d{{1,3}}(({other}|{_GROUP})\d{{3}})+)"
        rf"|(\d+|\d{{1,3}}(({other}|{_GROUP})\d{{3}})+){mark}\d*{_E}|{mark}\d+{_E}|\d+[eE][+-]\d+)",
    }


_POINT, _COMMA = _marked(r"\.", ","), _marked(",", r"\.")
_PLAIN = r"[+-]?(0|[1-9]\d{0,14})(\.\d+)?"
_CODES = (  # (pattern, what it is) of cells that look like numbers
    (r"[+-]?0\d+", "a number with a zero before it, perhaps a code"),
    (r"\d+[eE]\d+", "digits around an E, perhaps a code"),
    (r"(0?[1-9]|1[0-2])\.(19|20)\d\d", "perhaps a month and a year"),
    (r"\d{1,3}(\.\d{1,3}){3}", "perhaps an address"),
)


def _matches(cell: str, pattern: str) -> str:
    return f"regexp_full_match({cell}, {literal(pattern)})"


def number(table: Opened, name: str) -> str:
    """SQL for a column's numbers, NULL where it has none. Raises `NotProvable`."""
    if (name, "number") not in table.decided:
        made, counted = _number(table, name)
        gone = table.said.missing(name)
        if gone is None:
            _no_placeholders(table, name, counted)
        for word in _as_numbers(gone or (), table.said.decimal(name)):
            made = f"nullif({made}, {word!r}::double)"
        table.decided[name, "number"] = made
    return table.decided[name, "number"]


def _as_numbers(words: Sequence[str], decimal: str) -> list[float]:
    found: list[float] = []
    for word in words:
        with suppress(ValueError):
            found.append(float(word.replace(",", ".") if decimal == "," else word))
    return found


def _known(table: Opened, name: str, cell: str) -> str:
    """SQL: whether a cell without blanks around it says something, by the user's words for "no
    value" or else those that programs write."""
    said = table.said.missing(name)
    if said is None:
        return f"lower({cell}) not in ({', '.join(map(literal, NOTHING))})"
    return f"{cell} not in ({', '.join(map(literal, ['', *said]))})"


def _number(table: Opened, name: str) -> tuple[str, str]:
    """SQL for a column's numbers, and for its different numbers `v` with how often each is there,
    `n`."""
    cell = table.column(name)
    kind = table.types[cell]
    if is_number_type(kind):
        if not kind.startswith(("DOUBLE", "FLOAT")):
            high = table.one(f"select max(abs({cell}::hugeint)) from {table.table}")[0]
            if (high or 0) > _EXACT:
                raise NotProvable(f"{name!r} holds whole numbers of more digits than are kept")
        made = f"nullif(nullif(nullif({cell}::double, 'nan'), 'inf'), '-inf')"
        return made, f"(select {made} as v, count(*) as n from {table.table} group by v)"
    if kind != "VARCHAR":
        raise NotProvable(f"{name!r} holds no numbers but {kind.lower()}")
    written = f"regexp_replace({cell}, '^\\s+|\\s+$', '', 'g')"
    # each different cell once, beside what is left of it without a sign
    table.db.execute(
        f"create or replace temp table told as select written, {_bare('written')} as bare, n from "
        f"(select {written} as written, count(*) as n from {table.table} group by written)"
    )
    each = replace(table, table="told")
    coded = name in table.said.words("numbers")
    told = coded or table.said.decimal(name) or table.said.text("thousands")
    if not told and _all_plain(each):
        made = f"try_cast(trim({cell}, ' \t\n\r\f') as double)"
        return made, "(select try_cast(bare as double) as v, sum(n) as n from told group by v)"
    _one_sign(each, name)
    if not coded:
        _no_codes(each, name)
    mark = _mark(each, name)
    made = _meant("bare", mark, coded)
    odd = each.one(
        f"select min(written) from told where {made} is null and written is not null "
        f"and {_known(table, name, 'written')} and {_known(table, name, 'bare')}"
    )[0]
    if odd is not None:
        raise NotProvable(f"{name!r} is no column of numbers: {odd!r} is none")
    counted = f"(select {made} as v, sum(n) as n from told group by v)"
    return _meant(_bare(written), mark, coded), counted


def _all_plain(table: Opened) -> bool:
    """Whether every cell is a number as programs write it, in one way only: no code, not all of
    them months with their years, and one shows its decimal point where any has one."""
    month, whole = _CODES[2][0], _SIGN + r"[1-9][0-9]{3,}"
    cells, plain, dotted, may_group, months, large = table.one(
        f"select count(written), count(*) filter (where {_matches('written', _PLAIN)}), "
        f"count(*) filter (where contains(written, '.')), "
        f"count(*) filter (where {_matches('written', _POINT['open'])}), "
        f"count(*) filter (where {_matches('written', month)}), "
        f"count(*) filter (where {_matches('written', whole)}) from {table.table}"
    )
    sure = dotted > may_group or not may_group or large
    return cells == plain > months and sure


def _meant(bare: str, mark: str, coded: bool) -> str:
    """SQL for the number of a cell without its sign. `coded`: it may look like a code."""
    marks = _POINT if mark == "." else _COMMA
    grouped = f"{'[,' if mark == '.' else '[.'}{_GROUP[1:]}"
    digits = f"replace(regexp_replace({bare}, {literal(grouped)}, '', 'g'), ',', '.')"
    made = f"case when {_matches(bare, marks['valid'])} then try_cast({digits} as double) end"
    return f"coalesce({made}, try_cast({bare} as double))" if coded else made


def _bare(cell: str) -> str:
    """SQL for a cell without a sign of money or per cent at its ends."""
    before = rf"regexp_replace({cell}, '^([+-]?) ?[$€£] ?', '\1')"
    return f"regexp_replace({before}, ' ?[$€£%]$', '')"


def _one_sign(table: Opened, name: str) -> None:
    """Raise `NotProvable` where cells of one column have different signs of money or per cent."""
    signs = table.all(
        f"select distinct regexp_extract(written, '[$€£%]') from {table.table} "
        f"where {_matches('written', '[-+0-9$€£%., ]*[0-9][-+0-9$€£%., ]*')}"
    )
    if len(signs) > 1 and len({s for (s,) in signs} - {""}) > ("%" not in {s for (s,) in signs}):
        raise NotProvable(f"{name!r} holds numbers with different signs")
    if len(signs) > 1 and ("%",) in signs:
        raise NotProvable(f"{name!r} holds numbers with and without a sign of per cent")


def _no_codes(table: Opened, name: str) -> None:
    counts = table.one(
        f"select count(*) filter (where {_matches('bare', '.*[0-9].*')}), "
        + ", ".join(f"min(bare) filter (where {_matches('bare', p)})" for p, _ in _CODES)
        + ", "
        + ", ".join(f"count(*) filter (where {_matches('bare', p)})" for p, _ in _CODES)
        + f", max(length(bare)) filter (where {_matches('bare', '[+-]?[0-9]+')})"
        + f" from {table.table}"
    )
    all_, size = counts[0], counts[-1]
    for place, (_, what) in enumerate(_CODES):
        shown, found = counts[1 + place], counts[1 + len(_CODES) + place]
        if found and (place < 2 or found == all_):
            raise NotProvable(f"{name!r} holds {shown!r}: {what}")
    if (size or 0) > 15:
        raise NotProvable(f"{name!r} holds whole numbers of more digits than are kept")


def _mark(table: Opened, name: str) -> str:
    """The decimal mark of a column: '.' or ','."""
    if (decimal := table.said.decimal(name)) in (".", ","):
        return decimal
    if (thousands := table.said.text("thousands")) in (".", ","):
        return "," if thousands == "." else "."
    point, comma, one, other, plain = table.one(
        f"select count(*) filter (where {_matches('bare', _POINT['certain'])}), "
        f"count(*) filter (where {_matches('bare', _COMMA['certain'])}), "
        f"count(*) filter (where {_matches('bare', _POINT['open'])}), "
        f"count(*) filter (where {_matches('bare', _COMMA['open'])}), "
        f"count(*) filter (where {_matches('bare', _SIGN + r'[1-9][0-9]{3,}')}) "
        f"from {table.table}"
    )
    if point and comma:
        raise NotProvable(f"{name!r} holds decimal points and decimal commas")
    if point or comma:
        return "." if point else ","
    if not one and not other:
        return "."
    if plain and not (one and other):  # whole thousands stand there without a mark
        return "." if one else ","
    shown = "1.234" if one else "1,234"
    raise NotProvable(f"{name!r}: numbers such as {shown} allow two readings")


def _no_placeholders(table: Opened, name: str, counted: str) -> None:
    """Raise `NotProvable` where the lowest or highest values may stand for "no value": -9999, or
    999 that is far from the others or much more frequent than they are."""
    ends = table.one(f"select min(v), max(v), count(v) from {counted}")
    for value, low in ((ends[0], True), (ends[1], False)):
        if value is None or ends[2] < 2 or not _typical(value):
            continue
        times, others, rest_low, rest_high, least = table.one(
            f"select max(n) filter (where v = {value!r}), max(n) filter (where v != {value!r}), "
            f"min(v) filter (where v != {value!r}), max(v) filter (where v != {value!r}), "
            f"min(v) filter (where v not in {_HABITS!r}) "
            f"from {counted} where v is not null"
        )
        gap = rest_low - value if low else value - rest_high
        far = gap > 0.5 * (rest_high - rest_low)
        negative = value < 0 and (least is None or least >= 0)  # also of several: -8 and -9
        if negative or far or (times >= 3 and times > 2 * others):
            raise NotProvable(f"{name!r}: {value:g} may be a value, or mean that there is none")


def _typical(value: float) -> bool:
    digits = f"{abs(value):.0f}"
    nines = value == int(value) and len(digits) >= 2 and set(digits) == {"9"}
    return nines or value in _HABITS or value in _HABITS_HIGH


def text(table: Opened, name: str) -> str:
    """SQL for a column's cells as text without blanks around them, NULL where there is no value.
    Raises `NotProvable`."""
    if (name, "text") not in table.decided:
        table.decided[name, "text"] = _text(table, name)
    return table.decided[name, "text"]


def _text(table: Opened, name: str) -> str:
    cell = table.column(name)
    kind = table.types[cell]
    if is_number_type(kind):
        whole = f"{cell}::double = round({cell}::double)"
        if kind.startswith(("DOUBLE", "FLOAT")):
            cell = f"case when {whole} then {cell}::bigint::varchar else {cell}::varchar end"
        return f"({cell})::varchar"
    if kind != "VARCHAR":
        return f"{cell}::varchar"
    made = f"regexp_replace({cell}, '^\\s+|\\s+$', '', 'g')"
    spelt = table.said.of("spellings").get(name)
    if isinstance(spelt, dict):
        made = _spelt(made, {str(k).strip(): str(v) for k, v in spelt.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if spelt is None:
        _no_twins(table, name, cell)
    if table.said.missing(name) is None:
        _no_na_code(table, name, made)
    mixed = table.one(
        f"select min({cell}) from {table.table} "
        f"where {_matches(cell, '[+-]?[0-9][.][0-9]{17}e[+-][0-9]+')}"
    )[0]
    if mixed is not None:
        raise NotProvable(f"{name!r} holds numbers among words")
    return f"case when {_known(table, name, made)} then {made} end"


def _spelt(made: str, meant: dict[str, str]) -> str:
    cases = " ".join(f"when {literal(one)} then {literal(other)}" for one, other in meant.items())
    return f"(case {made} {cases} else {made} end)" if cases else made


def _no_twins(table: Opened, name: str, cell: str) -> None:
    """Raise `NotProvable` for values that differ by case, accents or blanks alone, in a column
    whose values come again."""
    folded = f"lower(strip_accents(nfc_normalize(regexp_replace(trim({cell}), '\\s+', ' ', 'g'))))"
    rows, values = table.one(f"select count({cell}), count(distinct {cell}) from {table.table}")
    if values > max(30, rows / 2):
        return
    twins = table.all(
        f"select min(one), max(one) from (select distinct {cell} as one, {folded} as k from "
        f"{table.table} where {cell} is not null) group by k having count(*) > 1 limit 1"
    )
    if twins:
        raise NotProvable(f"{name!r}: {twins[0][0]!r} and {twins[0][1]!r} may be one value")


def _no_na_code(table: Opened, name: str, made: str) -> None:
    """Raise `NotProvable` for NA among other codes, as of countries."""
    values = table.all(
        f"select distinct {made} from {table.table} where {made} is not null limit 500"
    )
    others = [v for (v,) in values if v not in ("", "NA")]
    if ("NA",) in values and others and all(v.isupper() and len(v) <= _SHORT for v in others):
        raise NotProvable(f"{name!r}: NA may be a code like the others, or mean no value")


def words(table: Opened, name: str) -> str:
    """SQL for a column's cells as `tidy_words` gives them. Raises `NotProvable` for numbers that
    the first reader took for words."""
    if (name, "words") not in table.decided:
        made, cell = tidy_words(text(table, name), NOTHING), table.column(name)
        if table.types[cell] == "VARCHAR" and name not in table.said.words("text"):
            marked = rf"({_COMMA['valid']}|{_POINT['valid']})"
            known, marks = table.one(
                f"select count(m), count(*) filter (where {_matches('m', marked)} "
                f"and try_cast(m as double) is null and not {_matches('m', _CODES[3][0])}) "
                f"from (select {made} as m from (select distinct {cell} from {table.table}))"
            )
            if known and marks == known:
                raise NotProvable(f"{name!r} holds numbers, which were taken for words")
        table.decided[name, "words"] = made
    return table.decided[name, "words"]


def tidy_words(cell: str, kept: Sequence[str] = ()) -> str:
    """SQL for text as it is compared: single spaces; `true` as `True`; no value as NULL, but for
    words that are `kept`."""
    bare = f"regexp_replace(trim({cell}), '\\s+', ' ', 'g')"
    said = ", ".join(literal(word) for word in NOTHING if word not in kept) or "''"
    return (
        f"case when lower({bare}) in ({said}) then null "
        f"when lower({bare}) = 'true' then 'True' when lower({bare}) = 'false' then 'False' "
        f"else {bare} end"
    )


# --- times ---

_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y", "%y-%m-%d", "%y/%m/%d"),
    *("%Y%m%d", "%Y-%m-%d", "%Y-%d-%m"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y"),
)
_MONTHS = ("%Y-%m", "%Y/%m", "%m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%b-%y", "%YM%m")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
FORMATS = (*(day + clock for clock in _CLOCKS for day in _DAYS), *_MONTHS)


def time(table: Opened, name: str) -> str:
    """SQL for a column's moments without a zone. Raises `NotProvable`."""
    if (name, "time") not in table.decided:
        made = _time(table, name)
        if table.said.missing(name) is None:
            _no_placeholder_days(table, name, made)
        table.decided[name, "time"] = made
    return table.decided[name, "time"]


def _no_placeholder_days(table: Opened, name: str, made: str) -> None:
    """Raise `NotProvable` for a first or last day that programs write where there is none, unless
    it follows the others."""
    listed = table.all(
        f"select distinct date_trunc('day', {made}) as d from {table.table} where d is not null "
        "order by d"
    )
    days = [day for (day,) in listed]
    for day, next_ in ((days[0], days[1]), (days[-1], days[-2])) if len(days) > 3 else ():
        usual = (day.month, day.day) in ((1, 1), (1, 2), (12, 30), (12, 31), (11, 11), (9, 9))
        far = abs(day - next_).days > 366
        if usual and far and (day.year < 1905 or day.year > 2090 or day.year == 1970):
            raise NotProvable(f"{name!r}: {day:%Y-%m-%d} may be a day, or mean that there is none")


def _time(table: Opened, name: str) -> str:
    cell = table.column(name)
    kind = table.types[cell]
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return f"{cell}::timestamp"
    if is_number_type(kind) or (kind == "VARCHAR" and _whole(table, cell, r"\d{4}")):
        return _years(table, name)
    if kind != "VARCHAR":
        raise NotProvable(f"{name!r} holds no times but {kind.lower()}")
    nothing = ", ".join(map(literal, [*NOTHING, *map(str.lower, table.said.missing(name) or ())]))
    bare = f"(case when lower(trim({cell})) not in ({nothing}) then trim({cell}) end)"
    if form := table.said.of("dates").get(name):
        return _parsed(bare, str(form).replace("'", "''"))
    iso = r"\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?"
    if _whole(table, bare, iso):  # the clock as written: a zone is left out
        zoneless = f"regexp_replace({bare}, '(Z|(:\\d{{2}})[+-]\\d{{2}}:?\\d{{2}})$', '\\2')"
        return f"try_cast({zoneless} as timestamp)"
    tried = _fitting(table, bare)
    if not tried:
        raise NotProvable(f"{name!r}: no format reads all its times")
    for form in tried[1:]:
        query = f"count(*) filter (where {_parsed(bare, form)} != {_parsed(bare, tried[0])})"
        if table.one(f"select {query} from {table.table}")[0]:
            raise NotProvable(f"{name!r}: {tried[0]} and {form} both read all its times")
    if "%y" in tried[0]:
        raise NotProvable(f"{name!r}: the century of its times is not written")
    return _parsed(bare, tried[0])


def _whole(table: Opened, cell: str, pattern: str) -> bool:
    """Whether all cells there are match a pattern."""
    known, found = table.one(
        f"select count({cell}), count(*) filter (where regexp_full_match(trim({cell}), "
        f"'{pattern}')) from {table.table}"
    )
    return known > 0 and known == found


def _years(table: Opened, name: str) -> str:
    made = number(table, name)
    odd, low, high = table.one(
        f"select count(*) filter (where {made} != round({made})), min({made}), max({made}) "
        f"from {table.table}"
    )
    if odd or low is None or low < 1500 or high > 2100:
        raise NotProvable(f"{name!r}: its numbers are no years")
    return f"make_timestamp(({made})::bigint, 1, 1, 0, 0, 0.0)"


def _parsed(bare: str, form: str) -> str:
    return f"try_strptime({bare}, '{form}')"


def _fitting(table: Opened, bare: str) -> list[str]:
    """Formats that read every cell; the first cells refuse most of them at once."""
    start = f"select {bare} as t from {table.table} where {bare} is not null order by rn limit 3"
    counted = ", ".join(f"count({_parsed('t', form)})" for form in FORMATS)
    cells, *read_of_them = table.one(f"select count(*), {counted} from ({start})")
    found: list[str] = []
    for form, read in zip(FORMATS, read_of_them, strict=True):
        if not cells or read < cells:
            continue
        made = _parsed(bare, form)
        known, read = table.one(
            f"select count({bare}), count(*) filter (where year({made}) between 1500 and 2200) "
            f"from {table.table}"
        )
        if known == read:
            found.append(form)
    return found
