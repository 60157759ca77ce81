"""The first way to gold: a plan as SQL, with the other queries that its words might mean.

`Other.clause` is what the question adds where the reading differs from gold somewhere; `said` is
what the question says anyway. A reading with neither refuses the question where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from data_gen.queries.database import Field, Unit, identifier
from data_gen.queries.sql_plans import Filter, Plan, Sign
from rewards.sql.data import quoted
from rewards.sql.family import literal

STRICT: dict[Sign, Sign] = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}


@dataclass(frozen=True)
class Other:
    """Another query that the words might mean."""

    label: str
    sql: str
    said: str = ""
    clause: str = ""


@dataclass(frozen=True)
class Written:
    sql: str
    ordered: bool
    others: tuple[Other, ...]


SIGNS: dict[Sign, str] = {
    ">": "more than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "=": "is",
    "!=": "is not",
}
OF_ROWS = {**SIGNS, "<": "fewer than"}  # of how many there are


def condition(found: Filter) -> str:
    return f"{quoted(found.field.name)} {found.sign} {literal(found.value)}"


def where(plan: Plan, *more: str) -> str:
    parts = [*map(condition, plan.filters), *more]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def table_of(unit: Unit) -> str:
    return quoted(unit.made[0].table.name)


def value_of(plan: Plan, alias: str = "") -> str:
    """The summary that a plan asks for, over rows."""
    if plan.summary == "rows" or plan.measure is None:
        return "COUNT(*)"
    name = alias + quoted(plan.measure.name)
    words = {"mean": "AVG", "total": "SUM", "largest": "MAX", "smallest": "MIN"}
    return f"{words[plan.summary]}({name})"


def of_missing(plan: Plan, sql: str) -> list[Other]:
    """A mean in which missing values count as nothing; one of different values only."""
    if plan.measure is None or plan.summary in ("rows", "largest", "smallest"):
        return []
    name, value = quoted(plan.measure.name), value_of(plan)
    what = plan.measure.words
    out = [
        Other(
            "equal values once",
            sql.replace(value, value.replace("(", "(DISTINCT ", 1)),
            said=plan.summary,
        )
    ]
    if plan.summary == "mean" and plan.measure.nullable:
        nothing = sql.replace(value, f"AVG(COALESCE({name}, 0))")
        clause = f"Rows without a value for {what} do not count in the mean."
        out.append(Other("missing values as nothing", nothing, clause=clause))
    return out


def without_group(plan: Plan, sql: str, plain: str) -> list[Other]:
    """Rows whose group is missing: a group of their own, or none."""
    if plan.group is None or not plan.group.nullable:
        return []
    clause = f"Leave out rows without a value for {plan.group.words}."
    return [Other("rows without a group", plain, clause=clause)] if plain != sql else []


def with_empty(plan: Plan, sql: str, *there: str) -> list[Other]:
    """Groups of which no row meets the conditions: left out, or there with nothing."""
    if not plan.filters or plan.group is None:
        return []
    met = " AND ".join(map(condition, plan.filters))
    value = value_of(plan)
    inner = "1" if value == "COUNT(*)" else value.partition("(")[2].removesuffix(")")
    name = value.partition("(")[0]
    all_rows = where(replace(plan, filters=()), *there)
    text = sql.replace(where(plan, *there), all_rows, 1)
    text = text.replace(value, f"{name}(CASE WHEN {met} THEN {inner} END)")
    clause = f"Leave out any {plan.part or plan.group.words} without such rows."
    return [Other("groups without rows", text, clause=clause)]


def there_is(group: Field) -> str:
    return f"{quoted(group.name)} IS NOT NULL"


def group_parts(plan: Plan) -> tuple[str, list[str]]:
    assert plan.group is not None
    return quoted(plan.group.name), [there_is(plan.group)] if plan.group.nullable else []


def written(plan: Plan, unit: Unit) -> Written:
    """Gold's query and the other readings of the plan."""
    one = _WRITERS[plan.kind](plan, unit)
    strict = tuple(_strict(plan, unit))
    return replace(one, others=(*one.others, *strict))


