"""A plan as SQL, which is the first way to gold, and as a question, with the prompt that shows the
database.

Beside gold stand the other queries that the words might mean.

`Other.clause` is what the question adds where the reading differs from gold somewhere; `said` is
what the question says anyway. A reading with neither refuses the question where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from assay.files import yaml_beside
from data_gen.pipeline import pieces
from data_gen.queries.sql_plans import Field, Filter, Made, Plan, Sign, Unit, identifier
from rewards.sql.data import Cell, Focus, quoted
from rewards.sql.family import literal

STRICT: dict[Sign, Sign] = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
SIGNS: dict[Sign, str] = {
    ">": "more than",
    ">=": "at least",
    "<": "less than",
    "<=": "at most",
    "=": "is",
    "!=": "is not",
}
SHORT_PIECES = 325  # of a prompt: at most 350 tokens of SmolLM2's vocabulary (docs/sql.md)
LONG_CHARACTERS = 6000
OF_ROWS = {**SIGNS, "<": "fewer than"}  # of how many there are
_EVERY = "Give a row for every matching row, also where rows are equal."


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


@dataclass
class Draft:
    """A plan over a database, as SQL and in words; `clauses` tell it from other readings."""

    unit: Unit
    plan: Plan
    one: Written
    text: str
    seed: int
    clauses: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Select:
    """A query in parts. `met`: the question's conditions; `there`: that a column has a value."""

    what: str
    source: str
    met: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    tail: str = ""

    def __str__(self) -> str:
        conditions = " AND ".join([*self.met, *self.there])
        kept = f" WHERE {conditions}" if conditions else ""
        return f"SELECT {self.what} FROM {self.source}{kept}{self.tail}"


def written(plan: Plan, unit: Unit) -> Written:
    """Gold's query and the other readings of the plan."""
    one = _WRITERS[plan.kind](plan, unit)
    return replace(one, others=(*one.others, *_of_conditions(plan, unit, one.sql)))


def _of_conditions(plan: Plan, unit: Unit, gold: str) -> Iterator[Other]:
    """A bound that counts, or does not; and rows without a value under "not"."""
    for at, found in enumerate(plan.filters):
        if found.sign in STRICT:
            others = list(plan.filters)
            others[at] = replace(found, sign=STRICT[found.sign])
            sql = _WRITERS[plan.kind](replace(plan, filters=tuple(others)), unit).sql
            yield Other("the bound itself", sql, said=SIGNS[found.sign])
        if found.sign == "!=" and found.field.nullable:
            plain = _condition(found)
            kept = f"({plain} OR {quoted(found.field.name)} IS NULL)"
            clause = f"Rows without a value for {found.field.words} do not count."
            yield Other("missing values under not", gold.replace(plain, kept), clause=clause)


def _condition(found: Filter) -> str:
    return f"{quoted(found.field.name)} {found.sign} {literal(found.value)}"


def _met(filters: tuple[Filter, ...], alias: str = "") -> tuple[str, ...]:
    return tuple(alias + _condition(found) for found in filters)


def _there(*fields: Field | None, alias: str = "") -> tuple[str, ...]:
    """That columns which may lack a value have one."""
    found = (f for f in fields if f is not None and f.nullable)
    return tuple(f"{alias}{quoted(f.name)} IS NOT NULL" for f in found)


def _table(unit: Unit) -> str:
    return quoted(unit.made[0].table.name)


def _column(field: Field | None) -> str:
    assert field is not None
    return quoted(field.name)


def _value(plan: Plan, alias: str = "") -> str:
    """The summary that a plan asks for, over rows."""
    if plan.summary == "rows" or plan.measure is None:
        return "COUNT(*)"
    words = {"mean": "AVG", "total": "SUM", "largest": "MAX", "smallest": "MIN"}
    return f"{words[plan.summary]}({alias}{quoted(plan.measure.name)})"


