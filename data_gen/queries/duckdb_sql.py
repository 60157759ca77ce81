"""The second of the two ways: the value of every step, by SQL over the original files.

Knows the typed steps alone: no code of the pandas way, and no reader of it (see `data_gen.proof`).
"""

# duckdb ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from data_gen.proof.marks import number, text
from data_gen.proof.original import NotProvable, Opened, ident, literal
from data_gen.proof.shelf import Shelf
from data_gen.queries.ops import (
    Above,
    AboveOwn,
    Best,
    Change,
    Clean,
    Correlate,
    Cut,
    Difference,
    Each,
    Figure,
    Fit,
    Group,
    Interpolate,
    Join,
    Keep,
    Least,
    Limit,
    Load,
    Nth,
    OfRows,
    Op,
    Portion,
    Share,
    Split,
    Spread,
    Summary,
    Top,
    Years,
)

_SUMS: dict[Summary, str] = {
    "mean": "avg({})",
    "median": "quantile_cont({}, 0.5)",
    "total": "sum({})",
    "largest": "max({})",
    "std": "stddev_samp({})",
}
_CUTS: dict[Cut, tuple[str, str]] = {  # (pattern the cell must match, the part that is kept)
    "after_comma": (r"^(?:.|\n)*,([^,]*)$", "1"),
    "before_comma": (r"^((?:.|\n)*),[^,]*$", "1"),
    "in_brackets": (r"^(?:.|\n)*\(([^()]*)\)\s*$", "1"),
}


@dataclass
class _State:
    """The view of rows reached so far, and what is known of its columns."""

    shelf: Shelf
    rows: str = ""  # a table of DuckDB
    groups: str = ""  # a table k0, k1, …, v
    count: int = 0
    home: Opened | None = None
    numbers: set[str] = field(default_factory=set[str])  # columns that are numbers already
    texts: set[str] = field(default_factory=set[str])  # columns that are clean texts already
    made: dict[str, str] = field(default_factory=dict[str, str])  # of these: what DuckDB calls them

    def get(self, query: str) -> Any:
        return self.shelf.con.execute(query).fetchall()[0]

    def all(self, query: str) -> list[Any]:
        return self.shelf.con.execute(query).fetchall()

    def make(self, query: str) -> str:
        """A new table of a query's rows."""
        self.count += 1
        name = f"s{self.count}"
        self.shelf.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        return name

    def place(self, column: str) -> str:
        """Where a column of the rows stands. Columns are called by their place, and not by their
        names, which DuckDB takes for one where they differ by case alone."""
        if column in self.numbers | self.texts:
            return ident(self.made.setdefault(column, f"own{len(self.made)}"))
        if self.home is None:
            raise NotProvable(f"column {column!r} is of no file")
        return self.home.column(column)

    def number(self, column: str) -> str:
        """A column of the rows as a number."""
        if column in self.numbers:
            return self.place(column)
        if self.home is None or column in self.texts:
            raise NotProvable(f"column {column!r} is of no file")
        return number(self.home, column)

    def text(self, column: str) -> str:
        if column in self.texts:
            return self.place(column)
        if self.home is None or column in self.numbers:
            raise NotProvable(f"column {column!r} is of no file")
        return text(self.home, column)

    def own(self, column: str, numeric: bool) -> str:
        """A place for a column that a step makes, of numbers or of clean texts."""
        self.numbers.discard(column)
        self.texts.discard(column)
        (self.numbers if numeric else self.texts).add(column)
        return self.place(column)


def values(ops: tuple[Op, ...], shelf: Shelf) -> list[Any]:
    """The value of every step. Raises `NotProvable`."""
    state = _State(shelf)
    try:
        return [_value(op, state) for op in ops]
    except NotProvable:
        raise
    except Exception as error:  # DuckDB says in many types what it cannot compute
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotProvable(f"the query failed: {said[:160]}") from None


def _value(op: Op, s: _State) -> Any:
    match op:
        case Load(table):
            s.home = s.shelf.table(table.path, table.part)
            s.rows = s.home.table
            return _count(s)
        case Clean() | Years() | Split() | Keep() | Limit() | Join() | Least():
            return _of_rows(op, s)
        case Group():
            return _group(op, s)
        case AboveOwn(by, of):
            return _above_own(by, of, s)
        case Figure() | Difference() | Portion() | Share() | Correlate() | Fit():
            return _figure(op, s)
        case _:
            return _of_groups(op, s)