def _strict(plan: Plan, unit: Unit) -> Iterator[Other]:
    """A bound that counts, or does not; and rows without a value under "not"."""
    for at, found in enumerate(plan.filters):
        if found.sign in STRICT:
            others = list(plan.filters)
            others[at] = replace(found, sign=STRICT[found.sign])
            sql = _WRITERS[plan.kind](replace(plan, filters=tuple(others)), unit).sql
            yield Other("the bound itself", sql, said=SIGNS[found.sign])
        if found.sign == "!=" and found.field.nullable:
            plain = condition(found)
            gold = _WRITERS[plan.kind](plan, unit).sql
            kept = f"({plain} OR {quoted(found.field.name)} IS NULL)"
            clause = f"Rows without a value for {found.field.words} do not count."
            yield Other("missing values under not", gold.replace(plain, kept), clause=clause)


def _list(plan: Plan, unit: Unit) -> Written:
    names = ", ".join(quoted(f.name) for f in plan.shown)
    sql = f"SELECT {names} FROM {table_of(unit)}{where(plan)}"
    once = sql.replace("SELECT", "SELECT DISTINCT", 1)
    clause = "Give a row for every matching row, also where rows are equal."
    return Written(sql, False, (Other("equal rows once", once, clause=clause),))


def _count(plan: Plan, unit: Unit) -> Written:
    sql = f"SELECT COUNT(*) FROM {table_of(unit)}{where(plan)}"
    others = [
        Other(
            f"different values of {f.name}",
            sql.replace("COUNT(*)", f"COUNT(DISTINCT {quoted(f.name)})"),
            said="rows",
        )
        for f in unit.made[0].of_kind("name", "group")[:2]
    ]
    return Written(sql, False, tuple(others))


def _aggregate(plan: Plan, unit: Unit) -> Written:
    sql = f"SELECT {value_of(plan)} FROM {table_of(unit)}{where(plan)}"
    return Written(sql, False, tuple(of_missing(plan, sql)))


def _group(plan: Plan, unit: Unit) -> Written:
    name, there = group_parts(plan)
    head, tail = f"SELECT {name}, {value_of(plan)} FROM {table_of(unit)}", f" GROUP BY {name}"
    sql, plain = head + where(plan, *there) + tail, head + where(plan) + tail
    others = [*of_missing(plan, sql), *without_group(plan, sql, plain)]
    return Written(sql, False, (*others, *with_empty(plan, sql, *there)))


def _having(plan: Plan, unit: Unit) -> Written:
    name, there = group_parts(plan)
    value = value_of(plan)

    def made(sign: Sign, *more: str) -> str:
        bound = f" GROUP BY {name} HAVING {value} {sign} {plan.limit}"
        return f"SELECT {name} FROM {table_of(unit)}{where(plan, *more)}{bound}"

    sql = made(plan.sign, *there)
    others = [Other("the bound itself", made(STRICT[plan.sign], *there), said=OF_ROWS[plan.sign])]
    others += [*of_missing(plan, sql), *without_group(plan, sql, made(plan.sign))]
    others += with_empty(plan, sql, *there)
    return Written(sql, False, tuple(others))


def _top(plan: Plan, unit: Unit) -> Written:
    assert plan.measure is not None
    shown = ", ".join(quoted(f.name) for f in plan.shown)
    measure, key = quoted(plan.measure.name), quoted(plan.shown[0].name)
    order = f"{measure} DESC" if plan.down else measure
    there = [f"{measure} IS NOT NULL"] if plan.measure.nullable else []

    def made(*ties: str, more: tuple[str, ...] = tuple(there)) -> str:
        by = ", ".join([order, *ties])
        rows = f"{table_of(unit)}{where(plan, *more)}"
        return f"SELECT {shown} FROM {rows} ORDER BY {by} LIMIT {plan.limit}"

    clause = f"Where {plan.measure.words} is equal, order by {plan.shown[0].words}, ascending."
    others = [
        Other("ties the other way", made(f"{key} DESC"), clause=clause),
        Other("ties in the order of rows", made("rowid"), clause=clause),
    ]
    if there:
        missing = f"Leave out rows without a value for {plan.measure.words}."
        others.append(Other("missing values first", made(key, more=()), clause=missing))
    return Written(made(key), True, tuple(others))


