"""The one reader of tables: what a file holds, how it is read, and reading it.

`readings` decides, from a sample of a large file. `settle` reads the whole, and where a cell
contradicts what was decided makes the column text or refuses the table. `load` reads as a settled
reading says.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import importlib
import io
import sqlite3
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from assay.tables.checks import revised
from assay.tables.columns import Column, column_of, decide
from assay.tables.dialect import Layout, layout_of, records
from assay.tables.forms import Found, connect, tables_of
from assay.tables.marks import looks_numeric
from assay.tables.overrules import Overrules, Rule, overrules
from assay.tables.plan import Frame, ReadPlan, Unread, Unreadable, after, expression
from assay.tables.texts import WHOLE, Text, read_text

FORMS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".dat"), "csv"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    ".json": "json",
    **dict.fromkeys((".jsonl", ".ndjson"), "lines"),
    ".parquet": "parquet",
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), "sqlite"),
    **dict.fromkeys((".html", ".htm"), "html"),
}
PACKED = (".gz", ".bz2", ".xz", ".zst")
SMALL = 2 << 20  # bytes of a file that is read whole before its reading is given
_SAMPLED = 4000  # rows whose cells are looked at in a large file
_ROUNDS = 8
_MOST = 1 << 30  # tables of one file
_Kept = dict[str, Frame]  # frames read already, by their expressions; each is used once


def form_of(path: Path) -> str:
    """The form that the suffix of a file says; nothing for what is no table."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        form = FORMS.get(suffixes[-2], "") if len(suffixes) > 1 else ""
        return form if form in ("csv", "json", "lines") else ""
    return FORMS.get(suffixes[-1], "") if suffixes else ""


def readings_below(root: Path) -> Iterator[ReadPlan | Unread]:
    """The tables of all files below a folder, in the order of their paths."""
    rules = overrules(root)
    for path in sorted(p for p in root.rglob("*") if p.is_file() and form_of(p)):
        yield from readings(path, root, rules)


def readings(
    path: Path, root: Path | None = None, rules: Overrules | None = None
) -> list[ReadPlan | Unread]:
    """The tables of one file with everything decided, or why they are refused; none for a file
    that is no table. Without `rules`, `tables.yaml` of the root folder counts."""
    root = path.parent if root is None else root
    small = form_of(path) != "" and path.is_file() and path.stat().st_size <= SMALL
    return [
        found if isinstance(found, ReadPlan | Unread) else found[0]
        for found in _found(path, root, rules, small, _MOST)
    ]


def settled(
    path: Path, root: Path, rules: Overrules | None = None, most: int = _MOST
) -> list[tuple[ReadPlan, Frame] | Unread]:
    """What `settle` gives for each of the first `most` tables of a file, with the file read as
    seldom as can be; or why a table is refused."""
    found = _found(path, root, rules, True, most)
    return [one for one in found if not isinstance(one, ReadPlan)]


def _found(
    path: Path, root: Path, rules: Overrules | None, whole: bool, most: int
) -> list[ReadPlan | Unread | tuple[ReadPlan, Frame]]:
    """The tables of a file; with `whole`, each is read to its end and stands beside its frame."""
    form = form_of(path)
    if not form:
        return []
    name = path.relative_to(root).as_posix()
    rule = (overrules(root) if rules is None else rules).of(name)
    if not rule.use:
        return [Unread(name, "tables.yaml says use: false")]
    kept: _Kept = {}
    try:
        if form == "csv":
            found = iter([_delimited(path, name, rule)])
        else:
            found = (_typed(t, path, rule, kept) for t in tables_of(path, name, form, rule))
        return [_sure(one, root, kept) if whole else one for one in islice(found, most)]
    except Unreadable as error:
        return [Unread(name, str(error))]
    except OSError as error:
        return [Unread(name, f"cannot be opened ({error.strerror or error})")]


def _sure(
    found: ReadPlan | Unread, root: Path, kept: _Kept
) -> ReadPlan | Unread | tuple[ReadPlan, Frame]:
    """A reading that the whole of a table fits, and the table."""
    if isinstance(found, Unread):
        return found
    try:
        return _settle(found, root, kept)
    except Unreadable as error:
        return Unread(found.path, str(error).removeprefix(f"{found.name}: "), found.part)


