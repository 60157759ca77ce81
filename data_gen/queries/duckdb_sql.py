"""The second of the two ways: the value of every step, by SQL over the original files.

The SQL knows the typed steps alone: no code of the pandas way, and no reader of it (see
`data_gen.proof`).
"""

# duckdb ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from data_gen.proof.forms import Shelf
from data_gen.proof.marks import number, text
from data_gen.proof.original import NotProvable, Opened, literal
from data_gen.queries import ops
from data_gen.queries.ops import Cut, Op, Summary

_SUMS: dict[Summary, str] = {
    "mean": "avg({})",
    "median": "quantile_cont({}, 0.5)",
    "total": "sum({})",
    "largest": "max({})",
    "std": "stddev_samp({})",
}
_CUTS: dict[Cut, str] = {  # the part in brackets is kept
    "after_comma": r"^(?:.|\n)*,([^,]*)$",
    "before_comma": r"^((?:.|\n)*),[^,]*$",
    "in_brackets": r"^(?:.|\n)*\(([^()]*)\)\s*$",
}


def values(steps: tuple[Op, ...], shelf: Shelf) -> list[Any]:
    """The value of every step. Raises `NotProvable`."""
    first = steps[0]
    try:
        assert isinstance(first, ops.Load)
        rows = _Rows(shelf, shelf.table(first.table.path, first.table.part))
        return [rows.value(op) for op in steps]
    except NotProvable:
        raise
    except Exception as error:  # DuckDB says in many types what it cannot compute
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NotProvable(f"the query failed: {said[:160]}") from None


def part_of(cell: str, cut: Cut) -> str:
    """SQL that gives the part of a text, or NULL where it has none."""
    pattern = literal(_CUTS[cut])
    found = f"CASE WHEN regexp_matches({cell}, {pattern}) THEN regexp_extract({cell}, {pattern}, 1)"
    return f"nullif(regexp_replace({found} END, '^\\s+|\\s+$', '', 'g'), '')"