def _of_summary(plan: Plan, sql: str, alias: str = "") -> list[Other]:
    """A mean in which missing values count as nothing; one of different values only."""
    if plan.measure is None or plan.summary not in ("mean", "total"):
        return []
    value = _value(plan, alias)
    once = sql.replace(value, value.replace("(", "(DISTINCT ", 1))
    out = [Other("equal values once", once, said=plan.summary)]
    if plan.summary == "mean" and plan.measure.nullable:
        nothing = sql.replace(value, f"AVG(COALESCE({alias}{quoted(plan.measure.name)}, 0))")
        clause = f"Rows without a value for {plan.measure.words} do not count in the mean."
        out.append(Other("missing values as nothing", nothing, clause=clause))
    return out


def _of_no_group(plan: Plan, gold: str, plain: str) -> list[Other]:
    """Rows whose group is missing: a group of their own, or none."""
    if plan.group is None or plain == gold:
        return []
    clause = f"Leave out rows without a value for {plan.group.words}."
    return [Other("rows without a group", plain, clause=clause)]


def _of_empty_groups(plan: Plan, gold: _Select, alias: str = "") -> list[Other]:
    """Groups of which no row meets the conditions: left out, or there with nothing."""
    if not plan.filters or plan.group is None:
        return []
    value = _value(plan, alias)
    name, _, inner = value.removesuffix(")").partition("(")
    cased = f"{name}(CASE WHEN {' AND '.join(gold.met)} THEN {inner.replace('*', '1')} END)"
    sql = str(replace(gold, met=())).replace(value, cased)
    clause = f"Leave out any {plan.part or plan.group.words} without such rows."
    return [Other("groups without rows", sql, clause=clause)]


def _by_group(plan: Plan, gold: _Select, *first: Other, ordered: bool = False) -> Written:
    """A query of groups, with what may be meant by its summary and its groups."""
    sql = str(gold)
    others = [*first, *_of_summary(plan, sql)]
    others += _of_no_group(plan, sql, str(replace(gold, there=())))
    return Written(sql, ordered, (*others, *_of_empty_groups(plan, gold)))


def _list(plan: Plan, unit: Unit) -> Written:
    names = ", ".join(map(_column, plan.shown))
    gold = _Select(names, _table(unit), _met(plan.filters))
    once = str(replace(gold, what=f"DISTINCT {names}"))
    return Written(str(gold), False, (Other("equal rows once", once, clause=_EVERY),))


def _count(plan: Plan, unit: Unit) -> Written:
    gold = _Select("COUNT(*)", _table(unit), _met(plan.filters))
    others = [
        Other(
            f"different values of {f.name}",
            str(replace(gold, what=f"COUNT(DISTINCT {quoted(f.name)})")),
            said="rows",
        )
        for f in unit.made[0].of_kind("name", "group")[:2]
    ]
    return Written(str(gold), False, tuple(others))


def _aggregate(plan: Plan, unit: Unit) -> Written:
    sql = str(_Select(_value(plan), _table(unit), _met(plan.filters)))
    return Written(sql, False, tuple(_of_summary(plan, sql)))


def _group(plan: Plan, unit: Unit) -> Written:
    name, met = _column(plan.group), _met(plan.filters)
    what, there = f"{name}, {_value(plan)}", _there(plan.group)
    return _by_group(plan, _Select(what, _table(unit), met, there, f" GROUP BY {name}"))


def _having(plan: Plan, unit: Unit) -> Written:
    name = _column(plan.group)
    head = f" GROUP BY {name} HAVING {_value(plan)}"
    tail = f"{head} {plan.sign} {plan.limit}"
    gold = _Select(name, _table(unit), _met(plan.filters), _there(plan.group), tail)
    bound = str(replace(gold, tail=f"{head} {STRICT[plan.sign]} {plan.limit}"))
    return _by_group(plan, gold, Other("the bound itself", bound, said=OF_ROWS[plan.sign]))