def _distinct(plan: Plan, unit: Unit) -> Written:
    name, there = group_parts(plan)
    if plan.summary == "rows" and plan.limit:  # how many there are
        sql = f"SELECT COUNT(DISTINCT {name}) FROM {table_of(unit)}{where(plan)}"
        plain = sql.replace("DISTINCT ", "")
        null = f"SELECT COUNT(*) FROM (SELECT DISTINCT {name} FROM {table_of(unit)}{where(plan)})"
        assert plan.group is not None
        clause = f"A missing {plan.group.words} is not counted."
        others = [Other("every value", plain, said="different")]
        others += [Other("missing as a value", null, clause=clause)] if there else []
        return Written(sql, False, tuple(others))
    head = f"SELECT DISTINCT {name} FROM {table_of(unit)}"
    sql, plain = head + where(plan, *there), head + where(plan)
    every = Other("every row", sql.replace("DISTINCT ", ""), said="different")
    return Written(sql, False, (every, *without_group(plan, sql, plain)))


def _join(plan: Plan, unit: Unit) -> Written:
    assert plan.mine and plan.theirs and plan.group
    one, two = (quoted(m.table.name) for m in unit.made)
    group = f"b.{quoted(plan.group.name)}"
    value = value_of(plan, "a.")
    on = f"ON a.{quoted(plan.mine.name)} = b.{quoted(plan.theirs.name)}"
    filters = [f"a.{condition(f)}" for f in plan.filters]

    def made(how: str, *there: str) -> str:
        parts = [*filters, *there]
        kept = f" WHERE {' AND '.join(parts)}" if parts else ""
        return (
            f"SELECT {group}, {value} FROM {one} AS a {how} {two} AS b {on}{kept} GROUP BY {group}"
        )

    there = [f"{group} IS NOT NULL"] if plan.group.nullable else []
    sql = made("JOIN", *there)
    clause = f"Rows that have no match in the other table, or no {plan.group.words}, do not count."
    others = [
        Other("rows without a match", made("LEFT JOIN"), clause=clause),
        Other("rows without a match", made("JOIN"), clause=clause),
    ]
    if plan.filters:
        met = " AND ".join(filters)
        inner = "1" if value == "COUNT(*)" else value.partition("(")[2].removesuffix(")")
        name = f"{value.partition('(')[0]}(CASE WHEN {met} THEN {inner} END)"
        kept = f" WHERE {there[0]}" if there else ""
        every = (
            f"SELECT {group}, {name} FROM {one} AS a JOIN {two} AS b {on}{kept} GROUP BY {group}"
        )
        empty = f"Leave out any {plan.group.words} without such rows."
        others.append(Other("groups without rows", every, clause=empty))
    if plan.summary == "mean":
        once = sql.replace(value, value.replace("(", "(DISTINCT ", 1))
        others.append(Other("equal values once", once, said="mean"))
    if plan.summary == "mean" and plan.measure is not None and plan.measure.nullable:
        zero = f"AVG(COALESCE(a.{quoted(plan.measure.name)}, 0))"
        missing = f"Rows without a value for {plan.measure.words} do not count in the mean."
        others.append(Other("missing as nothing", sql.replace(value, zero), clause=missing))
    return Written(sql, False, tuple(others))


def _join_filter(plan: Plan, unit: Unit) -> Written:
    assert plan.mine and plan.theirs
    one, two = (quoted(m.table.name) for m in unit.made)
    value = value_of(plan, "a.")
    on = f"ON a.{quoted(plan.mine.name)} = b.{quoted(plan.theirs.name)}"
    met = " AND ".join(f"b.{condition(f)}" for f in plan.filters)
    kept = f" WHERE {met}" if met else ""
    sql = f"SELECT {value} FROM {one} AS a JOIN {two} AS b {on}{kept}"
    key = f"COUNT(DISTINCT b.{quoted(plan.theirs.name)})"
    others = [Other("rows of the other table", sql.replace(value, key), said="rows")]
    if plan.summary in ("mean", "total"):
        once = sql.replace(value, value.replace("(", "(DISTINCT ", 1))
        others.append(Other("equal values once", once, said=plan.summary))
    if plan.summary == "mean" and plan.measure is not None and plan.measure.nullable:
        zero = sql.replace(value, f"AVG(COALESCE(a.{quoted(plan.measure.name)}, 0))")
        missing = f"Rows without a value for {plan.measure.words} do not count in the mean."
        others.append(Other("missing values as nothing", zero, clause=missing))
    return Written(sql, False, tuple(others))