def load(reading: ReadPlan, root: Path) -> Frame:
    """The table as its reading says. Raises `Unreadable` in one sentence for a file that does not
    hold what was decided from its sample: `settle` finds a reading that fits."""
    raw = _raw(reading, root)
    fitting = revised(reading, raw, _texts(reading, root))
    if replace(fitting, notes=reading.notes) != reading:  # a note alone changes no cell
        new = [n for n in fitting.notes if n not in reading.notes]
        why = new[0] if new else "other words for missing values than were decided"
        raise Unreadable(f"{reading.name}: the whole table says otherwise than its sample: {why}")
    return _finished(reading, raw)


def settle(reading: ReadPlan, root: Path) -> tuple[ReadPlan, Frame]:
    """The reading that the whole table fits, and the table as `load` gives it for that reading."""
    return _settle(reading, root, {})


def _settle(reading: ReadPlan, root: Path, kept: _Kept) -> tuple[ReadPlan, Frame]:
    for _ in range(_ROUNDS):
        raw = _raw(reading, root, kept)
        fitting = revised(reading, raw, _texts(reading, root))
        if fitting == reading:
            return reading, _finished(reading, raw)
        same = expression(fitting) == expression(reading)
        reading = fitting
        if same and revised(reading, raw, _texts(reading, root)) == reading:
            return reading, _finished(reading, raw)
    raise Unreadable(f"{reading.name}: no reading fits all of it; name its columns in tables.yaml")


def _names(root: Path, reading: ReadPlan) -> dict[str, Any]:
    return {"pd": importlib.import_module("pandas"), "sqlite3": sqlite3, "str": str}


def _raw(reading: ReadPlan, root: Path, kept: _Kept | None = None) -> Frame:
    """The frame before its statements. The expression is our own, made of quoted parts."""
    place = str((root / reading.path).absolute())
    frame = (kept or {}).pop(expression(reading, place), None)
    if frame is not None:
        return _checked(reading, frame)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if reading.form == "sqlite":
                pd: Any = importlib.import_module("pandas")
                quoted = reading.part.replace('"', '""')
                with contextlib.closing(connect(root / reading.path)) as db:
                    frame = pd.read_sql(f'select * from "{quoted}"', db)
            else:
                frame = eval(expression(reading, place), _names(root, reading))
    except (OSError, MemoryError):
        raise
    except Exception as error:  # whatever pandas says of a file it cannot read
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise Unreadable(f"{reading.name}: {said[:160]}") from None
    return _checked(reading, frame)


def _checked(reading: ReadPlan, frame: Frame) -> Frame:
    index = importlib.import_module("pandas").RangeIndex
    if not isinstance(frame.index, index):
        raise Unreadable(f"{reading.name}: rows have more fields than there are column names")
    if reading.columns and [str(c) for c in frame.columns] != list(reading.columns):
        raise Unreadable(f"{reading.name}: the columns are not those of the reading")
    return frame


def _finished(reading: ReadPlan, raw: Frame) -> Frame:
    names = {"t": raw, **_names(Path(), reading)}
    try:
        for statement in after(reading):
            exec(statement, names)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise Unreadable(f"{reading.name}: {' '.join(str(error).split())[:160]}") from None
    return names["t"]


def _texts(reading: ReadPlan, root: Path) -> Any:
    """What reads some columns of a delimited file as text, for a second look."""

    def read(columns: list[str]) -> Frame:
        bare = replace(reading, numbers=(), marked=(), dates={}, text=tuple(columns))
        frame = _raw(bare, root)
        return frame[columns]

    return read


def _typed(found: Found | Unread, path: Path, rule: Rule, kept: _Kept) -> ReadPlan | Unread:
    if isinstance(found, Unread):
        return found
    try:
        reading = found.reading
        if not reading.columns:
            names = _frame_names(reading, path, kept)
            reading = replace(reading, columns=names)
        columns = [
            column_of(name, found.cells[i] if i < len(found.cells) else ())
            for i, name in enumerate(reading.columns)
        ]
        _check_named(rule, reading)
        return decide(reading, columns, rule)
    except Unreadable as error:
        return Unread(found.reading.path, str(error), found.reading.part)


def _frame_names(reading: ReadPlan, path: Path, kept: _Kept) -> tuple[str, ...]:
    """The names that pandas gives the columns; the frame is kept, as it will be wanted next."""
    root = path.parents[len(Path(reading.path).parts) - 1]
    frame = _raw(reading, root)
    kept[expression(reading, str((root / reading.path).absolute()))] = frame
    return tuple(str(c) for c in frame.columns)


