"""Whether every row of an original is a case: rows that the user leaves out go; a table with rows
that may be totals, notes, units or names again is refused.

The user settles it: `drop_rows` says which rows are none (`[]`: all are cases), `drop_where` which
values of a column (`[]`: none).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from data_gen.proof.original import NotProvable, Opened, Said, literal

_NUMBER = r"[+-]?[$€£]? ?(\d[\d., '\x{A0}\x{202F}]*|\.\d+)([eE][+-]?\d+)?( ?[%$€£])?"
NOTHING = ("", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none", r"\n", "nat")
# words that add up, alone in a cell
_TOTAL = (
    "(grand |sub-?|sub |general )?totals?|total g[eé]n[eé]ral|sum|summe|zwischensumme|gesamt|"
    "gesamtsumme|insgesamt|totaal|totale|somme|suma|soma|ensemble|both sexes|both genders|both|"
    "all (ages|sexes|genders|groups|regions|areas|types|years|classes|categories|countries|races)|"
    "合计|总计|小计|合計|総計|小計|итого|всего|聯合計|합계|총계"
)
# words that may also be one value among others
_MAYBE = "all|alle|overall|average|mean|mittelwert|durchschnitt|moyenne|media|promedio|combined"
_BEFORE = "(grand |sub-?|sub )?total|summe|gesamt|insgesamt|totaal|totale|somme|suma|итого|всего"
_SURE = re.compile(_TOTAL)
# of the last rows: words of figures over those above
_FIGURE = re.compile(
    r"(arithmetic |column )?(averages?|means?|medians?)|avg\.?|max(\.|imum|imal|imo)?|m[aá]ximo|"
    r"min(\.|imum|imal|imo)?|m[ií]nimo|std\.?( ?dev\.?)?|stdev|standard ?(deviation|abweichung)|"
    r"mittel(wert)?|durchschnitt|höchstwert|tiefstwert|moyenne|médiane?|m[eé]dia(na)?|massimo|"
    r"promedio|gemiddelde|среднее|медиана|максимум|минимум|平均[値值]?|最大[値值]?|最小[値值]?"
)
_LAST = 6  # rows at the end
_UNSURE = re.compile(rf"({_MAYBE})|({_BEFORE})[\s:,.-].*|.*[\s,(-]({_BEFORE})\)?", re.S)
_FEW = 60  # values of a column that divides the rows into groups
_VARIED = 8  # values of a column of measured numbers
_NEAR = 1e-9


def plain_rows(table: Opened) -> Opened:
    """The table without the rows that the user leaves out. Raises `NotProvable` for rows that may
    be no cases."""
    _drop_empty(table)
    _fill_down(table)
    _drop_where(table)
    _drop_duplicates(table)
    if table.one(f"select count(*) from {table.table}")[0] == 0:
        raise NotProvable("the original holds no rows")
    if table.said.dropped() is None:
        numbers, mixed = _numbers(table)
        _lone(table)
        _comments(table)
        _names_again(table)
        _words_for_numbers(table, numbers, mixed)
        _totals(table, numbers)
    _labels(table)
    return table


def _fill_down(table: Opened) -> None:
    """Empty cells of the columns that the user names get the value above. Raises `NotProvable`
    where a row that is left out stands above one."""
    for name in table.said.words("fill_down"):
        cell = table.column(name)
        for number in sorted(table.said.dropped() or ()):
            below = table.all(
                f"select {cell} is null from {table.table} where rn > {number} order by rn limit 1"
            )
            if below and below[0][0]:
                raise NotProvable(f"{name!r}: the value of a row below row {number} is left out")
        table.db.execute(
            f"create or replace table {table.table} as select * replace (last_value({cell} "
            f"ignore nulls) over (order by rn) as {cell}) from {table.table}"
        )


def _labels(table: Opened) -> None:
    """A first column with gaps in which no value follows itself may hold labels of several rows,
    and names no value until the user says what the gaps mean."""
    told = table.said.text("merged") or "fill_down" in table.said.given
    name = next((n for n, c in table.ids.items() if c == "c0"), "")
    if told or not name or table.said.missing(name) is not None:
        return
    rows, known, again = table.one(
        f"select (select count(*) from {table.table}), count(*), "
        "count(*) filter (where c0 = before) from (select c0, lag(c0) over (order by rn) as before "
        f"from {table.table} where c0 is not null)"
    )
    if rows >= _VARIED and 1 < known <= 0.8 * rows and not again:
        table.doubted["c0"] = "its values may stand for the rows below them as well"


def _drop_empty(table: Opened) -> None:
    filled = [
        f"({_bare(c)} is not null)" if c in table.texts() else f"({c} is not null)"
        for c in table.types
    ]
    table.db.execute(f"delete from {table.table} where not ({' or '.join(filled)})")


def _bare(cell: str) -> str:
    return f"nullif(trim({cell}, ' \t\n\r\f\v'), '')"


def _written(table: Opened, cell: str) -> str:
    """SQL for a cell as text without blanks around it; a whole number without its point."""
    kind = table.types[cell]
    if kind == "VARCHAR":
        return f"coalesce({_bare(cell)}, '')"
    if kind == "DOUBLE":
        whole = f"{cell} = round({cell}) and abs({cell}) < 1e15"
        cell = f"case when {whole} then {cell}::bigint::varchar else {cell}::varchar end"
    return f"coalesce(({cell})::varchar, '')"


def _drop_where(table: Opened) -> None:
    for name in table.said.of("drop_where"):
        values = [word.strip() for word in Said(table.said.of("drop_where")).words(name)]
        if values:
            cell = _written(table, table.column(name))
            listed = ", ".join(map(literal, values))
            table.db.execute(f"delete from {table.table} where {cell} in ({listed})")


def _drop_duplicates(table: Opened) -> None:
    names = table.said.words("drop_duplicates")
    if names:
        keys = ", ".join(_written(table, table.column(name)) for name in names)
        table.db.execute(
            f"delete from {table.table} where rn not in "
            f"(select min(rn) from {table.table} group by {keys})"
        )


def _numbers(table: Opened) -> tuple[dict[str, str], list[str]]:
    """The columns that hold numbers but for a few cells, and SQL for these: a text without its
    marks, which is enough to compare sums of one column. Then those of them with such cells."""
    found = {c: f"{c}::double" for c, kind in table.types.items() if is_number_type(kind)}
    texts, mixed = table.texts(), list[str]()
    if not texts:
        return found, mixed
    nothing = ", ".join(map(literal, NOTHING))
    counts = table.one(
        "select "
        + ", ".join(
            f"count(*) filter (where lower(coalesce({_bare(c)}, '')) not in ({nothing})), "
            f"count(*) filter (where regexp_full_match({_bare(c)}, {literal(_NUMBER)}))"
            for c in texts
        )
        + f" from {table.table}"
    )
    for place, cell in enumerate(texts):
        known, numbers = counts[2 * place], counts[2 * place + 1]
        if numbers >= 0.7 * known and numbers >= 3:
            digits = f"regexp_replace({cell}, '[^0-9.eE+-]', '', 'g')"
            found[cell] = f"try_cast({digits} as double)"
            mixed += [cell] if numbers < known else []
    return found, mixed


def is_number_type(kind: str) -> bool:
    return kind.lstrip("U").startswith(
        ("DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "HUGEINT", "DECIMAL")
    )


def _refuse(table: Opened, test: str, why: str) -> None:
    row = table.one(f"select min(rn) from {table.table} where {test}")[0]
    if row is not None:
        raise NotProvable(f"row {row} {why}")


def _lone(table: Opened) -> None:
    if len(table.types) > 2:
        filled = " + ".join(f"({cell} is not null)::int" for cell in table.types)
        _refuse(table, f"({filled}) = 1", "is filled in one column alone, and may be no case")


def _comments(table: Opened) -> None:
    if table.types.get("c0") == "VARCHAR":
        mark = r"^\s*(#+\s|//|\*+\s|--\s)"
        rows, marked = table.one(
            f"select count(*), count(*) filter (where regexp_matches(c0, {literal(mark)})) "
            f"from {table.table}"
        )
        if 0 < marked < rows / 2:
            _refuse(table, f"regexp_matches(c0, {literal(mark)})", "may be a comment")


def _names_again(table: Opened) -> None:
    cells = {
        c: n for n, c in table.ids.items() if c in table.texts() and not n.startswith("Unnamed:")
    }
    if len(cells) > 1:
        equal = " + ".join(
            f"coalesce(lower({_bare(c)}) = lower({literal(' '.join(n.split()))}), false)::int"
            for c, n in cells.items()
        )
        _refuse(table, f"({equal}) * 2 >= {len(cells)}", "holds the names again")


def _words_for_numbers(table: Opened, numbers: dict[str, str], mixed: list[str]) -> None:
    """Units below the names, notes, the names of another table: words where numbers stand else, in
    columns that are `mixed`."""
    if not mixed:
        return
    nothing = ", ".join(map(literal, NOTHING))
    is_number = "coalesce(regexp_full_match({}, {}), false)"
    number = {
        c: is_number.format(_bare(c), literal(_NUMBER))
        if c in table.texts()
        else f"{c} is not null"
        for c in numbers
    }
    words = " + ".join(
        f"(not {number[c]} and lower(coalesce({_bare(c)}, '')) not in ({nothing}))::int"
        for c in mixed
    )
    odd = f"(select rn, words from (select *, {words} as words from {table.table}) where words > 0)"
    ends = f"rn in ((select min(rn) from {table.table}), (select max(rn) from {table.table}))"
    rows = table.all(f"select rn from {odd} where words >= 2 or {ends} order by rn limit 200")
    listed = ", ".join(str(rn) for (rn,) in rows)
    if rows:
        test = f"rn in ({listed}) and not ({' or '.join(number.values())})"
        _refuse(table, test, "has words where the others have numbers")


def _totals(table: Opened, numbers: dict[str, str]) -> None:
    settled = {table.column(name) for name in table.said.of("drop_where")}
    made = [f"{value} as v{i}" for i, value in enumerate(numbers.values())]
    columns = ", ".join(["rn", *table.texts(), *made])  # what is a number is found out once
    table.db.execute(f"create or replace temp table summed as select {columns} from {table.table}")
    table = replace(table, table="summed")
    numbers = {cell: f"v{i}" for i, cell in enumerate(numbers)}
    measured = _measured(table, numbers)
    for cell in table.texts():
        if cell in settled or cell in numbers:
            continue
        bare = f"lower({_bare(cell)})"
        values = [str(v) for (v,) in table.all(f"select distinct {bare} from {table.table}") if v]
        why = "may add up other rows, by its words"
        if sure := [v for v in values if _SURE.fullmatch(v)]:
            _refuse(table, f"{bare} in ({', '.join(map(literal, sure))})", why)
        if figures := [v for v in values if _FIGURE.fullmatch(v.strip(" :.=-*"))]:
            listed = ", ".join(map(literal, figures))
            last = f"rn in (select rn from {table.table} order by rn desc limit {_LAST})"
            _refuse(table, f"{bare} in ({listed}) and {last}", "may be a figure over those above")
        if beside := [v for v in values if _UNSURE.fullmatch(v)]:
            listed = ", ".join(map(literal, beside))
            odd = f"({_open(table, cell)} or {_highest(table, numbers)})"
            _refuse(table, f"{bare} in ({listed}) and {odd}", why)
        if 3 <= len(values) <= _FEW and measured:
            _groups_that_add_up(table, cell, measured)
    _last_row_adds_up(table, measured)


def _open(table: Opened, cell: str) -> str:
    """SQL: whether another column of words is empty in the row, though not in most."""
    others = [c for c in table.texts() if c != cell]
    tests: list[str] = []
    for other in others:
        filled = table.one(f"select count({other}) >= 0.8 * count(*) from {table.table}")[0]
        if filled:
            tests.append(f"{_bare(other)} is null")
    return f"({' or '.join(tests)})" if tests else "false"


def _highest(table: Opened, numbers: dict[str, str]) -> str:
    """SQL: whether no row has higher numbers in most columns."""
    tests = [f"({v} = (select max({v}) from {table.table}))::int" for v in numbers.values()]
    return f"({' + '.join(tests)}) * 2 > {len(tests)}" if tests else "false"


def _measured(table: Opened, numbers: dict[str, str]) -> list[str]:
    """SQL for the columns whose numbers vary; a total cannot be told in others."""
    if not numbers:
        return []
    values = list(numbers.values())
    varied = table.one(
        f"select {', '.join(f'count(distinct {v})' for v in values)} from {table.table}"
    )
    return [v for v, count in zip(values, varied, strict=True) if count >= _VARIED]


def _half(part: float | None, whole: float | None) -> bool:
    """Whether a part is as much as all the rest."""
    if not part or whole is None:
        return False
    return abs(2 * part - whole) <= _NEAR * abs(whole)


def _groups_that_add_up(table: Opened, cell: str, measured: Sequence[str]) -> None:
    """Rows of one value that add up those of all others, in most columns that are measured."""
    sums = ", ".join(f"sum({v})" for v in measured)
    groups = table.all(f"select {cell}, {sums} from {table.table} group by {cell} order by {cell}")
    columns = list(zip(*groups, strict=True))[1:]
    wholes = [sum(v for v in column if v is not None) for column in columns]
    for name, *parts in groups:
        adds = sum(map(_half, parts, wholes))
        if name is not None and 2 * adds > len(measured):
            raise NotProvable(f"the rows of {name!r} add up all others")


def _last_row_adds_up(table: Opened, measured: Sequence[str]) -> None:
    if not measured:
        return
    last = table.one(f"select max(rn) from {table.table}")[0]
    pairs = ", ".join(f"max({v}) filter (where rn = {last}), sum({v})" for v in measured)
    found = table.one(f"select {pairs} from {table.table}")
    adds = sum(map(_half, found[::2], found[1::2]))
    if adds * 2 > len(measured):
        raise NotProvable("the last row adds up all others")
