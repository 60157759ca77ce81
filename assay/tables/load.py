"""The one reader of tables: what a file holds, how it is read, and its rows.

`load_file` decides: cells are read as they are written, what each column is is decided from all of
them, and the table is read as was decided. `load` reads as a plan says.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import importlib
import re
import sqlite3
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from assay.tables.columns import Column, column_of, decide
from assay.tables.formats import by_content, files_below, form_of, line_in_file, tables_of
from assay.tables.layout import delimited, members, obey, records_of
from assay.tables.plan import (
    Expr,
    Frame,
    ReadPlan,
    Skipped,
    Unreadable,
    in_doubt,
    kept_lines,
    opened,
    refused,
    row_steps,
    source,
    to_number,
    value_steps,
)
from assay.tables.settings import Doubt, FileSettings, TableSettings, read_settings
from assay.tables.structure import doubts_in, labels_once

_WIDE = re.compile(r"Expected \d+ fields in line \d+, saw \d+")
_MOST = 1 << 30  # tables of one file
_EXACT = 2.0**53  # whole numbers beyond it have no exact float
_LONG = 10**18  # a number of 19 digits is a name
_EXACTLY = ("csv", "json", "lines", "sqlite", "duckdb", "parquet", "feather")  # read as text too


def plan_folder(root: Path) -> Iterator[ReadPlan | Skipped]:
    """The tables of all files below a folder, in the order of their paths; then a line for each
    file that is not read."""
    rules = read_settings(root)
    tables, others = files_below(root)
    for path in tables:
        yield from plan_file(path, root, rules)
    yield from others


def plan_file(
    path: Path, root: Path | None = None, rules: TableSettings | None = None
) -> list[ReadPlan | Skipped]:
    """The tables of one file with everything decided, or why they are refused; none for a file
    that is no table. Without `rules`, `tables.yaml` of the root folder counts."""
    found = load_file(path, path.parent if root is None else root, rules)
    return [one if isinstance(one, Skipped) else one[0] for one in found]


def load_file(
    path: Path,
    root: Path,
    rules: TableSettings | None = None,
    most: int = _MOST,
    part: str | None = None,
) -> list[tuple[ReadPlan, Frame] | Skipped]:
    """The first `most` tables of a file, or the one of `part`, with everything decided and as
    `load` gives them, or why they are refused."""
    form = form_of(path)
    if not form:
        return []
    name = path.relative_to(root).as_posix()
    rules = read_settings(root) if rules is None else rules
    rule = rules.of(name)
    if not rule.use:
        return [Skipped(name, "tables.yaml says use: false")]
    try:
        if form == "csv":
            form, rule = by_content(path, rule)
        if form == "csv":
            tables = iter([delimited(path, name, rule)])
        elif form == "zip":
            tables = members(path, name, rules)
        else:
            tables = tables_of(path, name, form, rules)
        wanted = (one for one in tables if part is None or one.part == part)
        return [_decided(one, root, rules) for one in islice(wanted, most)]
    except Unreadable as error:
        return [refused(name, error)]
    except OSError as error:
        return [Skipped(name, f"cannot be opened ({error.strerror or error})")]


def load(plan: ReadPlan, root: Path) -> Frame:
    """The table as its plan says. Raises `Unreadable` in one sentence for a file that does not
    hold what was decided."""
    frame = _finished(plan, _raw(plan, root))
    if odd := [c for c in plan.used if c in plan.numbers and not _has_numbers(frame[c])]:
        raise Unreadable(f"{plan.name}: column {odd[0]!r} holds other cells than its plan says")
    return frame


def written(plan: ReadPlan, root: Path) -> Frame:
    """The rows of a table with the cells as they are written, so far as pandas keeps them: no word
    is taken for no value, and no text for a number or date. Columns in doubt are left out. Raises
    `Unreadable`."""
    return _raw(_as_written(plan), root)[list(plan.used)]


def _as_written(plan: ReadPlan) -> ReadPlan:
    return replace(plan, numbers=(), marked=(), dates={}, missing={}, text=plan.columns)


def _decided(
    plan: ReadPlan | Skipped, root: Path, rules: TableSettings
) -> tuple[ReadPlan, Frame] | Skipped:
    if isinstance(plan, Skipped):
        return plan
    rule = rules.of(plan.path, plan.part)
    if not rule.use:
        return Skipped(plan.path, "tables.yaml says use: false", plan.part)
    try:
        frame = None
        if not plan.columns:
            frame = _read(plan, root)
            _set_names(plan, frame)
        if plan.labelled or rule.names or rule.drop_rows:  # it is read otherwise
            frame = None
        obey(plan, rule)
        for place, doubt in plan.placed:
            column = plan.columns[place]
            plan.doubt(replace(doubt, column=column, path=plan.path, part=plan.part))
        return _looked_at(plan, frame, root, rule)
    except Unreadable as error:
        return refused(plan.path, error, plan.part)


def _set_names(plan: ReadPlan, frame: Frame) -> None:
    """The names that pandas gives the columns, and which of them hold labels of codes."""
    if plan.form in ("json", "lines") and not (
        len(frame.columns) and all(isinstance(c, str) for c in frame.columns)
    ):
        raise Unreadable("no array of objects, or no object on each line")
    plan.columns = tuple(map(str, frame.columns))
    plan.labelled = tuple(str(c) for c in frame.columns if frame[c].dtype == "category")


def _looked_at(
    plan: ReadPlan, frame: Frame | None, root: Path, rule: FileSettings
) -> tuple[ReadPlan, Frame]:
    """The plan with all decided from the cells as they are written, and the table. `frame`: it is
    read already."""
    typed = plan.form != "csv"
    if frame is None:
        frame = _read(plan if typed else _as_written(plan), root)
    raw = _chosen(plan, frame, root)
    columns = [column_of(c, raw.iloc[:, i]) for i, c in enumerate(plan.columns)]
    decide(plan, columns, rule)
    frame = frame if typed else _read(plan, root)
    if doubts := _structure(plan, frame, rule, _place(plan, root)):
        raise in_doubt(*doubts)
    raw = raw if typed else _chosen(plan, frame, root)
    fixed = [c for c in plan.columns if rule.missing_of(c) is not None]
    for doubt in [] if rule.merged or rule.fill_down is not None else labels_once(raw, fixed):
        plan.doubt(doubt if plan.uses(doubt.column) else None)
    if _keep_digits(plan, raw, columns, fixed, root):
        raw = _raw(plan, root)
    plan.refuse_without_columns()
    return plan, _finished(plan, raw)


def _keep_digits(
    plan: ReadPlan, raw: Frame, columns: Sequence[Column], fixed: Sequence[str], root: Path
) -> bool:
    """Whole numbers of more digits than a number holds stay text, in all their digits, and so do
    numbers that are too large for pandas. Returns whether there are such columns; of `fixed` ones
    the words for no value stay."""
    why: dict[str, str] = {}
    for column in plan.used:
        native = plan.form == "csv" and column in plan.numbers and column not in plan.marked
        if native and not _has_numbers(raw[column]):
            why[column] = "of numbers too large"
    large = [
        c
        for c in plan.used
        if c not in plan.text
        and c not in why
        and ((kind := raw[c].dtype.kind) == "f" or (kind in "iu" and plan.form != "csv"))
        and bool(raw[c].abs().max() >= (_EXACT if kind == "f" else _LONG))
    ]
    cells: dict[str, Sequence[str]] = {c.name: [*c.cells] for c in columns}
    if large and plan.form in _EXACTLY and plan.form != "csv":
        again = _raw(replace(plan, exact=tuple(large)), root)
        cells = {c: again[c].dropna().unique().tolist() for c in large}
    for column in large if plan.form in _EXACTLY else ():
        odd = next((c for c in cells[column] if len(c) > 15 and c.strip(" +-").isdigit()), None)
        if odd is not None:
            why[column] = f"{odd!r} has more digits than a number holds"
            plan.exact += (column,) if plan.form != "csv" else ()
    plan.numbers = tuple(c for c in plan.numbers if c not in why)
    plan.marked = tuple(c for c in plan.marked if c not in why)
    plan.text += tuple(why)
    plan.missing = {c: w for c, w in plan.missing.items() if c not in why or c in fixed}
    plan.notes += tuple(f"{column!r} stays text: {said}" for column, said in why.items())
    return bool(why)


def _has_numbers(cells: Any) -> bool:
    return cells.dtype.kind in "iufb" or bool(cells.isna().all())


def _raw(plan: ReadPlan, root: Path) -> Frame:
    """The frame with its rows chosen, before words become values."""
    return _chosen(plan, _read(plan, root), root)


def _read(plan: ReadPlan, root: Path) -> Frame:
    """The frame as pandas reads it."""
    with _reading(plan) as names:
        frame = source(plan, _place(plan, root)).value(names)
    index = importlib.import_module("pandas").RangeIndex
    if not isinstance(frame.index, index):
        raise Unreadable(f"{plan.name}: rows have more fields than there are column names")
    if plan.columns and [str(c) for c in frame.columns] != list(plan.columns):
        raise Unreadable(f"{plan.name}: the columns are not those of the plan")
    return frame


def _chosen(plan: ReadPlan, frame: Frame, root: Path) -> Frame:
    """The frame without the rows that the user leaves out, and with cells spelled anew."""
    steps = row_steps(plan, _place(plan, root))
    with _reading(plan) as names:
        names["t"] = frame.copy() if steps else frame
        for step in steps:
            step.run(names)
        return names["t"]


def _finished(plan: ReadPlan, raw: Frame) -> Frame:
    names = {"t": raw}
    try:
        for step in value_steps(plan):
            step.run(names)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise Unreadable(f"{plan.name}: {' '.join(str(error).split())[:160]}") from None
    return names["t"]


def _place(plan: ReadPlan, root: Path) -> str:
    return str((root / plan.path).absolute())


@contextlib.contextmanager
def _reading(plan: ReadPlan) -> Generator[dict[str, Any]]:
    """Names for the expressions of a plan. What pandas says of a file is raised in one sentence."""
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as databases:
            warnings.simplefilter("ignore")

            def connect(place: str, uri: bool) -> sqlite3.Connection:
                database = contextlib.closing(sqlite3.connect(place, uri=uri))
                return databases.enter_context(database)

            yield {"sqlite3": SimpleNamespace(connect=connect)}
    except (Unreadable, OSError, MemoryError):
        raise
    except Exception as error:  # whatever pandas says of a file it cannot read
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        if _WIDE.match(said):
            found = f"{said[0].lower()}{said[1:]}: a row has more fields than the others"
            wide = Doubt("wide_rows", found, "ragged: skip  # leaves out such rows")
            raise in_doubt(wide) from None
        if plan.form != "csv":
            said = f"no readable {plan.form} file ({type(error).__name__}: {said})"
        raise Unreadable(f"{plan.name}: {said[:160]}") from None


def _structure(plan: ReadPlan, frame: Frame, rule: FileSettings, place: str) -> list[Doubt]:
    """What is in doubt of the rows of a table: totals, notes, names again, a second table."""
    told = None if rule.drop_rows is None else ()
    rule = FileSettings(names=plan.columns, drop_rows=told, drop_where=plan.drop_where)
    looked = frame.set_axis(list(plan.columns), axis=1)
    for column in plan.marked:  # numbers are compared faster than their texts
        cells = frame.iloc[:, plan.columns.index(column)]
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            looked[column] = to_number(plan, column, Expr("c")).value({"c": cells})
    first = 1 + (plan.skip + plan.header if plan.form in ("csv", "excel") else 0)
    numbers: Sequence[int] = range(first, first + len(frame))
    doubts = doubts_in(looked, numbers, rule)
    if doubts and plan.form == "csv" and plan.sep != r"\s+":
        with opened(place, plan.encoding, plan.part).value({}) as file:
            lines = kept_lines(file, plan.drop_rows)
            cut = records_of(lines, plan.sep, plan.quote, plan.escape, plan.blanks)
            begins = [n - sum(f.count("\n") for f in row) for n, row in cut if n > plan.skip]
        begins = [line_in_file(n, plan.drop_rows) for n in begins[plan.header :]]
        if len(begins) == len(frame):
            doubts = doubts_in(looked, begins, rule)
    return doubts