def _above_average(plan: Plan, unit: Unit) -> Written:
    assert plan.measure is not None
    table, measure = table_of(unit), quoted(plan.measure.name)
    shown = ", ".join(quoted(f.name) for f in plan.shown)

    def made(sign: Sign, inner: str, what: str = "AVG", once: str = "") -> str:
        bound = f"{measure} {sign} (SELECT {what}({measure}) FROM {table}{inner})"
        return f"SELECT {once}{shown} FROM {table}{where(plan, bound)}"

    sql = made(plan.sign, "")
    clause = "Take the mean over the whole table."
    others = [Other("the mean itself", made(STRICT[plan.sign], ""), said="the mean")]
    if plan.filters:
        others.append(Other("mean of the chosen rows", made(plan.sign, where(plan)), clause=clause))
    if plan.measure.nullable:
        zero = sql.replace(f"AVG({measure})", f"AVG(COALESCE({measure}, 0))")
        missing = f"Rows without a value for {plan.measure.words} do not count in the mean."
        others.append(Other("missing as nothing", zero, clause=missing))
    every = "Give a row for every matching row, also where rows are equal."
    others.append(Other("equal rows once", made(plan.sign, "", once="DISTINCT "), clause=every))
    return Written(sql, False, tuple(others))


def _absent(plan: Plan, unit: Unit) -> Written:
    name, there = group_parts(plan)
    table = table_of(unit)
    head = f"SELECT DISTINCT {name} FROM {table}"
    kept = f" WHERE {' AND '.join(there)}" if there else ""
    sql = f"{head}{kept} EXCEPT SELECT {name} FROM {table}{where(plan)}"
    (only,) = plan.filters
    negated = f"NOT ({condition(only)})"
    some = f"{head} WHERE {' AND '.join([negated, *there])}"
    others = [Other("some row that does not", some, said="no row")]
    if there:
        plain = f"{head} EXCEPT SELECT {name} FROM {table}{where(plan)}"
        others += without_group(plan, sql, plain)
    return Written(sql, False, tuple(others))


def _share(plan: Plan, unit: Unit) -> Written:
    *given, asked = plan.filters
    base = replace(plan, filters=tuple(given))
    there = [f"{quoted(asked.field.name)} IS NOT NULL"] if asked.field.nullable else []

    def made(rate: str, sign: Sign, *more: str) -> str:
        case = f"SUM(CASE WHEN {condition(replace(asked, sign=sign))} THEN 1 ELSE 0 END)"
        whole = f"{rate} * {case} / COUNT(*)"
        return f"SELECT {whole} FROM {table_of(unit)}{where(base, *more)}"

    sql = made("100.0", asked.sign, *there)
    others = [Other("a whole number", made("100", asked.sign, *there), said="with its decimals")]
    if there:
        clause = f"Leave out rows without a value for {asked.field.words}."
        others.append(
            Other("missing values in the whole", made("100.0", asked.sign), clause=clause)
        )
    return Written(sql, False, tuple(others))


def _date_part(plan: Plan, unit: Unit) -> Written:
    assert plan.group is not None
    name, there = group_parts(plan)
    parts = {
        "year": f"CAST(strftime('%Y', {name}) AS INTEGER)",
        "month": f"CAST(strftime('%m', {name}) AS INTEGER)",
        "decade": f"{name} / 10 * 10",
    }
    part = parts[plan.part]
    head, tail = f"SELECT {part}, {value_of(plan)} FROM {table_of(unit)}", f" GROUP BY {part}"
    sql, plain = head + where(plan, *there) + tail, head + where(plan) + tail
    others = [*of_missing(plan, sql), *without_group(plan, sql, plain)]
    others += with_empty(plan, sql, *there)
    if plan.part == "month":
        both = f"strftime('%Y-%m', {name})"
        others.append(Other("months of each year", sql.replace(part, both), said="of the year"))
    return Written(sql, False, tuple(others))