def _check_named(rule: Rule, reading: ReadPlan) -> None:
    unknown = [c for c in rule.named() if c not in reading.columns]
    if unknown:
        raise Unreadable(f"tables.yaml names a column {unknown[0]!r} that is not there")


def _delimited(path: Path, name: str, rule: Rule) -> ReadPlan | Unread:
    suffix = next((s for s in map(str.lower, path.suffixes) if s in FORMS), "")
    text = read_text(path, rule.encoding)
    layout = layout_of(text, rule, suffix)
    if not layout.rows:
        raise Unreadable("no rows below the column names")
    if layout.wide and rule.ragged != "skip":
        raise Unreadable(
            f"line {layout.wide} has more than the {layout.width} fields of the others; mend it, "
            "or set ragged: skip in tables.yaml to leave such rows out"
        )
    reading = ReadPlan(
        name,
        "csv",
        sep=layout.sep,
        encoding=text.encoding,
        quote=layout.quote,
        escape=layout.escape,
        skip=layout.skip,
        ragged="skip" if rule.ragged == "skip" else "",
    )
    reading = _named(reading, layout)
    _check_named(rule, reading)
    return decide(reading, _columns(reading, layout, text), rule)


def _named(reading: ReadPlan, layout: Layout) -> ReadPlan:
    """With the names of the columns as pandas gives them."""
    notes = [f"rows of too few fields, the rest missing: {layout.short}"] if layout.short else []
    width = layout.width
    if len(layout.names) == width:
        columns = _pandas_names(layout.names)
        twice = sorted({n for n in layout.names if n and layout.names.count(n) > 1})
        notes += [f"two columns are named {n!r}: the later is {n + '.1'!r}" for n in twice]
        return replace(reading, columns=columns, notes=tuple(notes))
    if not layout.names:
        columns = tuple(f"column {i + 1}" for i in range(width))
        notes.append("no names above the data: the columns are numbered")
    else:
        columns, why = _other_width(layout)
        notes.append(why)
    return replace(reading, skip=layout.data, header=False, columns=columns, notes=tuple(notes))


def _other_width(layout: Layout) -> tuple[tuple[str, ...], str]:
    """Names where rows have more fields than the header: R's row names, or an empty last field."""
    names, width = layout.names, layout.width
    if width != len(names) + 1:
        raise Unreadable(
            f"rows have {width} fields and the header {len(names)}; if numbers have decimal commas "
            "between commas, separate the fields by ;"
        )
    full = [row for row in layout.rows if len(row) == width]
    if all(not row[-1].strip() for row in full):
        return _pandas_names((*names, "")), "every row ends with an empty field"
    first = [row[0] for row in full]
    if len(set(first)) != len(first) or any(map(looks_numeric, first)):
        raise Unreadable(
            f"rows have {width} fields and the header {len(names)}: a name is missing, or numbers "
            "have decimal commas between commas"
        )
    return _pandas_names(("row", *names)), "the first column has no name: it is called 'row'"


def _pandas_names(names: tuple[str, ...]) -> tuple[str, ...]:
    pd: Any = importlib.import_module("pandas")
    import csv

    line = io.StringIO()
    csv.writer(line).writerow(names)
    frame = pd.read_csv(io.StringIO(line.getvalue()), nrows=0, index_col=False)
    return tuple(str(c) for c in frame.columns)


def _columns(reading: ReadPlan, layout: Layout, text: Text) -> list[Column]:
    """The cells of the rows of the start, and of rows from all over a large file."""
    rows = layout.rows
    if not text.whole or len(text.start) >= WHOLE:
        step = max(1, len(rows) // _SAMPLED)
        rows = rows[: _SAMPLED // 4] + rows[_SAMPLED // 4 :: step]
    for piece in text.pieces:
        inside = piece[piece.find("\n") + 1 : piece.rfind("\n") + 1]
        found = [row for _, row in records(inside, layout.sep, layout.quote, layout.escape)]
        rows += [row for row in found if len(row) == layout.width]
    return [
        Column(name, Counter(row[i] if i < len(row) else "" for row in rows))
        for i, name in enumerate(reading.columns)
    ]