def _count(s: _State) -> int:
    return int(s.get(f"SELECT count(*) FROM {s.rows}")[0])


def _distinct(s: _State, column: str) -> int:
    return int(s.get(f"SELECT count(DISTINCT {s.place(column)}) FROM {s.rows}")[0])


def _put(s: _State, column: str, expression: str, numeric: bool) -> None:
    """Rows with the expression beside all columns, where it has a value."""
    own = s.own(column, numeric)
    kept = [ident(c) for c in _columns(s) if ident(c) != own]
    listed = ", ".join([*kept, f"({expression}) AS {own}"])
    s.rows = s.make(f"SELECT * FROM (SELECT {listed} FROM {s.rows}) WHERE {own} IS NOT NULL")


def part_of(cell: str, cut: Cut) -> str:
    """SQL that gives the part of a text, or NULL where it has none."""
    pattern, part = _CUTS[cut]
    found = f"regexp_extract({cell}, {literal(pattern)}, {part})"
    found = f"CASE WHEN regexp_matches({cell}, {literal(pattern)}) THEN {found} END"
    trimmed = f"regexp_replace({found}, '^\\s+|\\s+$', '', 'g')"
    return f"nullif({trimmed}, '')"


def _columns(s: _State) -> list[str]:
    return [str(row[0]) for row in s.all(f"DESCRIBE {s.rows}")]


def _of_rows(op: Clean | Years | Split | Keep | Limit | Join | Least, s: _State) -> int:
    match op:
        case Clean(column):
            _put(s, column, s.number(column), numeric=True)
        case Years(column):
            _put(s, column, s.number(column), numeric=True)
            return _distinct(s, column)
        case Split(column, cut, into):
            _put(s, into, part_of(s.text(column), cut), numeric=False)
            return _distinct(s, into)
        case Keep(column, value):
            s.rows = s.make(f"SELECT * FROM {s.rows} WHERE {s.text(column)} = {literal(value)}")
        case Limit(column, sign, limit):
            s.rows = s.make(f"SELECT * FROM {s.rows} WHERE {s.number(column)} {sign} {limit!r}")
        case Join():
            _join(op, s)
        case Least(keys, whole, rows):
            ready = [_key(s, k, w) for k, w in zip(keys, whole, strict=True)]
            there = " AND ".join(f"{key} IS NOT NULL" for key in ready)
            s.rows = s.make(
                f"SELECT * FROM {s.rows} WHERE {there} "
                f"QUALIFY count(*) OVER (PARTITION BY {', '.join(ready)}) >= {rows}"
            )
    return _count(s)


def _join(op: Join, s: _State) -> None:
    other = s.shelf.table(op.table.path, op.table.part)
    brought = (number if op.number else text)(other, op.brings)
    theirs = (number if op.whole else text)(other, op.theirs)
    mine = s.number(op.mine) if op.whole else s.text(op.mine)
    rows, columns = s.rows, _columns(s)
    key, new = s.own(op.mine, op.whole), s.own(op.brings, op.number)
    kept = [f"a.{ident(c)}" for c in columns if ident(c) not in (key, new)]
    listed = ", ".join([*kept, f"a.k0 AS {key}", f"b.v AS {new}"])
    s.rows = s.make(
        f"SELECT {listed} FROM (SELECT *, {mine} AS k0 FROM {rows}) a "
        f"JOIN (SELECT {theirs} AS k, {brought} AS v FROM {other.table}) b ON a.k0 = b.k "
        "WHERE b.v IS NOT NULL"
    )


def _key(s: _State, column: str, whole: bool) -> str:
    return f"CAST({s.number(column)} AS BIGINT)" if whole else s.text(column)


def _group(op: Group, s: _State) -> int:
    keys = [_key(s, k, whole) for k, whole in zip(op.keys, op.whole, strict=True)]
    named = ", ".join(f"{key} AS k{n}" for n, key in enumerate(keys))
    order = ", ".join(f"k{n}" for n in range(len(keys)))
    there = " AND ".join(f"k{n} IS NOT NULL" for n in range(len(keys)))
    of = s.number(op.of)
    s.groups = s.make(
        f"SELECT {order}, {_SUMS[op.how].format('x')} AS v FROM (SELECT {named}, {of} AS x "
        f"FROM {s.rows}) WHERE {there} AND x IS NOT NULL GROUP BY {order}"
    )
    s.groups = s.make(f"SELECT * FROM {s.groups} WHERE v IS NOT NULL")
    return int(s.get(f"SELECT count(*) FROM {s.groups}")[0])


