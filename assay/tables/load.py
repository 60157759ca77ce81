"""The one reader of tables: what a file holds, how it is read, and reading it.

`plan_file` decides, from a sample of a large file. `check_plan` reads the whole, and where a cell
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
import re
import sqlite3
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from assay.tables.calls import PACKED as PACKED
from assay.tables.calls import Name, Opened, kept_lines, namespace
from assay.tables.checks import adjusted
from assay.tables.columns import Column, column_of, decide
from assay.tables.doubts import Doubt
from assay.tables.encoding import WHOLE, Text, line_in_file, read_text, without_lines
from assay.tables.files import FORMS, files_below, members_of
from assay.tables.files import form_of as form_of
from assay.tables.fixed import by_content
from assay.tables.formats import Found, tables_of
from assay.tables.grid import yaml_list
from assay.tables.layout import Layout, layout_of, records, records_of
from assay.tables.number_format import looks_numeric
from assay.tables.plan import (
    Frame,
    ReadPlan,
    Skipped,
    Unreadable,
    after,
    check_fill,
    in_doubt,
    rows,
    source,
    to_number,
)
from assay.tables.settings import FileSettings, TableSettings, read_settings
from assay.tables.structure import doubts_in, doubts_of

SMALL = 2 << 20  # bytes of a file that is read whole before its reading is given
_SAMPLED = 4000  # rows whose cells are looked at in a large file
_SHOWN = 8  # lines that a settling line names
_ROUNDS = 8
_HEAD = 50  # rows below the names that tell whether these stand in two rows
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
            found = iter([_delimited(path, name, rule)])
        elif form == "zip":
            found = iter(list(_members(path, name, rules)))
        else:
            found = (_typed(t, path, rules, kept) for t in tables_of(path, name, form, rules))
        return [_sure(one, root, kept) if whole else one for one in islice(found, most)]
    except Unreadable as error:
        return [_refused(name, error)]
    except OSError as error:
        return [Skipped(name, f"cannot be opened ({error.strerror or error})")]


def _sure(
    found: ReadPlan | Skipped, root: Path, kept: _Kept
) -> ReadPlan | Skipped | tuple[ReadPlan, Frame]:
    """A reading that the whole of a table fits, and the table."""
    if isinstance(found, Skipped):
        return found
    try:
        return _settle(found, root, kept)
    except Unreadable as error:
        return _refused(found.path, error, found.part)


def _refused(path: str, error: Unreadable, part: str = "") -> Skipped:
    """The table with its doubts, which are told where they stand."""
    where = f"{path} [{part}]" if part else path
    doubts = tuple(replace(d, path=path, part=part) for d in error.doubts)
    return Skipped(path, str(error).removeprefix(f"{where}: "), part, doubts)


def load(reading: ReadPlan, root: Path) -> Frame:
    """The table as its reading says. Raises `Unreadable` in one sentence for a file that does not
    hold what was decided from its sample: `check_plan` finds a reading that fits."""
    raw = _raw(reading, root)
    fitting = adjusted(reading, raw, _texts(reading, root))
    if replace(fitting, notes=reading.notes) != reading:  # a note alone changes no cell
        new = [n for n in fitting.notes if n not in reading.notes]
        new += [d.line() for d in fitting.doubts if d not in reading.doubts]
        why = new[0] if new else "other words for missing values than were decided"
        raise Unreadable(f"{reading.name}: the whole table says otherwise than its sample: {why}")
    return _finished(reading, raw)


def written(reading: ReadPlan, root: Path) -> Frame:
    """The rows of a table with the cells as they are written, so far as pandas keeps them: no word
    is taken for no value, and no text for a number or date. Columns in doubt are left out. Raises
    `Unreadable`."""
    bare = replace(reading, numbers=(), marked=(), dates={}, missing={}, text=reading.columns)
    return _raw(bare, root)[list(reading.used)]


def check_plan(reading: ReadPlan, root: Path) -> tuple[ReadPlan, Frame]:
    """The reading that the whole table fits, and the table as `load` gives it for that reading."""
    return _settle(reading, root, {})


def _settle(reading: ReadPlan, root: Path, kept: _Kept) -> tuple[ReadPlan, Frame]:
    for turn in range(_ROUNDS):
        raw = _raw(reading, root, kept, look=turn == 0)
        fitting = adjusted(reading, raw, _texts(reading, root))
        if fitting == reading:
            return reading, _finished(reading, raw)
        same = _code(fitting) == _code(reading)
        reading = fitting
        if same and adjusted(reading, raw, _texts(reading, root)) == reading:
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


def _raw(reading: ReadPlan, root: Path, kept: _Kept | None = None, look: bool = False) -> Frame:
    """The frame with its rows chosen, before words become values. `look`: raise what is in doubt
    of its rows."""
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
            if look and (doubts := _structure(reading, frame, place)):
                raise in_doubt(*doubts)
            for statement in rows(reading, "t", place):
                statement.run(names)
    except (Unreadable, OSError, MemoryError):
        raise
    except Exception as error:  # whatever pandas says of a file it cannot read
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        if _WIDE.match(said):
            found = f"{said[0].lower()}{said[1:]}: a row has more fields than the others"
            wide = Doubt("wide_rows", found, "ragged: skip  # leaves out such rows")
            raise in_doubt(wide) from None
        raise Unreadable(f"{reading.name}: {said[:160]}") from None
    finally:
        for database in databases.made:
            database.close()
    return names["t"]


def _structure(reading: ReadPlan, frame: Frame, place: str) -> list[Doubt]:
    """What is in doubt of the rows of a table: totals, notes, names again, a second table."""
    rule = FileSettings(
        names=reading.columns,
        drop_rows=() if reading.rows_told else None,
        drop_where=reading.drop_where,
    )
    looked = frame.set_axis(list(reading.columns), axis=1)
    for column in reading.marked:  # numbers are compared faster than their texts
        cells = frame.iloc[:, reading.columns.index(column)]
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            looked[column] = to_number(reading, column, Name("c")).value(
                {**namespace(), "c": cells}
            )
    first = 1 + (reading.skip + reading.header if reading.form in ("csv", "excel") else 0)
    numbers: Sequence[int] = range(first, first + len(frame))
    doubts = doubts_in(looked, numbers, rule)
    if doubts and reading.form == "csv" and reading.sep != r"\s+":
        with Opened(place, reading.encoding, reading.part).value(namespace()) as file:
            lines = kept_lines(file, reading.drop_rows)
            cut = records_of(lines, reading.sep, reading.quote, reading.escape, reading.blanks)
            begins = [n - sum(f.count("\n") for f in row) for n, row in cut if n > reading.skip]
        begins = [line_in_file(n, reading.drop_rows) for n in begins[reading.header :]]
        if len(begins) == len(frame):
            doubts = doubts_in(looked, begins, rule)
    return doubts


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
        if reading.form != "csv":
            bare = replace(bare, exact=(*reading.exact, *columns))
        frame = _raw(bare, root)
        return frame[columns]

    return read


def _typed(
    found: Found | Skipped, path: Path, rules: TableSettings, kept: _Kept
) -> ReadPlan | Skipped:
    if isinstance(found, Skipped):
        return found
    reading = found.reading
    rule = rules.of(reading.path, reading.part)
    if not rule.use:
        return Skipped(reading.path, "tables.yaml says use: false", reading.part)
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


def _ruled(reading: ReadPlan, rule: FileSettings) -> ReadPlan:
    """With the names and the choice of rows that the user gave. Raises `Unreadable` for a column
    that is not there."""
    if rule.names:
        width = len(reading.columns)
        if len(rule.names) != width:
            raise Unreadable(f"tables.yaml gives {len(rule.names)} names; the table has {width}")
        reading = replace(reading, columns=rule.names, renamed=True)
    if unknown := [c for c in rule.named() if c not in reading.columns]:
        raise Unreadable(f"tables.yaml names a column {unknown[0]!r} that is not there")
    return replace(
        reading,
        drop_rows=rule.drop_rows or (),
        rows_told=rule.drop_rows is not None,
        fill_down=rule.fill_down or (),
        fill_told=rule.fill_down is not None or bool(rule.merged),
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
        if not gone or not any(i < len(row) and _as_text(row[i]) in words for i, words in gone)
    ]
    columns = [list(cells) for cells in zip_longest(*kept, fillvalue="")]
    for name, pairs in reading.spellings.items():
        if pairs and place[name] < len(columns):
            columns[place[name]] = [pairs.get(v, v) for v in columns[place[name]]]
    return columns


def _as_text(cell: Any) -> str:
    return "" if cell is None else str(cell).strip()


def _members(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan | Skipped]:
    """The tables of delimited text in an archive; every other member has its line."""
    for member, why in members_of(path):
        rule = rules.of(name, member)
        if why or not rule.use:
            yield Skipped(name, why or "tables.yaml says use: false", member)
            continue
        try:
            yield _delimited(path, name, rule, member)
        except Unreadable as error:
            yield _refused(name, error, member)


def _delimited(path: Path, name: str, rule: FileSettings, member: str = "") -> ReadPlan | Skipped:
    suffixes = Path(member).suffixes if member else path.suffixes
    suffix = next((s for s in map(str.lower, suffixes) if s in FORMS), "")
    text = read_text(path, rule.encoding, member)
    if dropped := rule.drop_rows or ():
        text = without_lines(text, dropped)
        above = sum(
            first <= n <= last for first, last in dropped for n in range(1, (rule.skip or 0) + 1)
        )
        rule = replace(rule, skip=rule.skip if rule.skip is None else rule.skip - above)
    layout = layout_of(text, rule, suffix)
    if not layout.rows:
        raise Unreadable("no rows below the column names")
    if doubts := _row_doubts(path, layout, text, rule, member):
        raise in_doubt(*doubts)
    reading = ReadPlan(
        name,
        "csv",
        member,
        sep=layout.sep,
        encoding=text.encoding,
        quote=layout.quote,
        escape=layout.escape,
        blanks=layout.blanks,
        skip=layout.skip,
        ragged="skip" if rule.ragged == "skip" else "",
    )
    reading = _ruled(_named(reading, layout, text, rule), rule)
    lines = [line_in_file(n, dropped) for n in layout.numbers[:_HEAD]]
    above = [layout.above] if layout.above else []
    heads = doubts_of(reading.columns, layout.rows[:_HEAD], lines, rule, above, heads=True)
    if heads := [d for d in heads if d.code in ("header_rows", "several_tables")]:
        raise in_doubt(*heads)
    lines = [line_in_file(n, dropped) for n in layout.numbers]
    check_fill(rule, reading.columns, dict(zip(lines, layout.rows, strict=True)))
    return decide(reading, _columns(reading, layout, text), rule)


def _row_doubts(
    path: Path, layout: Layout, text: Text, rule: FileSettings, member: str
) -> list[Doubt]:
    """What is in doubt of rows that have more or fewer fields than the others."""
    dropped = rule.drop_rows or ()
    found: list[Doubt] = []
    if layout.wide and rule.ragged != "skip":
        lines = _lines_said([line_in_file(n, dropped) for n in layout.wide])
        said = f"{lines} has more than the {layout.width} fields of the others"
        found.append(Doubt("wide_rows", said, "ragged: skip  # leaves out such rows"))
    short = layout.short
    if rule.drop_rows is None and not short and not text.whole:
        short = tuple(_short_below(path, layout, text, member))
    if short and rule.drop_rows is None:
        said = f"{_lines_said(short)} has fewer than the {layout.width} fields of the others"
        listed = ", ".join(map(str, short[:_SHOWN]))
        settle = f"drop_rows: [{listed}]  # or [] if what is missing has no value"
        found.append(Doubt("short_rows", said, settle))
    return found


def _lines_said(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - 1} more lines, each" if len(lines) > 1 else ""
    return f"line {lines[0]}{more}"


def _short_below(path: Path, layout: Layout, text: Text, member: str) -> Iterator[int]:
    """The lines of rows of too few fields in a large file, which is searched where it has fewer
    separators than its lines need."""
    if layout.sep == r"\s+" or layout.width < 2:
        return
    with Opened(str(path), text.encoding, member).value(namespace()) as file:
        lines = seps = 0
        while chunk := file.read(1 << 20):
            lines += chunk.count("\n")
            seps += chunk.count(layout.sep)
    if seps >= (lines - layout.skip) * (layout.width - 1):
        return
    with Opened(str(path), text.encoding, member).value(namespace()) as file:
        for line, row in records_of(file, layout.sep, layout.quote, layout.escape, layout.blanks):
            if line > layout.data and len(row) < layout.width and sum(map(bool, row)) > 1:
                yield line - sum(f.count("\n") for f in row)


def _named(reading: ReadPlan, layout: Layout, text: Text, rule: FileSettings) -> ReadPlan:
    """With the names of the columns as pandas gives them, or numbered where the user gives some."""
    width = layout.width
    if rule.names:
        columns = tuple(f"column {i + 1}" for i in range(width))
        return replace(reading, header=bool(layout.names), renamed=True, columns=columns)
    if len(layout.names) == width:
        return replace(reading, columns=_pandas_names(layout.names))
    if not layout.names:
        columns = tuple(f"column {i + 1}" for i in range(width))
        why = "no names above the data: the columns are numbered"
    else:
        columns, why = _other_width(layout, text)
    named = bool(layout.names)
    return replace(reading, header=named, renamed=named, columns=columns, notes=(why,))


def _other_width(layout: Layout, text: Text) -> tuple[tuple[str, ...], str]:
    """Names where rows have more fields than the header: R's row names, or an empty last field."""
    names, width = layout.names, layout.width
    full = [row for row in layout.rows if len(row) == width]
    if width == len(names) + 1 and all(not row[-1].strip() for row in full):
        return _pandas_names((*names, "")), "every row ends with an empty field"
    first = [row[0] for row in full]
    numbered = len(full) > 4 and first == [str(i + 1) for i in range(len(full))]
    distinct = len(set(first)) == len(first) and not any(map(looks_numeric, first))
    if width == len(names) + 1 and (numbered or (distinct and _rows_named(layout, text))):
        return _pandas_names(("row", *names)), "the first column has no name: it is called 'row'"
    said = (
        f"rows have {width} fields and the header {len(names)}: a name is missing, or a field has "
        f"{layout.sep!r} outside quotes, such as a decimal comma; mend it, or name all columns"
    )
    listed = [f"column {i + 1}" for i in range(width - len(names))]
    raise in_doubt(Doubt("layout", said, f"names: {yaml_list([*listed, *names])}"))


