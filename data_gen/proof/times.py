"""What the cells of an original mean as times, decided in SQL.

Every format that reads all cells of a column is tried; where two of them give different times
(3/4/2020), or the century is not written, nothing is proved unless the user names the format.
"""

from __future__ import annotations

from data_gen.proof.marks import number
from data_gen.proof.original import NotProvable, Opened, literal
from data_gen.proof.plain import NOTHING, is_number_type

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
            _no_placeholders(table, name, made)
        table.decided[name, "time"] = made
    return table.decided[name, "time"]


def _no_placeholders(table: Opened, name: str, made: str) -> None:
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
    start = table.all(
        f"select {bare} from {table.table} where {bare} is not null order by rn limit 3"
    )
    found: list[str] = []
    for form in FORMATS:
        first = [
            table.db.execute("select try_strptime(?, ?)", [t, form]).fetchone()[0] for (t,) in start
        ]
        if not first or None in first:
            continue
        made = _parsed(bare, form)
        known, read = table.one(
            f"select count({bare}), count(*) filter (where year({made}) between 1500 and 2200) "
            f"from {table.table}"
        )
        if known == read:
            found.append(form)
    return found