def _of_groups(op: Op, s: _State) -> Any:
    g = s.groups
    match op:
        case Above():
            return int(s.get(f"SELECT count(*) FROM {g} WHERE v > (SELECT avg(v) FROM {g})")[0])
        case Best(high):
            *keys, _ = s.get(f"SELECT * FROM {g} ORDER BY v {'DESC' if high else 'ASC'} LIMIT 1")
            return ", ".join(str(k) for k in keys)
        case Nth(place, high):
            order = f"v {'DESC' if high else 'ASC'} LIMIT 1 OFFSET {place - 1}"
            return str(s.get(f"SELECT k0 FROM {g} ORDER BY {order}")[0])
        case Spread(digits):
            return float(s.get(f"SELECT round(max(v) - min(v), {digits}) FROM {g}")[0])
        case Change(one, other, digits):
            first, second = (f"any_value(v) FILTER (k0 = {key})" for key in (one, other))
            change = f"100.0 * (({second}) - ({first})) / ({first})"
            return float(s.get(f"SELECT round({change}, {digits}) FROM {g}")[0])
        case Top(k, high):
            order = "DESC" if high else "ASC"
            return [str(r[0]) for r in s.all(f"SELECT k0 FROM {g} ORDER BY v {order} LIMIT {k}")]
        case Each():
            return [float(row[0]) for row in s.all(f"SELECT v FROM {g} ORDER BY k0")]
        case Interpolate(share, at):
            late = s.all(f"SELECT v FROM {g} ORDER BY k0 DESC LIMIT 2 OFFSET {at - 1}")
            after, before = float(late[0][0]), float(late[1][0])
            return before + share * (after - before)
        case _:
            raise NotProvable(f"no SQL for {type(op).__name__}")


def _above_own(by: str, of: str, s: _State) -> int:
    cells = f"SELECT {s.text(by)} AS k, {s.number(of)} AS x FROM {s.rows}"
    kept = f"SELECT * FROM ({cells}) WHERE k IS NOT NULL AND x IS NOT NULL"
    lined = f"SELECT x, avg(x) OVER (PARTITION BY k) AS line FROM ({kept})"
    return int(s.get(f"SELECT count(*) FROM ({lined}) WHERE x > line")[0])


def _figure(op: OfRows, s: _State) -> Any:
    match op:
        case Figure(of, how, digits):
            return _rounded(s, _SUMS[how].format(s.number(of)), digits)
        case Difference(by, one, other, of, how, digits):
            cell, value = s.text(by), s.number(of)
            first, second = (
                _SUMS[how].format(value) + f" FILTER ({cell} = {literal(side)})"
                for side in (one, other)
            )
            return _rounded(s, f"({first}) - ({second})", digits)
        case Portion(column, sign, limit, digits):
            part = f"count(*) FILTER ({s.number(column)} {sign} {limit!r})"
            return _rounded(s, f"100.0 * {part} / count(*)", digits)
        case Share(by, value, of, digits):
            number = s.number(of)
            part = f"sum({number}) FILTER ({s.text(by)} = {literal(value)})"
            return _rounded(s, f"100.0 * {part} / sum({number})", digits)
        case Correlate(x, y):
            return _one(s, f"corr({s.number(y)}, {s.number(x)})")
        case Fit(x, y, both):
            first, second = s.number(x), s.number(y)
            slope = _one(s, f"regr_slope({second}, {first})")
            if not both:
                return slope
            return [slope, _one(s, f"regr_intercept({second}, {first})")]
        case _:
            raise NotProvable(f"no SQL for {type(op).__name__}")


def _one(s: _State, expression: str) -> float:
    (found,) = s.get(f"SELECT {expression} FROM {s.rows}")
    if found is None:
        raise NotProvable("the query found no value")
    return float(found)


def _rounded(s: _State, expression: str, digits: int) -> float:
    return _one(s, f"round({expression}, {digits})")
