"""The one reader of tables: what a file holds, how it is read, and reading it.

`readings` decides, from a sample of a large file. `settle` reads the whole, and where a cell
contradicts what was decided makes the column text or refuses the table. `load` reads as a settled
reading says.
"""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import io
import sqlite3
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from assay.tables.calls import PACKED as PACKED
from assay.tables.calls import namespace
from assay.tables.checks import revised
from assay.tables.columns import Column, column_of, decide
from assay.tables.dialect import Layout, layout_of, records
from assay.tables.files import FORMS, files_below
from assay.tables.files import form_of as form_of
from assay.tables.forms import Found, tables_of
from assay.tables.marks import looks_numeric
from assay.tables.overrules import Overrules, Rule, overrules
from assay.tables.plan import Frame, ReadPlan, Unread, Unreadable, after, rows, source
from assay.tables.texts import WHOLE, Text, line_in_file, read_text, without_lines

SMALL = 2 << 20  # bytes of a file that is read whole before its reading is given
_SAMPLED = 4000  # rows whose cells are looked at in a large file
_ROUNDS = 8
_MOST = 1 << 30  # tables of one file
_Kept = dict[str, Frame]  # frames read already, by the code that reads them; each is used once


def readings_below(root: Path) -> Iterator[ReadPlan | Unread]:
    """The tables of all files below a folder, in the order of their paths; then a line for each
    file that is not read."""
    rules = overrules(root)
    tables, others = files_below(root)
    for path in tables:
        yield from readings(path, root, rules)
    yield from others


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
    rules = overrules(root) if rules is None else rules
    rule = rules.of(name)
    if not rule.use:
        return [Unread(name, "tables.yaml says use: false")]
    kept: _Kept = {}
    try:
        if form == "csv":
            found = iter([_delimited(path, name, rule)])
        else:
            found = (_typed(t, path, rules, kept) for t in tables_of(path, name, form, rules))
        return [_sure(one, root, kept) if whole else one for one in islice(found, most)]
    except Unreadable as error:
        return [_refused(name, error)]
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
        return _refused(found.path, error, found.part)


def _refused(path: str, error: Unreadable, part: str = "") -> Unread:
    """The table with its doubts, which are told where they stand."""
    where = f"{path} [{part}]" if part else path
    doubts = tuple(replace(d, path=path, part=part) for d in error.doubts)
    return Unread(path, str(error).removeprefix(f"{where}: "), part, doubts)


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
        same = _code(fitting) == _code(reading)
        reading = fitting
        if same and revised(reading, raw, _texts(reading, root)) == reading:
            return reading, _finished(reading, raw)
    raise Unreadable(f"{reading.name}: no reading fits all of it; name its columns in tables.yaml")


def _code(reading: ReadPlan) -> list[str]:
    """What reads the cells and chooses the rows."""
    return [source(reading).code(), *(s.code() for s in rows(reading))]


class _Connections:
    """`sqlite3`, whose connections are closed."""

    def __init__(self) -> None:
        self.made: list[sqlite3.Connection] = []

    def connect(self, place: str, uri: bool) -> sqlite3.Connection:
        self.made.append(sqlite3.connect(place, uri=uri))
        return self.made[-1]


