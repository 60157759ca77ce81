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
    return _WAYS[plan.kind](plan, frame, other)


def _met(frame: Frame, filters: Iterable[Filter]) -> Frame:
    """The rows that meet all conditions; a missing value meets none."""
    for one in filters:
        column = frame[one.field.original]
        there = frame[column.notna()]
        frame = there[_TESTS[one.sign](there[one.field.original], one.value)]
    return frame


def _one(plan: Plan, rows: Frame) -> Any:
    """The summary of some rows; None where there is nothing to summarise."""
    if plan.summary == "rows" or plan.measure is None:
        return len(rows)
    column = rows[plan.measure.original].dropna()
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


def _each(plan: Plan, frame: Frame, by: Any) -> list[tuple[Any, Any]]:
    return [(key, _one(plan, rows)) for key, rows in frame.groupby(by, dropna=True, sort=True)]


def _listed(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    return _tuples(_met(frame, plan.filters), plan.shown)


def _tuples(frame: Frame, shown: Iterable[Field]) -> Rows:
    columns = [frame[f.original].tolist() for f in shown]
    return [tuple(None if v != v else v for v in row) for row in zip(*columns, strict=True)]


def _counted(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    return [(len(_met(frame, plan.filters)),)]


def _summed(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    return [(_one(plan, _met(frame, plan.filters)),)]


def _grouped(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.group is not None
    return list(_each(plan, _met(frame, plan.filters), plan.group.original))


def _over(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    found = _grouped(plan, frame, None)
    return [(key,) for key, v in found if v is not None and _TESTS[plan.sign](v, plan.limit)]


def _ranked(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.measure is not None
    rows = _met(frame, plan.filters).dropna(subset=[plan.measure.original])
    first = plan.shown[0].original
    rows = rows.sort_values(
        [plan.measure.original, first], ascending=[not plan.down, True], kind="stable"
    )
    return _tuples(rows.head(plan.limit), plan.shown)


def _different(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.group is not None
    found = set(_met(frame, plan.filters)[plan.group.original].dropna())
    return [(len(found),)] if plan.limit else [(v,) for v in sorted(found)]


def _merged(plan: Plan, frame: Frame, other: Frame | None) -> Rows:
    assert plan.mine and plan.theirs and plan.group and other is not None
    left = _met(frame, plan.filters).dropna(subset=[plan.mine.original])
    right = other.dropna(subset=[plan.theirs.original])
    looked_up = dict(zip(right[plan.theirs.original], right[plan.group.original], strict=True))
    if len(looked_up) != len(right):
        raise NotProvable("a key of the other table stands there twice")
    groups = left[plan.mine.original].map(lambda key: looked_up.get(key))
    there = groups.notna()
    return list(_each(plan, left[there], groups[there]))


def _filtered_by_other(plan: Plan, frame: Frame, other: Frame | None) -> Rows:
    assert plan.mine and plan.theirs and other is not None
    if other[plan.theirs.original].dropna().duplicated().any():
        raise NotProvable("a key of the other table stands there twice")
    keys = set(_met(other, plan.filters)[plan.theirs.original].dropna())
    return [(_one(plan, frame[frame[plan.mine.original].map(lambda key: key in keys)]),)]


def _above(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.measure is not None
    column = frame[plan.measure.original]
    mean = float(column.dropna().mean())
    rows = _met(frame, plan.filters)
    return _tuples(rows[_TESTS[plan.sign](rows[plan.measure.original], mean)], plan.shown)


def _never(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.group is not None
    met = set(_met(frame, plan.filters)[plan.group.original].dropna())
    return [(v,) for v in sorted(set(frame[plan.group.original].dropna()) - met)]


def _portion(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    *given, asked = plan.filters
    whole = _met(frame, given).dropna(subset=[asked.field.original])
    if whole.empty:
        return [(None,)]
    return [(100 * len(_met(whole, [asked])) / len(whole),)]


def _by_part(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.group is not None
    rows = _met(frame, plan.filters).dropna(subset=[plan.group.original])
    column = rows[plan.group.original]
    if plan.part == "decade":
        part = (column // 10 * 10).astype(int)
    else:
        part = column.str.slice(*((0, 4) if plan.part == "year" else (5, 7))).astype(int)
    return list(_each(plan, rows, part.rename("part")))


def _best_each(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    assert plan.group and plan.measure
    found: Rows = []
    rows = _met(frame, plan.filters).dropna(subset=[plan.measure.original])
    for key, part in rows.groupby(plan.group.original, dropna=True):
        place = part[plan.measure.original].rank(method="min", ascending=not plan.down)
        names = part[place <= plan.limit][plan.shown[0].original]
        found += [(key, None if v != v else v) for v in names.tolist()]
    return found


def _best(plan: Plan, frame: Frame, _: Frame | None) -> Rows:
    found = [(v, k) for k, v in _grouped(plan, frame, None) if v is not None]
    found.sort(key=lambda pair: (-pair[0] if plan.down else pair[0], pair[1]))
    return [(key,) for _, key in found[: plan.limit]]


def _lonely(plan: Plan, frame: Frame, other: Frame | None) -> Rows:
    assert plan.mine and plan.theirs and other is not None
    there = set(frame[plan.mine.original].dropna())
    return [(v,) for v in other[plan.theirs.original].dropna().tolist() if v not in there]


_WAYS: dict[str, Callable[[Plan, Frame, Frame | None], Rows]] = {
    "list": _listed,
    "count": _counted,
    "aggregate": _summed,
    "group": _grouped,
    "having": _over,
    "top": _ranked,
    "distinct": _different,
    "join": _merged,
    "join_filter": _filtered_by_other,
    "above_average": _above,
    "absent": _never,
    "share": _portion,
    "date_part": _by_part,
    "top_each": _best_each,
    "best_group": _best,
    "unmatched": _lonely,
}
