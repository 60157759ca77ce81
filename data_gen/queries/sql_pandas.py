# pandas and duckdb ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false
"""The second way to gold: a plan worked out in pandas, over the original file.

It shares no code with the first (`tables.py`, `write.py`): the file is read by `data_gen.proof`,
which is told nothing of what the first decided, and nothing here is SQL of the database.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from data_gen.proof.forms import Shelf
from data_gen.proof.marks import number, text, time
from data_gen.proof.original import NotProvable
from data_gen.queries.database import Field
from data_gen.queries.sql_plans import Filter, Plan
from data_gen.queries.tables import Table
from data_gen.tally import AGREED, ONCE

Frame = Any
Rows = list[tuple[Any, ...]]
_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Second:
    """The second reader over one folder. Close it after use."""

    def __init__(self, folder: Path) -> None:
        self._shelf = Shelf(folder)
        self._kept: dict[tuple[str, str, int], Any] = {}

    def close(self) -> None:
        self._shelf.con.close()

    def agreed(self, tables: Iterable[Table]) -> str:
        """The verdict of two ways that agree: `proved once` over a file that one library reads."""
        once = any(table.path in self._shelf.once for table in tables)
        return ONCE if once else AGREED

    def frame(self, table: Table, fields: Iterable[Field], rows: int) -> Frame:
        """The first rows of a table, its columns by their names in the file. Raises
        `NotProvable`."""
        pandas: Any = importlib.import_module("pandas")
        found: dict[str, Any] = {}
        for one in fields:
            key = (table.key, one.original, rows)
            if key not in self._kept:
                self._kept[key] = self._column(table, one, rows)
            found[one.original] = self._kept[key]
        return pandas.DataFrame(found)

    def _column(self, table: Table, one: Field, rows: int) -> Any:
        pandas: Any = importlib.import_module("pandas")
        held = self._shelf.table(table.path, table.reading.part)
        numeric = one.kind in ("number", "year") or (one.kind == "key" and one.whole)
        if numeric:
            said = number(held, one.original)
        elif one.kind == "date":
            said = f"strftime({time(held, one.original)}, '%Y-%m-%d')"
        else:
            said = text(held, one.original)
        query = f"SELECT {said} FROM {held.table} ORDER BY rn LIMIT {rows}"
        cells = [row[0] for row in held.all(query)]
        if numeric:
            return pandas.Series([float("nan") if c is None else float(c) for c in cells])
        return pandas.Series(cells, dtype=object)


def values(plan: Plan, frame: Frame, other: Frame | None = None) -> Rows:
    """What the plan asks for, as rows; `other` is the second table of a join."""
    if other is not None:
        return _of_two(plan, frame, other)
    rows = _met(frame, plan.filters)
    match plan.kind:
        case "list":
            return _tuples(rows, plan.shown)
        case "count":
            return [(len(rows),)]
        case "aggregate":
            return [(_one(plan, rows),)]
        case "group":
            return _grouped(plan, rows)
        case "having":
            return [(k,) for k, v in _grouped(plan, rows) if _TESTS[plan.sign](v, plan.limit)]
        case "best_group":
            best = [(v, k) for k, v in _grouped(plan, rows) if v is not None]
            best.sort(key=lambda pair: (-pair[0] if plan.down else pair[0], pair[1]))
            return [(key,) for _, key in best[: plan.limit]]
        case "top":
            return _top(plan, rows)
        case "top_each":
            return _top_each(plan, rows)
        case "date_part":
            return _by_part(plan, rows)
        case "above_average":
            mean = float(_column(frame, plan.measure).dropna().mean())
            above = _TESTS[plan.sign](_column(rows, plan.measure), mean)
            return _tuples(rows[above], plan.shown)
        case "share":
            return _share(plan, frame)
        case "absent":
            met = set(_column(rows, plan.group).dropna())
            return [(v,) for v in sorted(set(_column(frame, plan.group).dropna()) - met)]
        case _:  # "distinct": how many there are, or each
            found = set(_column(rows, plan.group).dropna())
            return [(len(found),)] if plan.limit else [(v,) for v in sorted(found)]


def _column(frame: Frame, field: Field | None) -> Any:
    assert field is not None
    return frame[field.original]


def _met(frame: Frame, filters: Iterable[Filter]) -> Frame:
    """The rows that meet all conditions; a missing value meets none."""
    for one in filters:
        there = frame[_column(frame, one.field).notna()]
        frame = there[_TESTS[one.sign](_column(there, one.field), one.value)]
    return frame


def _one(plan: Plan, rows: Frame) -> Any:
    """The summary of some rows; None where there is nothing to summarise."""
    if plan.summary == "rows" or plan.measure is None:
        return len(rows)
    column = _column(rows, plan.measure).dropna()
    if column.empty:
        return None
    match plan.summary:
        case "mean":
            return float(column.mean())
        case "total":
            return float(column.sum())
        case "largest":
            return column.max()
        case _:
            return column.min()


def _each(plan: Plan, frame: Frame, by: Any) -> Rows:
    return [(key, _one(plan, rows)) for key, rows in frame.groupby(by, dropna=True, sort=True)]


def _grouped(plan: Plan, rows: Frame) -> Rows:
    assert plan.group is not None
    return _each(plan, rows, plan.group.original)


def _tuples(frame: Frame, shown: Iterable[Field]) -> Rows:
    columns = [_column(frame, f).tolist() for f in shown]
    return [tuple(None if v != v else v for v in row) for row in zip(*columns, strict=True)]


def _top(plan: Plan, rows: Frame) -> Rows:
    assert plan.measure is not None
    by = [plan.measure.original, plan.shown[0].original]
    rows = rows.dropna(subset=by[:1])
    rows = rows.sort_values(by, ascending=[not plan.down, True], kind="stable")
    return _tuples(rows.head(plan.limit), plan.shown)


def _top_each(plan: Plan, rows: Frame) -> Rows:
    assert plan.group and plan.measure
    found: Rows = []
    rows = rows.dropna(subset=[plan.measure.original])
    for key, part in rows.groupby(plan.group.original, dropna=True):
        place = _column(part, plan.measure).rank(method="min", ascending=not plan.down)
        names = _column(part[place <= plan.limit], plan.shown[0])
        found += [(key, None if v != v else v) for v in names.tolist()]
    return found


def _by_part(plan: Plan, rows: Frame) -> Rows:
    assert plan.group is not None
    rows = rows.dropna(subset=[plan.group.original])
    column = _column(rows, plan.group)
    if plan.part == "decade":
        part = (column // 10 * 10).astype(int)
    else:
        part = column.str.slice(*((0, 4) if plan.part == "year" else (5, 7))).astype(int)
    return _each(plan, rows, part.rename("part"))


def _share(plan: Plan, frame: Frame) -> Rows:
    *given, asked = plan.filters
    whole = _met(frame, given).dropna(subset=[asked.field.original])
    if whole.empty:
        return [(None,)]
    return [(100 * len(_met(whole, [asked])) / len(whole),)]


def _of_two(plan: Plan, frame: Frame, other: Frame) -> Rows:
    mine = _column(frame, plan.mine)
    theirs = _column(other, plan.theirs).dropna()
    if plan.kind == "unmatched":
        there = set(mine.dropna())
        return [(v,) for v in theirs.tolist() if v not in there]
    if theirs.duplicated().any():
        raise NotProvable("a key of the other table stands there twice")
    if plan.kind == "join_filter":
        keys = set(_column(_met(other, plan.filters), plan.theirs).dropna())
        return [(_one(plan, frame[mine.map(lambda key: key in keys)]),)]
    left = _met(frame, plan.filters).dropna(subset=[mine.name])
    looked_up = dict(zip(theirs, _column(other, plan.group)[theirs.index], strict=True))
    groups = _column(left, plan.mine).map(lambda key: looked_up.get(key))
    there = groups.notna()
    return _each(plan, left[there], groups[there])