def _raw(reading: ReadPlan, root: Path, kept: _Kept | None = None) -> Frame:
    """The frame with its rows chosen, before words become values."""
    place = str((root / reading.path).absolute())
    first = source(reading, place)
    names, databases = namespace(), _Connections()
    names["sqlite3"] = databases
    frame = (kept or {}).pop(first.code(), None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = first.value(names) if frame is None else frame
            names["t"] = _checked(reading, frame)
            for statement in rows(reading, "t", place):
                statement.run(names)
    except (Unreadable, OSError, MemoryError):
        raise
    except Exception as error:  # whatever pandas says of a file it cannot read
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise Unreadable(f"{reading.name}: {said[:160]}") from None
    finally:
        for database in databases.made:
            database.close()
    return names["t"]


def _checked(reading: ReadPlan, frame: Frame) -> Frame:
    index = importlib.import_module("pandas").RangeIndex
    if not isinstance(frame.index, index):
        raise Unreadable(f"{reading.name}: rows have more fields than there are column names")
    if reading.columns and [str(c) for c in frame.columns] != list(reading.columns):
        raise Unreadable(f"{reading.name}: the columns are not those of the reading")
    return frame


def _finished(reading: ReadPlan, raw: Frame) -> Frame:
    names = namespace()
    names["t"] = raw
    try:
        for statement in after(reading):
            statement.run(names)
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


def _typed(found: Found | Unread, path: Path, rules: Overrules, kept: _Kept) -> ReadPlan | Unread:
    if isinstance(found, Unread):
        return found
    reading = found.reading
    rule = rules.of(reading.path, reading.part)
    if not rule.use:
        return Unread(reading.path, "tables.yaml says use: false", reading.part)
    try:
        if not reading.columns:
            names = _frame_names(reading, path, kept)
            reading = replace(reading, columns=names)
        reading = _ruled(reading, rule)
        reading = _with_facts(reading, found)
        cells = _chosen(reading, zip_longest(*found.cells))
        columns = [
            column_of(name, cells[i] if i < len(cells) else ())
            for i, name in enumerate(reading.columns)
        ]
        return decide(reading, columns, rule)
    except Unreadable as error:
        return _refused(found.reading.path, error, found.reading.part)


def _with_facts(reading: ReadPlan, found: Found) -> ReadPlan:
    """With what the file says of columns by their places: doubts, merged cells that are filled."""
    names = reading.columns
    doubts = [
        replace(d, column=names[i], path=reading.path, part=reading.part) for i, d in found.doubts
    ]
    filled = tuple((names[c], names[o], at) for c, o, at in found.fills)
    return replace(reading, doubts=(*reading.doubts, *doubts), filled=filled)


def _frame_names(reading: ReadPlan, path: Path, kept: _Kept) -> tuple[str, ...]:
    """The names that pandas gives the columns; the frame is kept, as it will be wanted next."""
    root = path.parents[len(Path(reading.path).parts) - 1]
    frame = _raw(reading, root)
    kept[source(reading, str((root / reading.path).absolute())).code()] = frame
    return tuple(str(c) for c in frame.columns)


def _ruled(reading: ReadPlan, rule: Rule) -> ReadPlan:
    """With the names and the choice of rows that the user gave. Raises `Unreadable` for a column
    that is not there."""
    if rule.names:
        width = len(reading.columns)
        if len(rule.names) != width:
            raise Unreadable(f"tables.yaml gives {len(rule.names)} names; the table has {width}")
        reading = replace(reading, columns=rule.names, renamed=reading.form != "csv")
    if unknown := [c for c in rule.named() if c not in reading.columns]:
        raise Unreadable(f"tables.yaml names a column {unknown[0]!r} that is not there")
    return replace(
        reading,
        drop_rows=rule.drop_rows or (),
        drop_where=rule.drop_where,
        drop_duplicates=rule.drop_duplicates,
        spellings=rule.spellings,
    )


def _chosen(reading: ReadPlan, listed: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """The cells of some rows, column by column, without those rows that the user leaves out, and
    in the user's spelling."""
    place = {name: i for i, name in enumerate(reading.columns)}
    gone = [(place[c], {w.strip() for w in words}) for c, words in reading.drop_where.items()]
    kept = [
        row
        for row in listed
        if not any(i < len(row) and _as_text(row[i]) in words for i, words in gone)
    ]
    columns = [list(cells) for cells in zip_longest(*kept, fillvalue="")]
    for name, pairs in reading.spellings.items():
        if pairs and place[name] < len(columns):
            columns[place[name]] = [pairs.get(v, v) for v in columns[place[name]]]
    return columns


def _as_text(cell: Any) -> str:
    return "" if cell is None else str(cell).strip()


def _delimited(path: Path, name: str, rule: Rule) -> ReadPlan | Unread:
    suffix = next((s for s in map(str.lower, path.suffixes) if s in FORMS), "")
    text = read_text(path, rule.encoding)
    if dropped := rule.drop_rows or ():
        text = without_lines(text, dropped)
        above = sum(
            first <= n <= last for first, last in dropped for n in range(1, (rule.skip or 0) + 1)
        )
        rule = replace(rule, skip=rule.skip if rule.skip is None else rule.skip - above)
    layout = layout_of(text, rule, suffix)
    if not layout.rows:
        raise Unreadable("no rows below the column names")
    if layout.wide and rule.ragged != "skip":
        raise Unreadable(
            f"line {line_in_file(layout.wide, dropped)} has more than the {layout.width} fields of "
            "the others; mend it, or set ragged: skip in tables.yaml to leave such rows out"
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
    reading = _ruled(_named(reading, layout, rule), rule)
    return decide(reading, _columns(reading, layout, text), rule)


def _named(reading: ReadPlan, layout: Layout, rule: Rule) -> ReadPlan:
    """With the names of the columns as pandas gives them, or numbered where the user gives some."""
    notes = [f"rows of too few fields, the rest missing: {layout.short}"] if layout.short else []
    width = layout.width
    if rule.names:
        columns = tuple(f"column {i + 1}" for i in range(width))
        skip = layout.data
        return replace(reading, skip=skip, header=False, columns=columns, notes=tuple(notes))
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
    cells = _chosen(reading, rows)
    return [
        Column(name, Counter(cells[i] if i < len(cells) else ()))
        for i, name in enumerate(reading.columns)
    ]