def _best_group(plan: Plan, unit: Unit) -> Written:
    assert plan.group is not None
    name = _column(plan.group)
    head = f" GROUP BY {name} ORDER BY {_value(plan)}{' DESC' if plan.down else ''}, {name}"
    tail = f"{head} LIMIT {plan.limit}"
    gold = _Select(name, _table(unit), _met(plan.filters), _there(plan.group), tail)
    turned = str(replace(gold, tail=f"{head} DESC LIMIT {plan.limit}"))
    clause = f"Where they are equal, order by {plan.group.words}, ascending."
    ties = Other("ties the other way", turned, clause=clause)
    return _by_group(plan, gold, ties, ordered=True)


def _date_part(plan: Plan, unit: Unit) -> Written:
    name = _column(plan.group)
    part = {
        "year": f"CAST(strftime('%Y', {name}) AS INTEGER)",
        "month": f"CAST(strftime('%m', {name}) AS INTEGER)",
        "decade": f"{name} / 10 * 10",
    }[plan.part]
    what, there = f"{part}, {_value(plan)}", _there(plan.group)
    gold = _Select(what, _table(unit), _met(plan.filters), there, f" GROUP BY {part}")
    one = _by_group(plan, gold)
    if plan.part != "month":
        return one
    both = one.sql.replace(part, f"strftime('%Y-%m', {name})")
    return replace(
        one, others=(*one.others, Other("months of each year", both, said="of the year"))
    )


def _top(plan: Plan, unit: Unit) -> Written:
    assert plan.measure is not None
    measure, key = _column(plan.measure), _column(plan.shown[0])
    shown = ", ".join(map(_column, plan.shown))
    head = f" ORDER BY {measure}{' DESC' if plan.down else ''}, "
    gold = _Select(
        shown,
        _table(unit),
        _met(plan.filters),
        _there(plan.measure),
        f"{head}{key} LIMIT {plan.limit}",
    )
    clause = f"Where {plan.measure.words} is equal, order by {plan.shown[0].words}, ascending."
    others = [
        Other(label, str(replace(gold, tail=f"{head}{ties} LIMIT {plan.limit}")), clause=clause)
        for label, ties in (
            ("ties the other way", f"{key} DESC"),
            ("ties in the order of rows", "rowid"),
        )
    ]
    if gold.there:
        missing = f"Leave out rows without a value for {plan.measure.words}."
        others.append(Other("missing first", str(replace(gold, there=())), clause=missing))
    return Written(str(gold), True, tuple(others))


def _top_each(plan: Plan, unit: Unit) -> Written:
    name, measure, shown = map(_column, (plan.group, plan.measure, plan.shown[0]))
    order = f"{measure} DESC" if plan.down else measure
    place = identifier("place", {f.name for f in unit.made[0].fields})
    there = _there(plan.group, plan.measure)

    def made(how: str, there: tuple[str, ...] = there, ties: str = "") -> str:
        ranked = f"{how}() OVER (PARTITION BY {name} ORDER BY {order}{ties}) AS {place}"
        inner = _Select(f"{name}, {shown}, {ranked}", _table(unit), _met(plan.filters), there)
        return f"SELECT {name}, {shown} FROM ({inner}) WHERE {place} <= {plan.limit}"

    clause = "Where several share a place, count those before them and list all of them."
    one, other = (made("ROW_NUMBER", ties=f", {shown}{how}") for how in ("", " DESC"))
    others = [
        Other("one of those that are equal", one, clause=clause),
        Other("one of those that are equal", other, clause=clause),
        Other("places without gaps", made("DENSE_RANK"), clause=clause),
    ]
    if there:
        missing = "Leave out rows without a value in these columns."
        others.append(Other("missing values", made("RANK", ()), clause=missing))
    return Written(made("RANK"), False, tuple(others))


def _distinct(plan: Plan, unit: Unit) -> Written:
    assert plan.group is not None
    name, there = _column(plan.group), _there(plan.group)
    gold = _Select(f"DISTINCT {name}", _table(unit), _met(plan.filters), there)
    null = f"SELECT COUNT(*) FROM ({replace(gold, there=())})"
    if plan.limit:  # how many there are
        gold = replace(gold, what=f"COUNT(DISTINCT {name})", there=())
    every = str(gold).replace("DISTINCT ", "")
    others = [Other("every value", every, said="different")]
    if plan.limit and there:
        clause = f"A missing {plan.group.words} is not counted."
        others.append(Other("missing as a value", null, clause=clause))
    others += _of_no_group(plan, str(gold), str(replace(gold, there=())))
    return Written(str(gold), False, tuple(others))


