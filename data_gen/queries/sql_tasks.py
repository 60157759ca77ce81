# pandas and duckdb ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""What a process makes of one folder: questions over its tables, each of which has one gold. The
two ways to it agree, and no other reading of the words differs.

The second way works a plan out in pandas, over the original file. It shares no code with the first
(`sql_plans.py`, `sql_write.py`): the file is read by `data_gen.proof`, which is told nothing of
what the first decided, and nothing in it is SQL of the database.

Everything is tried on the data and on `WIDE` twins of them. A task keeps the first of these as the
hidden databases that training is scored on.
"""

from __future__ import annotations

import argparse
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from assay.errors import pandas as pd
from assay.tables.load import load
from assay.task import Task, TaskError, derive_seed
from data_gen.certificate import (
    AGREED,
    DIFFERS,
    ONCE,
    UNPROVABLE,
    Refusal,
    Refused,
    Tally,
    drawn_from,
)
from data_gen.pipeline import Builder, tasks_of
from data_gen.proof.forms import Shelf
from data_gen.proof.marks import number, text, time
from data_gen.proof.original import NotProvable
from data_gen.queries import sql_plans, sql_write
from data_gen.queries.lake import Lake
from data_gen.queries.sql_plans import Field, Filter, Plan, Unit
from data_gen.queries.sql_write import Draft, Written, focus_of, written
from data_gen.queries.tables import Link, Table
from rewards.sql.data import Cell, Database, Focus, Row, hidden_database
from rewards.sql.family import hard_coded
from rewards.sql.run import Failed, run
from rewards.sql.score import TWINS, constants, equal, fenced, score_query
from rewards.weights import SqlReward

SHORT_COLUMNS = 8
_TRIES = 5  # drafts of a kind over a table
_JOINS = 3  # databases of two tables, for each table
_HARD = ("above_average", "absent", "share", "top_each", "best_group", "having")


class SqlBuilder(Builder[Unit, Draft, list[Row]]):
    """Questions over one folder. A source is a database: a table, or two that can be joined."""

    def __init__(self, lake: Lake, split: str, of: argparse.Namespace, second: Second) -> None:
        self.lake, self.split, self.of, self.second = lake, split, of, second
        self.tally = Tally(most=2)
        self.kinds: Counter[str] = Counter()  # drafts by kind
        self.cut: dict[str, str] = {}  # what is said of tables of which rows are left out

    def units(self) -> Iterator[Unit]:
        """Databases of one table each, then of two tables that can be joined."""
        lake, of, tally = self.lake, self.of, self.tally
        found: dict[int, sql_plans.Made] = {}
        for place, table in enumerate(lake.tables):
            name = lake.input_name(table.key)
            try:
                frame = load(table.reading, lake.folder)
            except (TaskError, OSError) as error:
                tally.unused[name] = str(error)
                continue
            most = SHORT_COLUMNS if of.short else sql_plans.COLUMNS
            one = sql_plans.made(table, frame, of.rows, most)
            if isinstance(one, str):
                tally.unused[name] = one
                continue
            found[place] = one
            if one.cut:
                self.cut[name] = one.cut
            yield Unit((one,))
        for place, one in found.items() if not of.short else ():
            ways: dict[tuple[int, str, str], Link] = {}
            for link in lake.links[place]:
                ways.setdefault((link.other, link.mine, link.theirs), link)
            pairs = [(found[k.other], k) for k in ways.values() if k.other in found]
            others = [(o, k) for o, k in pairs if o.table.name != one.table.name]
            units = [sql_plans.joined(one, o, k) for o, k in others]
            yield from list(filter(None, units))[:_JOINS]

    def drafts(self, source: Unit, rng: Random, made: Sequence[Task]) -> Iterator[Draft]:
        """A question of each kind in turn; of one table in two rounds."""
        kinds = [*(sql_plans.TWO if source.link else sql_plans.ONE)]
        rng.shuffle(kinds)
        shapes: set[str] = set()
        for _ in range(1 if source.link else 2):
            for kind in kinds:
                before = len(made)
                for plan in self._plans(source, kind, rng, shapes):
                    one, text = written(plan, source), sql_write.question(plan, source, rng)
                    seed = derive_seed(self.of.seed, "sql-twins", self.lake.name, plan.shape)
                    yield Draft(source, plan, one, text, seed)
                    if len(made) > before:
                        shapes.add(plan.shape)
                        break

    def _plans(self, unit: Unit, kind: str, rng: Random, shapes: set[str]) -> Iterator[Plan]:
        tried: list[Plan] = []
        for _ in range(_TRIES):
            try:
                plan = sql_plans.draft(unit, kind, rng)
            except sql_plans.NoPlan:
                why = Refusal("its columns do not fit the kind of question")
                self.tally.note(why, self._names(unit))
                continue
            if plan.shape in shapes:
                self.tally.refuse(Refusal("asked already"))
            elif plan not in tried:
                tried.append(plan)
                self.kinds[kind] += 1
                yield plan

    def gold(self, draft: Draft) -> list[Row]:
        return gold_rows(draft.plan, draft.unit, draft.one)

    def again(self, draft: Draft, gold: list[Row]) -> str:
        return agreed(draft.plan, draft.unit, gold, draft.one, self.second, self.of.rows)

    def words(self, draft: Draft, gold: list[Row]) -> str:
        """The question, with the clauses that tell it from what else it might mean."""
        try:
            draft.clauses = clauses_needed(
                draft.plan, draft.unit, draft.one, draft.text, gold, draft.seed
            )
        except NotProvable as error:
            raise Refused(UNPROVABLE, str(error)) from None
        return " ".join([draft.text, *draft.clauses])

    def task(self, draft: Draft, gold: list[Row], words: str) -> Task:
        unit, plan, lake, of = draft.unit, draft.plan, self.lake.name, self.of
        body, stated = sql_write.prompt(words, unit), of.stated_licence or "unknown"
        if sql_write.too_long(body, of.short):
            raise Refused("a prompt that is too long")
        tables = [m.described for m in unit.made]
        name = f"{derive_seed('sql-task', lake, *(t.key for t in tables), plan.shape):016x}"
        return Task(
            id=f"sql-{lake}-{name}",
            family="sql",
            track=f"sql-{plan.kind}",
            split=self.split,
            prompt=[{"role": "user", "content": body}],
            gold={
                "sql": draft.one.sql,
                "ordered": draft.one.ordered,
                "database": unit.packed,
                "focus": [list(f) for f in focus_of(plan, unit)],
                "seed": draft.seed,
                "twins": TWINS,
                "result": [list(row) for row in gold],
            },
            meta={
                **drawn_from(lake, [t.about.licence or stated for t in tables]),
                "benchmark": "sql",
                "database": f"{lake}/{tables[0].key}",
                "kind": plan.kind,
                "question": words,
                "clauses": list(draft.clauses),
                "tables_asked": str(len(unit.made)),
                **({"rows": cuts} if (cuts := [m.cut for m in unit.made if m.cut]) else {}),
                "difficulty": "hard" if len(unit.made) > 1 or plan.kind in _HARD else "easy",
                "tables": sorted({t.digest for t in tables}),
                "keys": sorted({t.key for t in tables}),
            },
        )

    def check(self, draft: Draft, gold: list[Row], task: Task) -> None:
        """Gold scores 1, and its rows written down are not paid."""
        score = score_query(task.gold, fenced(task.gold["sql"]), False, SqlReward())
        if (score.outcome, score.reward) != (1.0, 1.0):
            raise Refused("gold does not score 1", f"{task.gold['sql']} ({score.why})")
        if score_query(task.gold, hard_coded(task), False, SqlReward()).reward:
            raise Refused("gold does not score 1", "its rows written down are paid")

    def inputs(self, draft: Draft) -> list[str]:
        return self._names(draft.unit)

    def _names(self, unit: Unit) -> list[str]:
        return [self.lake.input_name(m.described.key) for m in unit.made]


def generate(
    job: tuple[Lake, str, int, argparse.Namespace],
) -> tuple[list[Task], Tally, Counter[str], dict[str, str]]:
    """The tasks of one folder, `most` over a table, in an order that depends on the seed and the
    tables alone; and what became of the drafts, these by kind, and what is said of tables of which
    rows are left out. `of`: the options of the build."""
    lake, split, most, of = job
    tasks: list[Task] = []
    with closing(Second(lake.folder)) as second:
        builder = SqlBuilder(lake, split, of, second)
        for unit in builder.units():
            keys = [m.described.key for m in unit.made]
            rng = Random(derive_seed(of.seed, "sql-unit", lake.name, *keys))
            few = most if len(unit.made) == 1 else max(1, most // 3)
            tasks += tasks_of(builder, unit, few, rng, builder.tally)
    return tasks, builder.tally, builder.kinds, builder.cut


# --- the second way

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
        found: dict[str, Any] = {}
        for one in fields:
            key = (table.key, one.original, rows)
            if key not in self._kept:
                self._kept[key] = self._column(table, one, rows)
            found[one.original] = self._kept[key]
        return pd.DataFrame(found)

    def _column(self, table: Table, one: Field, rows: int) -> Any:
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
            return pd.Series([float("nan") if c is None else float(c) for c in cells])
        return pd.Series(cells, dtype=object)


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
        return [(_one(plan, frame[mine.map(keys.__contains__)]),)]
    left = _met(frame, plan.filters).dropna(subset=[mine.name])
    looked_up = dict(zip(theirs, _column(other, plan.group)[theirs.index], strict=True))
    groups = _column(left, plan.mine).map(looked_up.get)
    there = groups.notna()
    return _each(plan, left[there], groups[there])


# --- whether both ways agree, and no other reading fits

WIDE = 6  # twins on which readings are told apart
MOST_ROWS = 40  # of a result


def twins(base: Database, focus: tuple[Focus, ...], seed: int, places: range) -> list[Database]:
    """The twins of these numbers."""
    return [hidden_database(base, focus, seed, number) for number in places]


def gold_rows(plan: Plan, unit: Unit, one: Written) -> list[Row]:
    """What the query gives over the data. Raises `Refused`."""
    found = run(unit.database, one.sql)
    if isinstance(found, Failed):
        raise Refused("the query does not run", f"{one.sql} ({found.why})")
    _usable(plan, found)
    return found


def clauses_needed(
    plan: Plan, unit: Unit, one: Written, text: str, gold: list[Row], seed: int
) -> tuple[str, ...]:
    """The clauses that the question needs, so that no other reading of it fits. Raises `Refused`
    where none helps, and where a constant or a listing of everything is right."""
    focus = focus_of(plan, unit)
    tried = [unit.database, *twins(unit.database, focus, seed, range(TWINS))]
    golds = [gold, *(_rows(d, one.sql) for d in tried[1:])]
    _telling(golds, one)
    wide = twins(unit.database, focus, seed, range(TWINS, WIDE))
    tried += wide
    golds += [_rows(d, one.sql) for d in wide]
    if same := constants(golds):
        said = f"{one.sql} ({sorted(map(str, same))})"
        raise Refused("a constant could stand for a column", said)
    clauses = told_apart(one, text, tried, golds)
    _no_shortcut(plan, unit, one, tried, golds)
    return clauses


def _rows(database: Database, sql: str) -> list[Row]:
    found = run(database, sql)
    if isinstance(found, Failed):
        raise Refused("the query does not run on a twin", f"{sql} ({found.why})")
    return found


def _usable(plan: Plan, rows: Sequence[Row]) -> None:
    if not rows or len(rows) > MOST_ROWS:
        raise Refused("an empty result" if not rows else "too many rows")
    if any(cell is None for row in rows for cell in row):
        raise Refused("a missing value in the result")
    if plan.kind in ("top", "best_group") and len(rows) < plan.limit:
        raise Refused("fewer rows than are asked for")
    several = plan.kind in ("group", "having", "join", "date_part") or (
        plan.kind == "distinct" and not plan.limit
    )
    if several and len(rows) == 1:
        raise Refused("one group only")
    if plan.kind in ("group", "join", "date_part") and len({row[-1] for row in rows}) == 1:
        raise Refused("one figure for all groups")
    if rows[0] in ((0,), (1,)) or (plan.kind == "share" and rows[0] in ((100.0,), (0.0,))):
        raise Refused("a trivial result")


def agreed(
    plan: Plan, unit: Unit, found: list[Row], one: Written, second: Second, rows: int
) -> str:
    """The verdict where both ways give the same rows. Raises `Refused`."""
    try:
        again = values(plan, *frames(plan, unit, second, rows))
    except NotProvable as error:
        raise Refused(UNPROVABLE, str(error)) from None
    except (TypeError, ValueError, KeyError) as error:
        raise Refused(UNPROVABLE, f"{type(error).__name__}: {error}") from None
    if not equal(found, [tuple(map(_cell, row)) for row in again], one.ordered):
        raise Refused(DIFFERS, f"{one.sql} is {found[:3]}, by pandas {again[:3]}")
    return second.agreed(made.described for made in unit.made)


def frames(plan: Plan, unit: Unit, second: Second, rows: int) -> list[object]:
    """The tables of a plan as the second way reads them."""
    first, *rest = unit.made
    # by place, never by name: both tables may have a column of one name
    theirs = [f for f in (plan.theirs, plan.group if plan.kind == "join" else None) if f]
    whole = replace(plan, group=None) if rest else plan
    if plan.kind == "join_filter":
        theirs += [f.field for f in plan.filters]
        whole = replace(whole, filters=())
    mine = [*whole.columns, *([plan.mine] if plan.mine else [])]
    made: list[object] = [second.frame(first.described, mine, rows)]
    if rest:
        made.append(second.frame(rest[0].described, theirs, rows))
    return made


def _cell(value: object) -> Cell:
    """A value of pandas as SQLite would give it."""
    if value is None or isinstance(value, str):
        return value
    number = float(value)  # pyright: ignore[reportArgumentType]
    if math.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def _telling(golds: Sequence[list[Row]], one: Written) -> None:
    """The twins that score have results, and other ones than the data."""
    scored = golds[1 : TWINS + 1]
    if sum(bool(rows) for rows in scored) < TWINS - 1:
        raise Refused("empty on the twins")
    if any(equal(golds[0], rows, one.ordered) for rows in scored):
        raise Refused("the values do not matter")


def told_apart(
    one: Written, text: str, tried: Sequence[Database], golds: Sequence[list[Row]]
) -> tuple[str, ...]:
    """The clauses that say which reading is meant. Raises `Refused` where a reading differs, on the
    data or on a twin, and nothing in the question tells it from gold."""
    clauses: list[str] = []
    for other in one.others:
        if not differs(other.sql, one, tried, golds):
            continue
        if other.said and other.said in text:
            continue
        if not other.clause:
            raise Refused(f"ambiguous: {other.label}", f"{text} ({other.sql})")
        clauses.append(other.clause)
    return tuple(dict.fromkeys(clauses))


def differs(sql: str, one: Written, tried: Sequence[Database], golds: Sequence[list[Row]]) -> bool:
    """Whether another query gives other rows anywhere."""
    for database, gold in zip(tried, golds, strict=True):
        rows = run(database, sql)
        if isinstance(rows, Failed) or not equal(gold, rows, one.ordered):
            return True
    return False


def _no_shortcut(
    plan: Plan, unit: Unit, one: Written, tried: Sequence[Database], golds: Sequence[list[Row]]
) -> None:
    """No listing of everything is right on data and twins alike, and every condition matters."""
    if plan.kind not in ("share", "absent"):
        for at in range(len(plan.filters)):
            left = replace(plan, filters=plan.filters[:at] + plan.filters[at + 1 :])
            if equal(golds[0], _rows(tried[0], written(left, unit).sql), one.ordered):
                raise Refused("a condition changes nothing")
    if plan.kind in ("top", "top_each", "best_group"):
        turned = written(replace(plan, down=not plan.down), unit)
        if equal(golds[0], _rows(tried[0], turned.sql), one.ordered):
            raise Refused("all that is ranked is equal")
    if plan.kind == "top" and plan.measure is not None:
        more = replace(plan, shown=(plan.measure,), limit=plan.limit + 1)
        if len({row[0] for row in _rows(tried[0], written(more, unit).sql)}) == 1:
            raise Refused("all that is ranked is equal")
    if plan.kind == "having":
        every = one.sql.partition(" HAVING ")[0]
        if equal(golds[0], _rows(tried[0], every), one.ordered):
            raise Refused("a condition changes nothing")
    for sql in sql_write.listings(unit, len(golds[0])):
        if not differs(sql, one, tried[: TWINS + 1], golds[: TWINS + 1]):
            raise Refused("listing everything is right", sql)
