"""The one reader of tables: what a file holds, how it is read, and plan it.

`plan_file` decides, from a sample of a large file. `check_plan` reads the whole, and where a cell
contradicts what was decided makes the column text or refuses the table. `load` reads as a checked
plan says.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import contextlib
import importlib
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from assay.tables.columns import (
    column_of,
    decide,
    doubting,
    odd_sign,
    own_format,
    parse,
    pattern,
    some_left,
    with_sentinels,
    word_doubt,
)
from assay.tables.encoding import line_in_file
from assay.tables.formats import Found, by_content, files_below, form_of, tables_of
from assay.tables.layout import chosen_cells, delimited, members, records_of, with_settings
from assay.tables.number_format import (
    NO_DAYS,
    SIGNS,
    marked_number,
    marks_of,
    missing_words,
    open_number,
    plain_number,
    sentinels_of,
)
from assay.tables.plan import (
    Frame,
    ReadPlan,
    Skipped,
    Unreadable,
    in_doubt,
    kept_lines,
    named,
    opened,
    refused,
    row_steps,
    source,
    to_number,
    value_steps,
    words_of,
)
from assay.tables.settings import (
    Doubt,
    FileSettings,
    TableSettings,
    read_settings,
    shown,
    yaml_list,
    yaml_word,
)
from assay.tables.structure import alike_values, doubts_in, labels_once

SMALL = 2 << 20  # bytes of a file that is read whole before its plan is given
_ROUNDS = 8
_WIDE = re.compile(r"Expected \d+ fields in line \d+, saw \d+")
_MOST = 1 << 30  # tables of one file
_Kept = dict[str, Frame]  # frames read already, by the code that reads them; each is used once


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
    root = path.parent if root is None else root
    small = form_of(path) != "" and path.is_file() and path.stat().st_size <= SMALL
    return [
        found if isinstance(found, ReadPlan | Skipped) else found[0]
        for found in _found(path, root, rules, small, _MOST)
    ]


def load_file(
    path: Path, root: Path, rules: TableSettings | None = None, most: int = _MOST
) -> list[tuple[ReadPlan, Frame] | Skipped]:
    """What `check_plan` gives for each of the first `most` tables of a file, with the file read as
    seldom as can be; or why a table is refused."""
    found = _found(path, root, rules, True, most)
    return [one for one in found if not isinstance(one, ReadPlan)]


def _found(
    path: Path, root: Path, rules: TableSettings | None, whole: bool, most: int
) -> list[ReadPlan | Skipped | tuple[ReadPlan, Frame]]:
    """The tables of a file; with `whole`, each is read to its end and stands beside its frame."""
    form = form_of(path)
    if not form:
        return []
    name = path.relative_to(root).as_posix()
    rules = read_settings(root) if rules is None else rules
    rule = rules.of(name)
    if not rule.use:
        return [Skipped(name, "tables.yaml says use: false")]
    kept: _Kept = {}
    try:
        if form == "csv":
            form, rule = by_content(path, rule)
        if form == "csv":
            found = iter([delimited(path, name, rule)])
        elif form == "zip":
            found = iter(list(members(path, name, rules)))
        else:
            found = (_typed(t, path, rules, kept) for t in tables_of(path, name, form, rules))
        checked: list[ReadPlan | Skipped | tuple[ReadPlan, Frame]] = []
        for one in islice(found, most):
            try:
                planned = whole and isinstance(one, ReadPlan)
                checked.append(check_plan(cast("ReadPlan", one), root, kept) if planned else one)
            except Unreadable as error:
                checked.append(refused(one.path, error, one.part))
        return checked
    except Unreadable as error:
        return [refused(name, error)]
    except OSError as error:
        return [Skipped(name, f"cannot be opened ({error.strerror or error})")]


def load(plan: ReadPlan, root: Path) -> Frame:
    """The table as its plan says. Raises `Unreadable` in one sentence for a file that does not
    hold what was decided from its sample: `check_plan` finds a plan that fits."""
    raw = _raw(plan, root)
    fitting = adjusted(plan, raw, _texts(plan, root))
    if replace(fitting, notes=plan.notes) != plan:  # a note alone changes no cell
        new = [n for n in fitting.notes if n not in plan.notes]
        new += [d.line() for d in fitting.doubts if d not in plan.doubts]
        why = new[0] if new else "other words for missing values than were decided"
        raise Unreadable(f"{plan.name}: the whole table says otherwise than its sample: {why}")
    return _finished(plan, raw)


def written(plan: ReadPlan, root: Path) -> Frame:
    """The rows of a table with the cells as they are written, so far as pandas keeps them: no word
    is taken for no value, and no text for a number or date. Columns in doubt are left out. Raises
    `Unreadable`."""
    bare = replace(plan, numbers=(), marked=(), dates={}, missing={}, text=plan.columns)
    return _raw(bare, root)[list(plan.used)]


def check_plan(plan: ReadPlan, root: Path, kept: _Kept | None = None) -> tuple[ReadPlan, Frame]:
    """The plan that the whole table fits, and the table as `load` gives it for that plan. `kept`:
    frames that are read already."""
    for turn in range(_ROUNDS):
        raw = _raw(plan, root, kept, look=turn == 0)
        fitting = adjusted(plan, raw, _texts(plan, root))
        if fitting == plan:
            return plan, _finished(plan, raw)
        same = _code(fitting) == _code(plan)
        plan = fitting
        if same and adjusted(plan, raw, _texts(plan, root)) == plan:
            return plan, _finished(plan, raw)
    raise Unreadable(f"{plan.name}: no plan fits all of it; name its columns in tables.yaml")


def _code(plan: ReadPlan) -> list[str]:
    """What reads the cells and chooses the rows."""
    return [source(plan).code, *(s.code() for s in row_steps(plan))]


def _raw(plan: ReadPlan, root: Path, kept: _Kept | None = None, look: bool = False) -> Frame:
    """The frame with its rows chosen, before words become values. `look`: raise what is in doubt
    of its rows."""
    place = str((root / plan.path).absolute())
    first = source(plan, place)
    frame = (kept or {}).pop(first.code, None)
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as databases:
            warnings.simplefilter("ignore")

            def connect(place: str, uri: bool) -> sqlite3.Connection:
                database = contextlib.closing(sqlite3.connect(place, uri=uri))
                return databases.enter_context(database)

            names: dict[str, Any] = {"sqlite3": SimpleNamespace(connect=connect)}
            frame = first.value(names) if frame is None else frame
            names["t"] = _checked(plan, frame)
            if look and (doubts := _structure(plan, frame, place)):
                raise in_doubt(*doubts)
            for step in row_steps(plan, "t", place):
                step.run(names)
            return names["t"]
    except (Unreadable, OSError, MemoryError):
        raise
    except Exception as error:  # whatever pandas says of a file it cannot read
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        if _WIDE.match(said):
            found = f"{said[0].lower()}{said[1:]}: a row has more fields than the others"
            wide = Doubt("wide_rows", found, "ragged: skip  # leaves out such rows")
            raise in_doubt(wide) from None
        raise Unreadable(f"{plan.name}: {said[:160]}") from None


def _structure(plan: ReadPlan, frame: Frame, place: str) -> list[Doubt]:
    """What is in doubt of the rows of a table: totals, notes, names again, a second table."""
    rule = FileSettings(
        names=plan.columns,
        drop_rows=() if plan.rows_told else None,
        drop_where=plan.drop_where,
    )
    looked = frame.set_axis(list(plan.columns), axis=1)
    for column in plan.marked:  # numbers are compared faster than their texts
        cells = frame.iloc[:, plan.columns.index(column)]
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            looked[column] = to_number(plan, column, named("c")).value({**{}, "c": cells})
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


def _checked(plan: ReadPlan, frame: Frame) -> Frame:
    index = importlib.import_module("pandas").RangeIndex
    if not isinstance(frame.index, index):
        raise Unreadable(f"{plan.name}: rows have more fields than there are column names")
    if plan.columns and [str(c) for c in frame.columns] != list(plan.columns):
        raise Unreadable(f"{plan.name}: the columns are not those of the plan")
    return frame


def _finished(plan: ReadPlan, raw: Frame) -> Frame:
    names = {"t": raw}
    try:
        for step in value_steps(plan):
            step.run(names)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise Unreadable(f"{plan.name}: {' '.join(str(error).split())[:160]}") from None
    return names["t"]


def _texts(plan: ReadPlan, root: Path) -> Any:
    """What reads some columns of a delimited file as text, for a second look."""

    def read(columns: list[str]) -> Frame:
        bare = replace(plan, numbers=(), marked=(), dates={}, text=tuple(columns))
        if plan.form != "csv":
            bare = replace(bare, exact=(*plan.exact, *columns))
        frame = _raw(bare, root)
        return frame[columns]

    return read


def _typed(
    found: Found | Skipped, path: Path, rules: TableSettings, kept: _Kept
) -> ReadPlan | Skipped:
    if isinstance(found, Skipped):
        return found
    plan = found.plan
    rule = rules.of(plan.path, plan.part)
    if not rule.use:
        return Skipped(plan.path, "tables.yaml says use: false", plan.part)
    try:
        if not plan.columns:
            names = _frame_names(plan, path, kept)
            plan = replace(plan, columns=names)
        plan = with_settings(plan, rule)
        plan = _with_facts(plan, found)
        cells = chosen_cells(plan, zip_longest(*found.cells))
        columns = [
            column_of(name, cells[i] if i < len(cells) else ())
            for i, name in enumerate(plan.columns)
        ]
        return decide(plan, columns, rule)
    except Unreadable as error:
        return refused(found.plan.path, error, found.plan.part)


def _with_facts(plan: ReadPlan, found: Found) -> ReadPlan:
    """With what the file says of columns by their places: doubts, merged cells that are filled."""
    names = plan.columns
    doubts = [replace(d, column=names[i], path=plan.path, part=plan.part) for i, d in found.doubts]
    filled = tuple((names[c], names[o], at) for c, o, at in found.fills)
    return replace(plan, doubts=(*plan.doubts, *doubts), filled=filled)


def _frame_names(plan: ReadPlan, path: Path, kept: _Kept) -> tuple[str, ...]:
    """The names that pandas gives the columns; the frame is kept, as it will be wanted next."""
    root = path.parents[len(Path(plan.path).parts) - 1]
    frame = _raw(plan, root)
    kept[source(plan, str((root / plan.path).absolute())).code] = frame
    return tuple(str(c) for c in frame.columns)


_SHOWN = 30
_DAYS = 5  # different ones beside which a day may mean no value
_EXACT = 2.0**53  # whole numbers beyond it have no exact float
_LONG = 10**18  # a number of 19 digits is a name
_ANY = re.compile(r"(?s:.)*")
_EXACTLY = ("csv", "json", "lines", "sqlite", "duckdb", "parquet", "feather")  # read as text too
Texts = Callable[[list[str]], Frame]


def adjusted(plan: ReadPlan, raw: Frame, texts: Texts) -> ReadPlan:
    """The plan, or one that the whole table fits better. `raw` is the table before its
    statements, `texts` reads columns again as text. Raises `Unreadable` where every column is in
    doubt."""
    frame = raw.set_axis([str(c) for c in raw.columns], axis=1)
    used = set(plan.used)
    for place, column in enumerate(plan.columns):
        cells = frame.iloc[:, place]
        if column not in used:
            continue
        if column in plan.dates:
            plan = _date(plan, column, cells)
        elif column in plan.marked:
            plan = _marked(plan, column, cells)
        elif column in plan.text:
            plan = doubting(plan, alike_values(column, cells, plan.spellings.get(column)))
        elif cells.dtype.kind in "iufb":
            plan = _number(plan, column, cells)
        elif column in plan.numbers:
            plan = _no_number(plan, column, cells)
        else:
            plan = doubting(plan, alike_values(column, cells, plan.spellings.get(column)))
    for doubt in [] if plan.fill_told else labels_once(frame, plan.fixed):
        plan = doubting(plan, doubt) if doubt.column in plan.used else plan
    if plan.form == "csv":
        plan = _late_marks(plan, frame, texts)
    return some_left(_inexact(plan, frame, texts))


def _odd_cells(cells: Any, fits: re.Pattern[str]) -> dict[str, int]:
    """The distinct texts of a column that do not fit, with counts; other values are left out."""
    filled = cells.dropna()
    if filled.dtype == object:
        filled = filled[[isinstance(v, str) for v in filled]].astype("str")
    if not len(filled) or filled.dtype.kind in "iufbM":
        return {}
    apart = filled.drop_duplicates()
    apart = apart[~apart.str.fullmatch(fits.pattern).astype(bool)]
    odd = filled[filled.isin(apart)] if len(apart) else apart
    return {str(k): int(n) for k, n in odd.value_counts().items()}


def _texted(plan: ReadPlan, column: str, why: str) -> ReadPlan:
    """The column as text, with the reason; words for missing numbers are words of it now."""
    kept = {k: v for k, v in plan.missing.items() if k != column}
    return replace(
        plan,
        numbers=tuple(c for c in plan.numbers if c != column),
        marked=tuple(c for c in plan.marked if c != column),
        dates={k: v for k, v in plan.dates.items() if k != column},
        text=plan.text if column in plan.text else (*plan.text, column),
        missing=plan.missing if column in plan.fixed else kept,
        notes=(*plan.notes, f"{column!r} stays text: {why}"),
    )


def _with_words(plan: ReadPlan, column: str, odd: dict[str, int]) -> ReadPlan:
    """With the words for no value that only the whole column shows."""
    if column in plan.fixed:
        return plan
    known = plan.missing.get(column, ())
    more = [w for w in missing_words(odd) if w not in known]
    if not more:
        return plan
    return replace(plan, missing={**plan.missing, column: (*known, *more)})


def _left(plan: ReadPlan, column: str, odd: dict[str, int]) -> list[str]:
    """Cells that are no value of the column and no word for a missing one."""
    words = set(words_of(plan, column))
    return sorted(c for c in odd if c.strip() and c not in words)


def _date(plan: ReadPlan, column: str, cells: Any) -> ReadPlan:
    form = plan.dates[column]
    fits = _ANY if own_format(form) else pattern(form)
    odd = _odd_cells(cells, fits)
    plan = _with_words(plan, column, odd)
    left = _left(plan, column, odd)
    if not left:
        words = plan.missing.get(column, ())
        filled = [c for c in cells.dropna().unique().tolist() if c not in words and c != ""]
        parsed = parse(filled, form) if filled else None
        if filled and parsed is None:
            left = [next((c for c in filled if parse([c], form) is None), filled[0])]
        elif parsed is not None and column not in plan.fixed:
            plan = doubting(plan, _no_day(column, filled, parsed))
    if not left:
        return plan
    return _texted(plan, column, f"{left[0][:_SHOWN]!r} is no date as {form}")


def _no_day(column: str, cells: list[str], parsed: Any) -> Doubt | None:
    """The doubt of days such as 9999-12-31 and 1900-01-01 far from all others."""
    typical = parsed.dt.strftime("%Y-%m-%d").isin(NO_DAYS)
    rest = parsed[~typical]
    if not bool(typical.any()) or len(rest) < _DAYS:
        return None
    low, high = rest.min(), rest.max()
    gap = (parsed - high).where(parsed > high, low - parsed)
    odd = [c for c, far in zip(cells, typical & (gap >= 0.3 * (high - low)), strict=True) if far]
    if not odd:
        return None
    said = f"{shown(odd[0])} is far from the other days, {low:%Y-%m-%d} to {high:%Y-%m-%d}: "
    settle = f"missing: {{{yaml_word(column)}: {yaml_list(odd)}}}  # or [] if it is a day"
    return Doubt("sentinel", f"{said}a value, or none", settle, column)


def _marked(plan: ReadPlan, column: str, cells: Any) -> ReadPlan:
    if cells.dtype.kind in "iufb":
        return plan
    mark, group = plan.decimal_of(column), plan.thousands_of(column)
    odd = _odd_cells(cells, marked_number(mark, group))
    plan = _with_words(plan, column, odd)
    left = _left(plan, column, odd)
    if left:
        why = f"{left[0][:_SHOWN]!r} is no number like the others"
        return _worded(plan, column, left, odd, cells) or _texted(plan, column, why)
    words = words_of(plan, column)
    texts = cells[cells.notna() & ~cells.isin([*words, ""])]
    if (sign := _odd_sign(texts)) is not None:
        return _texted(plan, column, f"{sign[:_SHOWN]!r} is no number like the others")
    numbers = to_number(plan, column, named("cells")).value({"cells": texts})
    return _number(plan, column, numbers)


def _odd_sign(texts: Any) -> str | None:
    """A cell whose sign of money or per cent the others do not share."""
    if texts.dtype == object:
        return None
    signed = texts[texts.str.contains(f"[{SIGNS}]", regex=True).astype(bool)]
    cells = dict.fromkeys(signed.unique().tolist(), 1)
    return odd_sign(cells | ({"": 1} if len(signed) < len(texts) else {}))


def _number(plan: ReadPlan, column: str, cells: Any) -> ReadPlan:
    if cells.dtype.kind == "b" or column in plan.fixed:
        return plan
    return with_sentinels(plan, column, sentinels_of(cells))


def _no_number(plan: ReadPlan, column: str, cells: Any) -> ReadPlan:
    """A column decided to be numbers that pandas reads as text: a cell is none."""
    odd = _odd_cells(cells, plain_number(plan.decimal))
    if cells.isna().all():
        return plan
    found = _with_words(plan, column, odd)
    left = _left(found, column, odd)
    if not left:
        return found if found != plan else _texted(plan, column, "of numbers too large")
    fits = marked_number(found.decimal, found.thousands)
    if all(fits.fullmatch(c) for c in left):
        return replace(found, marked=(*found.marked, column))
    why = f"{left[0][:_SHOWN]!r} is no number"
    return _worded(plan, column, left, odd, cells) or _texted(plan, column, why)


def _worded(
    plan: ReadPlan, column: str, left: list[str], odd: dict[str, int], cells: Any
) -> ReadPlan | None:
    """In doubt where words among the numbers may mean no value."""
    rest = int(cells.notna().sum()) - sum(odd[c] for c in left)
    if column in plan.fixed or rest < 1:
        return None
    doubt = word_doubt(column, {**{c: odd[c] for c in left}, "0": rest})
    return doubting(plan, doubt) if doubt else None


def _late_marks(plan: ReadPlan, frame: Frame, texts: Texts) -> ReadPlan:
    """Columns of which no number of the sample had a decimal mark, and some of the table have."""
    used = set(plan.used) - set(plan.clear) - set(plan.marked) - set(plan.text)
    late = [c for c in plan.columns if c in used and _fractions(frame[c])]
    if not late:
        return plan
    again = texts(late)
    listed = {c: again[c].dropna().unique().tolist() for c in late}
    if not plan.decimal:
        marks = marks_of(list(listed.items()), plan.between)
        plan = replace(plan, decimal=marks.decimal, thousands=marks.thousands)
        return replace(
            plan,
            clear=(*plan.clear, *marks.clear),
            doubts=(*plan.doubts, *marks.doubts),
        )
    for column, cells in listed.items():
        doubt = open_number(column, cells, plan.decimal)
        plan = doubting(plan, doubt)
        if doubt is None:
            plan = replace(plan, clear=(*plan.clear, column))
    return plan


def _fractions(column: Any) -> bool:
    if column.dtype.kind != "f":
        return False
    filled = column.dropna()
    return bool((filled != filled.round()).any())


def _inexact(plan: ReadPlan, frame: Frame, texts: Texts) -> ReadPlan:
    """Whole numbers of more digits than a number holds stay text, in all their digits."""
    large = [
        c
        for c in plan.used
        if c not in plan.text
        and ((kind := frame[c].dtype.kind) == "f" or (kind in "iu" and plan.form != "csv"))
        and bool(frame[c].abs().max() >= (_EXACT if kind == "f" else _LONG))
    ]
    if not large or plan.form not in _EXACTLY:
        return plan
    again = texts(large)
    for column in large:
        cells: list[str] = again[column].dropna().unique().tolist()
        odd = next((c for c in cells if c.strip().lstrip("+-").isdigit() and len(c) > 15), None)
        if odd is not None:
            plan = _texted(plan, column, f"{odd!r} has more digits than a number holds")
            if plan.form != "csv":
                plan = replace(plan, exact=(*plan.exact, column))
    return plan