def _joined(plan: Plan, unit: Unit, how: str = "JOIN") -> str:
    one, two = (quoted(m.table.name) for m in unit.made)
    return f"{one} AS a {how} {two} AS b ON a.{_column(plan.mine)} = b.{_column(plan.theirs)}"


def _join(plan: Plan, unit: Unit) -> Written:
    assert plan.group is not None
    group = f"b.{_column(plan.group)}"
    gold = _Select(
        f"{group}, {_value(plan, 'a.')}",
        _joined(plan, unit),
        _met(plan.filters, "a."),
        _there(plan.group, alias="b."),
        f" GROUP BY {group}",
    )
    plain = replace(gold, there=())
    clause = f"Rows that have no match in the other table, or no {plan.group.words}, do not count."
    left = str(replace(plain, source=_joined(plan, unit, "LEFT JOIN")))
    others = [
        Other("rows without a match", left, clause=clause),
        Other("rows without a match", str(plain), clause=clause),
        *_of_empty_groups(plan, gold, "a."),
        *_of_summary(plan, str(gold), "a."),
    ]
    return Written(str(gold), False, tuple(others))


def _join_filter(plan: Plan, unit: Unit) -> Written:
    gold = _Select(_value(plan, "a."), _joined(plan, unit), _met(plan.filters, "b."))
    keys = str(replace(gold, what=f"COUNT(DISTINCT b.{_column(plan.theirs)})"))
    other = Other("rows of the other table", keys, said="rows")
    return Written(str(gold), False, (other, *_of_summary(plan, str(gold), "a.")))


def _unmatched(plan: Plan, unit: Unit) -> Written:
    one, two = (quoted(m.table.name) for m in unit.made)
    mine, theirs = f"a.{_column(plan.mine)}", f"b.{_column(plan.theirs)}"

    def made(shown: str, table: str, other: str, there: tuple[str, ...] = ()) -> str:
        match = f"NOT EXISTS (SELECT 1 FROM {other} WHERE {mine} = {theirs})"
        return str(_Select(shown, table, (match,), there))

    gold = made(theirs, f"{two} AS b", f"{one} AS a", _there(plan.theirs, alias="b."))
    turned = made(mine, f"{one} AS a", f"{two} AS b")
    other = Other("the other way round", turned, said="that no row of")
    return Written(gold, False, (other,))


def _above_average(plan: Plan, unit: Unit) -> Written:
    assert plan.measure is not None
    table, measure = _table(unit), _column(plan.measure)
    shown, met = ", ".join(map(_column, plan.shown)), _met(plan.filters)

    def made(sign: Sign, inner: tuple[str, ...] = (), what: str = shown) -> str:
        mean = _Select(f"AVG({measure})", table, inner)
        return str(_Select(what, table, (*met, f"{measure} {sign} ({mean})")))

    gold = made(plan.sign)
    others = [Other("the mean itself", made(STRICT[plan.sign]), said="the mean")]
    if met:
        clause = "Take the mean over the whole table."
        others.append(Other("mean of the chosen rows", made(plan.sign, met), clause=clause))
    if plan.measure.nullable:
        zero = gold.replace(f"AVG({measure})", f"AVG(COALESCE({measure}, 0))")
        missing = f"Rows without a value for {plan.measure.words} do not count in the mean."
        others.append(Other("missing as nothing", zero, clause=missing))
    once = made(plan.sign, what=f"DISTINCT {shown}")
    others.append(Other("equal rows once", once, clause=_EVERY))
    return Written(gold, False, tuple(others))


