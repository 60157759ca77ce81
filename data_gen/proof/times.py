"""What the cells of an original mean as times, decided in SQL.

Every format that reads all cells of a column is tried; where two of them give different times
(3/4/2020), the one that puts the rows of the file in order counts, and else nothing is proved.
"""

from __future__ import annotations

from data_gen.dare.second.cells import is_number_type, number
from data_gen.dare.second.original import Opened, Unprovable

_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y", "%Y%m%d", "%Y-%m-%d"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y"),
)
_MONTHS = ("%Y-%m", "%Y/%m", "%m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%b-%y", "%YM%m")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S")
FORMATS = (*(day + clock for clock in _CLOCKS for day in _DAYS), *_MONTHS)


def time(table: Opened, name: str) -> str:
    """SQL for a column's moments without a zone. Raises `Unprovable`."""
    if (name, "time") not in table.decided:
        table.decided[name, "time"] = _time(table, name)
    return table.decided[name, "time"]


def _time(table: Opened, name: str) -> str:
    cell = table.column(name)
    kind = table.types[cell]
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return f"{cell}::timestamp"
    if is_number_type(kind) or _whole(table, cell, r"\d{4}"):
        return _years(table, name)
    if kind != "VARCHAR":
        raise Unprovable(f"{name!r} holds no times but {kind.lower()}")
    bare = f"trim({cell})"
    iso = r"\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?"
    if _whole(table, cell, iso):  # the clock as written: a zone is left out
        zoneless = f"regexp_replace({bare}, '(Z|(:\\d{{2}})[+-]\\d{{2}}:?\\d{{2}})$', '\\2')"
        return f"try_cast({zoneless} as timestamp)"
    if form := table.said.get("dates", {}).get(name):
        return _parsed(bare, str(form).replace("'", "''"))
    tried = _fitting(table, cell, bare)
    different = [tried[0]] if tried else []
    for form in tried[1:]:
        query = f"count(*) filter (where {_parsed(bare, form)} != {_parsed(bare, tried[0])})"
        if table.one(f"select {query} from o")[0]:
            different.append(form)
    if len(different) > 1:
        different = [form for form in different if _ordered(table, _parsed(bare, form))]
    if len(different) != 1:
        said = "no format reads" if not tried else f"{' and '.join(tried[:2])} both read"
        raise Unprovable(f"{name!r}: {said} all its times")
    return _parsed(bare, different[0])


def _whole(table: Opened, cell: str, pattern: str) -> bool:
    """Whether all cells there are match a pattern."""
    if table.types[cell] != "VARCHAR":
        return False
    known, found = table.one(
        f"select count({cell}), count(*) filter (where regexp_full_match(trim({cell}), "
        f"'{pattern}')) from o"
    )
    return known > 0 and known == found


def _years(table: Opened, name: str) -> str:
    made = number(table, name)
    odd, low, high = table.one(
        f"select count(*) filter (where {made} != round({made})), min({made}), max({made}) from o"
    )
    if odd or low is None or low < 1500 or high > 2100:
        raise Unprovable(f"{name!r}: its numbers are no years")
    return f"make_timestamp(({made})::bigint, 1, 1, 0, 0, 0.0)"


def _parsed(bare: str, form: str) -> str:
    return f"try_strptime({bare}, '{form}')"


def _fitting(table: Opened, cell: str, bare: str) -> list[str]:
    """Formats that read every cell; the first cells refuse most of them at once."""
    start = [
        str(r[0])
        for r in table.db.execute(
            f"select {bare} from o where {cell} is not null order by rn limit 3"
        ).fetchall()
    ]
    found: list[str] = []
    for form in FORMATS:
        first = [
            table.db.execute("select try_strptime(?, ?)", [text, form]).fetchone()[0]
            for text in start
        ]
        if not first or None in first:
            continue
        made = _parsed(bare, form)
        known, read = table.one(
            f"select count({cell}), count(*) filter (where year({made}) between 1500 and 2200) "
            "from o"
        )
        if known == read:
            found.append(form)
    return found


def _ordered(table: Opened, made: str) -> bool:
    """Whether a reading gives the rows of the file in order of time, forwards or backwards."""
    up, down = table.one(
        "select count(*) filter (where t < before), count(*) filter (where t > before) from "
        f"(select t, lag(t) over (order by rn) as before from (select rn, {made} as t from o))"
    )
    return up == 0 or down == 0