def _top_each(plan: Plan, unit: Unit) -> Written:
    assert plan.group and plan.measure
    name, there = group_parts(plan)
    measure = quoted(plan.measure.name)
    order = f"{measure} DESC" if plan.down else measure
    shown = quoted(plan.shown[0].name)
    place = identifier("place", {f.name for f in unit.made[0].fields})
    there += [f"{measure} IS NOT NULL"] if plan.measure.nullable else []

    def made(how: str, *more: str, ties: str = "") -> str:
        ranked = f"{how}() OVER (PARTITION BY {name} ORDER BY {order}{ties}) AS {place}"
        inner = f"SELECT {name}, {shown}, {ranked} FROM {table_of(unit)}{where(plan, *more)}"
        return f"SELECT {name}, {shown} FROM ({inner}) WHERE {place} <= {plan.limit}"

    sql = made("RANK", *there)
    clause = "Where several share a place, count those before them and list all of them."
    others = [
        Other(
            "one of those that are equal",
            made("ROW_NUMBER", *there, ties=f", {shown}"),
            clause=clause,
        ),
        Other(
            "one of those that are equal",
            made("ROW_NUMBER", *there, ties=f", {shown} DESC"),
            clause=clause,
        ),
        Other("places without gaps", made("DENSE_RANK", *there), clause=clause),
    ]
    if there:
        missing = "Leave out rows without a value in these columns."
        others.append(Other("missing values", made("RANK"), clause=missing))
    return Written(sql, False, tuple(others))


def _best_group(plan: Plan, unit: Unit) -> Written:
    assert plan.group is not None
    name, there = group_parts(plan)
    value = value_of(plan)
    order = f"{value} DESC" if plan.down else value

    def made(ties: str, *more: str) -> str:
        kept = where(plan, *more)
        tail = f" GROUP BY {name} ORDER BY {order}, {ties} LIMIT {plan.limit}"
        return f"SELECT {name} FROM {table_of(unit)}{kept}{tail}"

    sql = made(name, *there)
    clause = f"Where they are equal, order by {plan.group.words}, ascending."
    others = [Other("ties the other way", made(f"{name} DESC", *there), clause=clause)]
    others += [*of_missing(plan, sql), *without_group(plan, sql, made(name))]
    others += with_empty(plan, sql, *there)
    return Written(sql, True, tuple(others))


def _unmatched(plan: Plan, unit: Unit) -> Written:
    assert plan.mine and plan.theirs
    one, two = (quoted(m.table.name) for m in unit.made)
    mine, theirs = quoted(plan.mine.name), quoted(plan.theirs.name)
    shown = f"b.{theirs}"
    match = f"SELECT 1 FROM {one} AS a WHERE a.{mine} = b.{theirs}"
    there = f" AND {shown} IS NOT NULL" if plan.theirs.nullable else ""
    sql = f"SELECT {shown} FROM {two} AS b WHERE NOT EXISTS ({match}){there}"
    again = f"SELECT 1 FROM {two} AS b WHERE a.{mine} = b.{theirs}"
    turned = f"SELECT a.{mine} FROM {one} AS a WHERE NOT EXISTS ({again})"
    others = [Other("the other way round", turned, said="that no row of")]
    return Written(sql, False, tuple(others))


_WRITERS: dict[str, Callable[[Plan, Unit], Written]] = {
    "list": _list,
    "count": _count,
    "aggregate": _aggregate,
    "group": _group,
    "having": _having,
    "top": _top,
    "distinct": _distinct,
    "join": _join,
    "join_filter": _join_filter,
    "above_average": _above_average,
    "absent": _absent,
    "share": _share,
    "date_part": _date_part,
    "top_each": _top_each,
    "best_group": _best_group,
    "unmatched": _unmatched,
}