def _absent(plan: Plan, unit: Unit) -> Written:
    name, there = _column(plan.group), _there(plan.group)
    every = _Select(f"DISTINCT {name}", _table(unit), (), there)
    met = _Select(name, _table(unit), _met(plan.filters))
    sql = f"{every} EXCEPT {met}"
    negated = replace(every, met=(f"NOT ({' AND '.join(met.met)})",))
    others = [Other("some row that does not", str(negated), said="no row")]
    others += _of_no_group(plan, sql, f"{replace(every, there=())} EXCEPT {met}")
    return Written(sql, False, tuple(others))


def _share(plan: Plan, unit: Unit) -> Written:
    *given, asked = plan.filters
    there = _there(asked.field)

    def made(rate: str, there: tuple[str, ...] = there) -> str:
        case = f"SUM(CASE WHEN {_condition(asked)} THEN 1 ELSE 0 END)"
        what = f"{rate} * {case} / COUNT(*)"
        return str(_Select(what, _table(unit), _met(tuple(given)), there))

    others = [Other("a whole number", made("100"), said="with its decimals")]
    if there:
        clause = f"Leave out rows without a value for {asked.field.words}."
        others.append(Other("missing values in the whole", made("100.0", ()), clause=clause))
    return Written(made("100.0"), False, tuple(others))


_WRITERS: dict[str, Callable[[Plan, Unit], Written]] = {
    write.__name__[1:]: write
    for write in (
        *(_list, _count, _aggregate, _group, _having, _best_group, _date_part, _top, _top_each),
        *(_distinct, _join, _join_filter, _unmatched, _above_average, _absent, _share),
    )
}


TAIL = (
    "Answer with one SQLite query in a ```sql block. Return the columns that are asked for and no "
    "others. Do not round."
)
_SAMPLES = 3  # values shown of a column
_LONG = 32  # characters of a value that is shown


def question(plan: Plan, unit: Unit, rng: Random) -> str:
    """The question in one of its wordings, without clauses."""
    kind = "distinct count" if plan.kind == "distinct" and plan.limit else plan.kind
    text = rng.choice(yaml_beside(__file__, "openings.yaml")[kind]).format(**_words(plan, unit))
    return text.strip()


def _words(plan: Plan, unit: Unit) -> dict[str, str]:
    given, asked = plan.filters[:-1], plan.filters[-1:]
    conditions = _where(plan.filters)
    part = {"year": "year of {}", "month": "month of the year (1 to 12) of {}"}
    part["decade"] = "decade of {} (1990 for 1990 to 1999)"
    group = _plain(plan.group)
    dated = group if group.startswith("'") else f"'{group}'"
    first = plan.shown[0] if plan.shown else None
    table, other = (unit.made[at].table.name for at in (0, -1))
    mine, theirs = (quoted(f.name) if f else "" for f in (plan.mine, plan.theirs))
    counted = plan.summary == "rows" or plan.measure is None
    return {
        "table": table,
        "other": other,
        "matched": f"{quoted(table)}.{mine} equals {quoted(other)}.{theirs}",
        "shared": mine if mine == theirs else f"{mine} ({theirs} in {other})",
        "of_matched": f"the number of matched rows of {table}"
        if counted
        else f"{_figure(plan)} of the matched rows of {table}",
        "where": conditions,
        "where_and": f"{conditions} and" if conditions else "",
        "where_rows": f", counting only rows{conditions}" if conditions else "",
        "given": _where(given),
        "asked": " and ".join(map(said, asked)),
        "shown": " and ".join(_plain(f) for f in plan.shown),
        "key": _plain(first),
        "group": group,
        "measure": _plain(plan.measure),
        "value": _figure(plan),
        "both": f"Return {f'the {plan.part}' if plan.part else group} and the figure.",
        "part": part.get(plan.part, "{}").format(dated),
        "sign": OF_ROWS[plan.sign],
        "than": {">": "above", "<": "below"}.get(plan.sign, ""),
        "limit": str(plan.limit),
        "k": f"{plan.limit} rows" if plan.limit != 1 else "row",
        "first": f"the first {plan.limit} rows" if plan.limit != 1 else "the first row",
        "groups": f"{plan.limit} groups" if plan.limit != 1 else "group",
        "in_order": f", {'highest' if plan.down else 'lowest'} first" if plan.limit != 1 else "",
        "is": "is" if len(plan.shown) == 1 == plan.limit else "are the values of",
        "have": "have" if plan.limit != 1 else "has",
        "places": "the first place" if plan.limit == 1 else f"the first {plan.limit} places",
        "most": "highest" if plan.down else "lowest",
        "order": "highest" if plan.down else "lowest",
        "mine": mine,
        "theirs": theirs,
    }