class _Rows:
    """The rows reached so far, as a table of DuckDB. What a step makes of a column stands in a new
    one beside all others (`made`: its place, and whether it holds numbers or clean texts)."""

    def __init__(self, shelf: Shelf, home: Opened) -> None:
        self._shelf, self._home = shelf, home
        self._rows, self._groups = home.table, ""
        self._made: dict[str, tuple[str, bool]] = {}
        self._count = 0

    def _one(self, query: str) -> Any:
        return self._all(query)[0][0]

    def _all(self, query: str) -> list[Any]:
        return self._shelf.con.execute(query).fetchall()

    def _new(self) -> str:
        self._count += 1
        return f"s{self._count}"

    def _table(self, query: str) -> str:
        """A new table of a query's rows."""
        name = self._new()
        self._shelf.con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        return name

    def _cell(self, column: str, numeric: bool) -> str:
        if column not in self._made:
            return (number if numeric else text)(self._home, column)
        place, is_number = self._made[column]
        if is_number != numeric:
            raise NotProvable(f"column {column!r} is of no file")
        return place

    def _number(self, column: str) -> str:
        return self._cell(column, True)

    def _text(self, column: str) -> str:
        return self._cell(column, False)

    def _key(self, column: str, whole: bool) -> str:
        return f"CAST({self._number(column)} AS BIGINT)" if whole else self._text(column)

    def _put(self, column: str, cell: str, numeric: bool) -> None:
        """The rows where an expression has a value, with it as the column."""
        new = self._new()
        beside = f"SELECT *, ({cell}) AS {new} FROM {self._rows}"
        self._rows = self._table(f"SELECT * FROM ({beside}) WHERE {new} IS NOT NULL")
        self._made[column] = new, numeric

    def _keep(self, condition: str) -> None:
        self._rows = self._table(f"SELECT * FROM {self._rows} WHERE {condition}")

    def value(self, op: Op) -> Any:
        """What a step gives, after its work on the rows."""
        match op:
            case ops.Load():
                pass
            case ops.Clean(column):
                self._put(column, self._number(column), True)
            case ops.Years(column):
                self._put(column, self._number(column), True)
                return self._figure(f"count(DISTINCT {self._number(column)})")
            case ops.Split(column, cut, into):
                self._put(into, part_of(self._text(column), cut), False)
                return self._figure(f"count(DISTINCT {self._text(into)})")
            case ops.Keep(column, value):
                self._keep(f"{self._text(column)} = {literal(value)}")
            case ops.Limit(column, sign, limit):
                self._keep(f"{self._number(column)} {sign} {limit!r}")
            case ops.Join():
                self._join(op)
            case ops.Least(keys, whole, rows):
                ready = [self._key(k, w) for k, w in zip(keys, whole, strict=True)]
                there = " AND ".join(f"{key} IS NOT NULL" for key in ready)
                size = f"count(*) OVER (PARTITION BY {', '.join(ready)})"
                self._keep(f"{there} QUALIFY {size} >= {rows}")
            case ops.Group():
                return self._group(op)
            case ops.AboveOwn(by, of):
                cells = f"SELECT {self._text(by)} AS k, {self._number(of)} AS x FROM {self._rows}"
                kept = f"SELECT * FROM ({cells}) WHERE k IS NOT NULL AND x IS NOT NULL"
                lined = f"SELECT x, avg(x) OVER (PARTITION BY k) AS line FROM ({kept})"
                return self._one(f"SELECT count(*) FROM ({lined}) WHERE x > line")
            case _:
                return self._of_rows(op) if isinstance(op, ops.OfRows) else self._of_groups(op)
        return self._one(f"SELECT count(*) FROM {self._rows}")

    def _join(self, op: ops.Join) -> None:
        other = self._shelf.table(op.table.path, op.table.part)
        brought = (number if op.number else text)(other, op.brings)
        theirs = (number if op.whole else text)(other, op.theirs)
        mine, key, new = self._cell(op.mine, op.whole), self._new(), self._new()
        self._rows = self._table(
            f"SELECT a.*, b.v AS {new} FROM (SELECT *, {mine} AS {key} FROM {self._rows}) a "
            f"JOIN (SELECT {theirs} AS k, {brought} AS v FROM {other.table}) b ON a.{key} = b.k "
            "WHERE b.v IS NOT NULL"
        )
        self._made |= {op.mine: (key, op.whole), op.brings: (new, op.number)}

    def _group(self, op: ops.Group) -> int:
        keys = [self._key(k, whole) for k, whole in zip(op.keys, op.whole, strict=True)]
        named = ", ".join(f"{key} AS k{n}" for n, key in enumerate(keys))
        order = ", ".join(f"k{n}" for n in range(len(keys)))
        there = " AND ".join(f"k{n} IS NOT NULL" for n in range(len(keys)))
        cells = f"SELECT {named}, {self._number(op.of)} AS x FROM {self._rows}"
        self._groups = self._table(
            f"SELECT {order}, {_SUMS[op.how].format('x')} AS v FROM ({cells}) "
            f"WHERE {there} AND x IS NOT NULL GROUP BY {order} HAVING v IS NOT NULL"
        )
        return self._one(f"SELECT count(*) FROM {self._groups}")

    def _of_groups(self, op: Op) -> Any:
        g = self._groups
        match op:
            case ops.Above():
                return self._one(f"SELECT count(*) FROM {g} WHERE v > (SELECT avg(v) FROM {g})")
            case ops.Best(high):
                order = "DESC" if high else "ASC"
                *keys, _ = self._all(f"SELECT * FROM {g} ORDER BY v {order} LIMIT 1")[0]
                return ", ".join(str(k) for k in keys)
            case ops.Nth(place, high):
                order = f"v {'DESC' if high else 'ASC'} LIMIT 1 OFFSET {place - 1}"
                return str(self._one(f"SELECT k0 FROM {g} ORDER BY {order}"))
            case ops.Spread(digits):
                return float(self._one(f"SELECT round(max(v) - min(v), {digits}) FROM {g}"))
            case ops.Change(one, other, digits):
                first, second = (f"any_value(v) FILTER (k0 = {key})" for key in (one, other))
                change = f"100.0 * (({second}) - ({first})) / ({first})"
                return float(self._one(f"SELECT round({change}, {digits}) FROM {g}"))
            case ops.Top(k, high):
                order = "DESC" if high else "ASC"
                found = self._all(f"SELECT k0 FROM {g} ORDER BY v {order} LIMIT {k}")
                return [str(row[0]) for row in found]
            case ops.Each():
                return [float(row[0]) for row in self._all(f"SELECT v FROM {g} ORDER BY k0")]
            case ops.Interpolate(share, at):
                late = f"SELECT v FROM {g} ORDER BY k0 DESC LIMIT 2 OFFSET {at - 1}"
                (after,), (before,) = self._all(late)
                return float(before) + share * (float(after) - float(before))
            case _:
                raise NotProvable(f"no SQL for {type(op).__name__}")

    def _of_rows(self, op: ops.OfRows) -> Any:
        match op:
            case ops.Figure(of, how, digits):
                return self._figure(f"round({_SUMS[how].format(self._number(of))}, {digits})")
            case ops.Difference(by, one, other, of, how, digits):
                value = _SUMS[how].format(self._number(of))
                first, second = (
                    f"({value} FILTER ({self._text(by)} = {literal(side)}))"
                    for side in (one, other)
                )
                return self._figure(f"round({first} - {second}, {digits})")
            case ops.Portion(column, sign, limit, digits):
                part = f"count(*) FILTER ({self._number(column)} {sign} {limit!r})"
                return self._figure(f"round(100.0 * {part} / count(*), {digits})")
            case ops.Share(by, value, of, digits):
                whole = f"sum({self._number(of)})"
                part = f"{whole} FILTER ({self._text(by)} = {literal(value)})"
                return self._figure(f"round(100.0 * {part} / {whole}, {digits})")
            case ops.Correlate(x, y):
                return self._figure(f"corr({self._number(y)}, {self._number(x)})")
            case ops.Fit(x, y, both):
                line = f"({self._number(y)}, {self._number(x)})"
                slope = self._figure(f"regr_slope{line}")
                return [slope, self._figure(f"regr_intercept{line}")] if both else slope
            case _:
                raise NotProvable(f"no SQL for {type(op).__name__}")

    def _figure(self, expression: str) -> float:
        found = self._one(f"SELECT {expression} FROM {self._rows}")
        if found is None:
            raise NotProvable("the query found no value")
        return float(found)