def _rows_named(layout: Layout, text: Text) -> bool:
    """Whether the rows have names of R: in quotes below names in quotes, or between separators
    that no text holds."""
    if layout.sep not in (",", ";"):
        return True
    lines = [line for line in text.start.splitlines()[layout.skip :] if line.strip()][:50]
    return bool(layout.quote) and all(line.startswith(layout.quote) for line in lines)


def _pandas_names(names: tuple[str, ...]) -> tuple[str, ...]:
    pd: Any = importlib.import_module("pandas")
    import csv

    line = io.StringIO()
    csv.writer(line).writerow(names)
    frame = pd.read_csv(io.StringIO(line.getvalue()), nrows=0, index_col=False)
    return tuple(str(c) for c in frame.columns)


def _columns(reading: ReadPlan, layout: Layout, text: Text) -> list[Column]:
    """The cells of the rows of the start, and of rows from all over a large file."""
    rows = [row for row in layout.rows if len(row) <= layout.width]
    if not text.whole or len(text.start) >= WHOLE:
        step = max(1, len(rows) // _SAMPLED)
        rows = rows[: _SAMPLED // 4] + rows[_SAMPLED // 4 :: step]
    for piece in text.pieces:
        inside = piece[piece.find("\n") + 1 : piece.rfind("\n") + 1]
        cut = records(inside, layout.sep, layout.quote, layout.escape, layout.blanks)
        found = [row for _, row in cut]
        rows += [row for row in found if len(row) == layout.width]
    cells = _chosen(reading, rows)
    return [
        Column(name, Counter(cells[i] if i < len(cells) else ()))
        for i, name in enumerate(reading.columns)
    ]