def _plain(field: Field | None) -> str:
    return field.words if field else ""


def _figure(plan: Plan) -> str:
    if plan.summary == "rows" or plan.measure is None:
        return "number of rows" if plan.kind == "best_group" else "the number of rows"
    if plan.summary == "total" and "total" in plan.measure.words.lower():  # "the total total"
        return f"{'' if plan.kind == 'best_group' else 'the '}sum of {plan.measure.words}"
    if plan.kind != "best_group":
        return f"the {plan.summary} {plan.measure.words}"
    words = {"largest": "maximum", "smallest": "minimum"}  # "the highest maximum"
    return f"{words.get(plan.summary, plan.summary)} {plan.measure.words}"


def _where(filters: Sequence[Filter]) -> str:
    return f" where {' and '.join(map(said, filters))}" if filters else ""


def said(found: Filter) -> str:
    """A condition in words: "price is at least 20"."""
    sign = SIGNS[found.sign]
    verb = sign if sign.startswith("is") else f"is {sign}"
    value = found.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    inside = isinstance(value, str) and "'" in value and '"' not in value
    shown = f'"{value}"' if inside else literal(value)  # SQL would write the quote twice
    return f"{found.field.words} {verb} {shown}"


def prompt(text: str, unit: Unit) -> str:
    """What the model is asked: the schema with some values of every column, and the question."""
    tables = "\n\n".join(_schema(m) for m in reversed(unit.made))
    return f"{tables}\n\nQuestion: {text}\n\n{TAIL}"


def too_long(body: str, short: bool) -> bool:
    """Whether a prompt is; `short`: for small models."""
    return len(body) > LONG_CHARACTERS or (short and pieces(body) > SHORT_PIECES)


def _schema(made: Made) -> str:
    lines: list[str] = []
    for number, column in enumerate(made.table.columns):
        comma = "," if number + 1 < len(made.table.columns) else ""
        words = made.comments.get(column.name, "").strip("'")
        values = [row[number] for row in made.table.rows]
        notes = [words] if words and words != column.name else []
        notes += [f"e.g. {', '.join(_samples(values))}"]
        lines.append(f"  {column.declared()}{comma} -- {'; '.join(notes)}")
    return f"CREATE TABLE {quoted(made.table.name)} (\n" + "\n".join(lines) + "\n);"


def _samples(values: Sequence[Cell]) -> list[str]:
    """The first different values, short."""
    found: list[str] = []
    for value in dict.fromkeys(values):
        text = f"{value:.6g}" if isinstance(value, float) else literal(value)
        if value is not None and len(text) <= _LONG:
            found.append(text)
        if len(found) == _SAMPLES:
            break
    return (found or ["a long text"]) + (["NULL"] if None in values else [])


def focus_of(plan: Plan, unit: Unit) -> tuple[Focus, ...]:
    """The values that the question compares with."""
    table = unit.made[1 if plan.kind == "join_filter" else 0].table.name
    return tuple((table, f.field.name, f.value) for f in plan.filters)


def listings(unit: Unit, rows: int) -> Iterator[str]:
    """Queries that list everything, of those that can give so many rows."""
    for one in unit.made:
        table = quoted(one.table.name)
        if rows == 1:
            yield f"SELECT COUNT(*) FROM {table}"
        if rows == len(one.table.rows):
            yield f"SELECT * FROM {table}"
        for field in one.fields:
            column = quoted(field.name)
            if rows == len(one.table.rows):
                yield f"SELECT {column} FROM {table}"
            if rows == len(set(one.table.values(field.name))):
                yield f"SELECT DISTINCT {column} FROM {table}"
