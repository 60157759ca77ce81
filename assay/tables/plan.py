"""What was decided about one table of a file, and the pandas statements that read it so.

`load` makes the same calls, with the file's place instead of `data/PATH`: what a sandbox reads
without Assay is what Assay read. Columns in doubt are left out by both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, cast
from urllib.parse import quote as quoted

from assay.errors import TaskError
from assay.tables.calls import (
    Attribute,
    Call,
    Equal,
    Fields,
    Item,
    Lines,
    Name,
    Node,
    Not,
    Opened,
    Spans,
    Statement,
    member_of,
    modules_of,
)
from assay.tables.doubts import Doubt, columns_in_doubt
from assay.tables.missing import as_number
from assay.tables.settings import FileSettings

Frame = Any  # a pandas DataFrame; pandas ships no types
PD = Name("pd")


class Unreadable(TaskError):
    """A table that cannot be read, or that contradicts its `ReadPlan`; one sentence says why.
    `doubts` are those that refused it."""

    def __init__(self, why: str, doubts: tuple[Doubt, ...] = ()) -> None:
        super().__init__(why)
        self.doubts = doubts


def in_doubt(*doubts: Doubt) -> Unreadable:
    """What is raised for a table in doubt."""
    return Unreadable("; ".join(d.line() for d in doubts), doubts)


def check_fill(
    rule: FileSettings, columns: Sequence[str], rows: Mapping[int, Sequence[Any]]
) -> None:
    """Raise `Unreadable` where `drop_rows` leaves out a row whose value stands for the rows below:
    `rows` are those that are kept, by their numbers."""
    for name in rule.fill_down or ():
        place = columns.index(name)
        for first, last in rule.drop_rows or ():
            below = min((n for n in rows if n > last), default=None)
            if below is not None and rows[below][place : place + 1] in ([], [None], [""]):
                said = f"drop_rows leaves out row {first}, above an empty cell of {name!r}"
                raise Unreadable(f"{said}: fill_down cannot tell its value; mend the file")


@dataclass(frozen=True)
class Skipped:
    """A table, or a file, that was refused: where it lies and why, in one sentence."""

    path: str
    why: str
    part: str = ""
    doubts: tuple[Doubt, ...] = ()  # those that refused it

    def said(self) -> str:
        return f"{_place(self.path, self.part)}: {self.why}"


@dataclass(frozen=True)
class ReadPlan:
    """How one table of a file is read.

    `skip` counts lines or rows above the column names. `columns` are the names of the frame; where
    `header` is false they are not in the file. `decimal` is empty where no number of the table
    tells; `marks` holds the decimal mark, and that between thousands, of columns that the user gave
    other ones. `numbers` are columns of numbers, `marked` those of them whose cells are text to
    pandas (marks between thousands, signs, numbers in quotes of a typed form), `text` columns that
    stay text whatever pandas would make of them; `exact` are those of them that are read a second
    time, as numbers of theirs have more digits than a float holds. In columns that are `clear` a
    number tells its own decimal mark. `renamed`: `columns` take the place of the names in the file.
    `drop_rows`, `drop_where`, `drop_duplicates` and `spellings` are the user's. `notes` are
    sentences for the user.
    """

    path: str  # relative to the root folder, with /
    form: str
    part: str = ""  # sheet or `Sheet!A1:E241`, database table, number of HTML table, zip member
    engine: str = ""  # of pandas, for a workbook
    sep: str = ","
    encoding: str = "utf-8"
    quote: str = '"'
    escape: str = ""
    blanks: bool = False  # blanks after a separator are no part of a field
    skip: int = 0
    header: bool = True
    columns: tuple[str, ...] = ()
    decimal: str = ""
    thousands: str = ""
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    numbers: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dates: Mapping[str, str] = field(default_factory=dict[str, str])
    exact: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    renamed: bool = False
    picked: tuple[str, ...] = ()  # the columns that are read, where the file has others
    labelled: tuple[str, ...] = ()  # columns of codes with labels, which are read as text
    places: tuple[tuple[int, int], ...] = ()  # of the fields of a text of fixed places
    # merged cells: (column, column it is filled from, rows from 0 of the frame), in order
    filled: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    fill_down: tuple[str, ...] = ()  # columns whose empty cells mean the value above them
    fill_told: bool = False  # the user says which columns these are, or what merged cells mean
    drop_rows: Spans = ()
    rows_told: bool = False  # the user says which rows are none: all others are rows
    drop_where: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    drop_duplicates: tuple[str, ...] = ()
    # {} for a column whose values that look alike are different values
    spellings: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    fixed: tuple[str, ...] = ()  # columns whose missing values the user named
    ragged: str = ""  # "skip": rows of too many fields are left out
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()  # of single columns, which are left out of the frame

    @property
    def name(self) -> str:
        """How a sentence names the table."""
        return _place(self.path, self.part)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns of the frame: those that are not in doubt."""
        doubted = set(columns_in_doubt(self.doubts))
        return tuple(c for c in self.columns if c not in doubted)

    def decimal_of(self, column: str) -> str:
        """The decimal mark of a column."""
        return self.marks[column][0] if column in self.marks else self.decimal

    def thousands_of(self, column: str) -> str:
        """What stands between the thousands of a column."""
        return self.marks[column][1:] if column in self.marks else self.thousands

    @property
    def between(self) -> str:
        """What stands between the fields of a delimited file; nothing where there is one column."""
        return self.sep if self.form == "csv" and len(self.columns) > 1 else ""

    def said(self) -> str:
        """One sentence: what was decided."""
        parts = [*self._form_said(), *self._columns_said(), *self.notes]
        return f"{self.name}: {'; '.join(parts)}"

    def _form_said(self) -> list[str]:
        if self.form != "csv":
            return [self.form] + ([f"{self.skip} rows above the names"] if self.skip else [])
        names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "spaces"}
        one = len(self.columns) == 1
        said = ["one column" if one else f"fields between {names.get(self.sep, repr(self.sep))}"]
        said += [self.encoding] if self.encoding != "utf-8" else []
        said += [f"quotes {self.quote or 'none'}"] if self.quote != '"' else []
        said += [f"{self.skip} lines above what is read"] if self.skip else []
        return said

    def _columns_said(self) -> list[str]:
        said: list[str] = []
        if self.decimal == "," or self.thousands:
            between = f", {self.thousands!r} between thousands" if self.thousands else ""
            said.append(f"decimal mark {self.decimal or '.'!r}{between}")
        for name, words in self.missing.items():
            said.append(f"{name!r}: {', '.join(map(repr, words))} means no value")
        said += [f"{name!r}: dates as {form}" for name, form in self.dates.items()]
        said += [f"in doubt {doubt.line()}" for doubt in self.doubts]
        return said

    def code(self, name: str = "t") -> str:
        """pandas statements that put into `name` what `load` gives, read from `data/PATH`."""
        return "\n".join(statements(self, name))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> ReadPlan:
        """The reading that `to_json` gave. Raises `TaskError` for a field that is not known."""
        known = {f.name for f in fields(ReadPlan)}
        if unknown := sorted(set(row) - known):
            raise TaskError(f"a reading has no field {unknown[0]!r}")
        values = dict(row)
        lists = (
            "columns",
            "numbers",
            "marked",
            "text",
            "exact",
            "clear",
            "drop_duplicates",
            "fill_down",
            "picked",
            "labelled",
        )
        for key in (*lists, "fixed", "notes"):
            values[key] = tuple(values.get(key, ()))
        for key in ("missing", "drop_where"):
            found = cast("Mapping[str, list[str]]", values.get(key, {}))
            values[key] = {k: tuple(v) for k, v in found.items()}
        values["drop_rows"] = tuple((int(a), int(b)) for a, b in values.get("drop_rows", ()))
        values["places"] = tuple((int(a), int(b)) for a, b in values.get("places", ()))
        values["filled"] = tuple((c, o, tuple(n)) for c, o, n in values.get("filled", ()))
        values["doubts"] = tuple(Doubt(**dict(d)) for d in values.get("doubts", ()))
        return ReadPlan(**values)


def _place(path: str, part: str) -> str:
    return f"{path} [{part}]" if part else path


def statements(reading: ReadPlan, name: str = "t", place: str | None = None) -> list[str]:
    """All statements, in order. `place` is the file's, `data/PATH` where it is None."""
    all_of = [Statement(Name(name), source(reading, place)), *rows(reading, name, place)]
    all_of += after(reading, name)
    needed = modules_of(*(s.of for s in all_of))
    return [*(f"import {module}" for module in needed), *(s.code() for s in all_of)]


def source(reading: ReadPlan, place: str | None = None) -> Node:
    """What reads the cells, before rows are left out and words become values."""
    where = f"data/{reading.path}" if place is None else place
    if reading.form == "csv":
        found: Any = member_of(where, reading.part) if reading.part else where
        if reading.drop_rows:
            file = Opened(where, reading.encoding, reading.part)
            found = Lines(file, reading.drop_rows)
        return Call(PD, "read_csv", (found,), _csv(reading))
    if reading.form == "fixed":
        frame = _fixed(reading, where)
    elif reading.form == "excel":
        frame = _excel(reading, where)
    elif reading.form in ("json", "lines"):
        lines = {"lines": True} if reading.form == "lines" else {}
        kept = {"dtype": False, "convert_dates": False, "convert_axes": False}
        options = {"orient": "records", **lines, **kept, "precise_float": True}
        frame = Call(PD, "read_json", (where,), options)
    elif reading.form in ("parquet", "feather", "stata", "spss"):
        options = {"columns": list(reading.picked)} if reading.picked else {}
        frame = Call(PD, f"read_{reading.form}", (where,), options)
        frame = frame if reading.header else frame.call("reset_index")
    elif reading.form == "duckdb":
        frame = _duckdb(reading, where, "*")
    elif reading.form == "sqlite":
        frame = _sqlite(reading, where, "*")
    else:
        frame = _html(reading, where)
    if reading.labelled:
        frame = frame.call("astype", {c: Name("object") for c in reading.labelled})
    return frame.call("set_axis", list(reading.columns), axis=1) if reading.renamed else frame


def _fixed(reading: ReadPlan, where: str) -> Call:
    options: dict[str, Any] = {"colspecs": list(reading.places), "dtype": Name("str")}
    options |= {"keep_default_na": False, "na_values": [""]}
    if reading.skip:
        options["skiprows"] = reading.skip
    if not reading.drop_rows:
        return Call(PD, "read_fwf", (where,), {**options, "encoding": reading.encoding})
    return Call(
        PD, "read_fwf", (Lines(Opened(where, reading.encoding), reading.drop_rows),), options
    )


def _excel(reading: ReadPlan, where: str) -> Call:
    title, columns, last = sheet_range(reading.part)
    options: dict[str, Any] = {"sheet_name": title, "engine": reading.engine or "openpyxl"}
    dropped = {n - 1 for first, end in reading.drop_rows for n in range(first, end + 1)}
    if dropped:
        options["skiprows"] = sorted({*range(reading.skip), *dropped})
    elif reading.skip:
        options["skiprows"] = reading.skip
    if columns:
        below = range(reading.skip + reading.header, last)
        options |= {"usecols": columns, "nrows": sum(n not in dropped for n in below)}
    options |= {} if reading.header else {"header": None, "names": list(reading.columns)}
    # cells keep their types: pandas would take the text 007 for a number
    options |= {"dtype": Name("object"), "keep_default_na": False, "na_values": [""]}
    return Call(PD, "read_excel", (where,), options).call("infer_objects")


def sheet_range(part: str) -> tuple[str, str, int]:
    """(sheet, columns such as A:E, last row) of a part such as `Sheet!A1:E241`; of a whole sheet
    the columns are empty."""
    found = re.fullmatch(r"(.*)!([A-Z]+)[0-9]+:([A-Z]+)([0-9]+)", part, re.S)
    return (found[1], f"{found[2]}:{found[3]}", int(found[4])) if found else (part, "", 0)


def _sqlite(reading: ReadPlan, where: str, what: str) -> Call:
    table = reading.part.replace('"', '""')
    uri = f"file:{quoted(where)}?mode=ro"
    query = f'select {what} from "{table}"'
    return Call(PD, "read_sql", (query, Call(Name("sqlite3"), "connect", (uri,), {"uri": True})))


def _duckdb(reading: ReadPlan, where: str, what: str) -> Call:
    table = reading.part.replace('"', '""')
    database = Call(Name("duckdb"), "connect", (where,), {"read_only": True})
    return database.call("execute", f'select {what} from "{table}"').call("df")


def _html(reading: ReadPlan, where: str) -> Call:
    texts = {i: Name("str") for i in range(len(reading.columns))}
    options: dict[str, Any] = {"flavor": "lxml", "encoding": reading.encoding}
    options |= {"header": 0 if reading.header else None, "converters": texts}
    options |= {"thousands": None, "keep_default_na": False}
    table = Item(Call(PD, "read_html", (where,), options), int(reading.part))
    if reading.header:
        return table.call("copy")
    return table.call("set_axis", list(reading.columns), axis=1)


def _csv(reading: ReadPlan) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if reading.sep != ",":
        options["sep"] = reading.sep
    if reading.encoding != "utf-8" and not reading.drop_rows:
        options["encoding"] = reading.encoding
    if not reading.quote:
        options["quoting"] = 3
    elif reading.quote != '"':
        options["quotechar"] = reading.quote
    if reading.escape:
        options["escapechar"] = reading.escape
    if reading.blanks:
        options["skipinitialspace"] = True
    if reading.skip:
        options["skiprows"] = reading.skip
    if not reading.header:
        options |= {"header": None, "names": list(reading.columns)}
    elif reading.renamed:
        options |= {"header": 0, "names": list(reading.columns)}
    if reading.decimal == ",":
        options["decimal"] = ","
    texts = {*reading.text, *reading.marked, *reading.dates, *as_written(reading)}
    if kept := [c for c in reading.columns if c in texts]:
        options["dtype"] = {c: Name("str") for c in kept}
    options |= {"keep_default_na": False, "na_values": _empty(reading)}
    if reading.ragged == "skip":
        options["on_bad_lines"] = "skip"
    return {**options, "low_memory": False}


def as_written(reading: ReadPlan) -> tuple[str, ...]:
    """The columns whose cells choose rows, or are spelled anew, before they mean anything."""
    spelled = [c for c, pairs in reading.spellings.items() if pairs]
    return (*reading.fill_down, *reading.drop_where, *reading.drop_duplicates, *spelled)


def words_of(reading: ReadPlan, column: str) -> list[str]:
    """What is looked for as text: numbers, in a column of numbers, are looked for as numbers."""
    words = reading.missing.get(column, ())
    if column not in reading.numbers:
        return list(words)
    return [w for w in words if as_number(w, reading.decimal_of(column)) is None]


def _empty(reading: ReadPlan) -> Any:
    """pandas takes either one list for every column or a list for each."""
    early = set(as_written(reading))
    if not any(words_of(reading, c) for c in reading.columns if c not in early):
        return [""]
    words = {c: words_of(reading, c) if c not in early else [] for c in reading.columns}
    return {c: ["", *(w for w in found if w)] for c, found in words.items()}


def rows(reading: ReadPlan, name: str = "t", place: str | None = None) -> list[Statement]:
    """Statements that leave out rows and spell cells anew, by their cells as written."""
    table = Name(name)
    steps = [_read_again(reading, Item(table, c), c, place) for c in reading.exact]
    for column, origin, at in reading.filled:
        cells, index = Item(table, column), Attribute(table, "index")
        value = cells.call("ffill") if column == origin else Item(table, origin)
        here = index.call("isin", list(at))
        steps.append(Statement(cells, cells.call("mask", here, value).call("infer_objects")))
    for column in reading.fill_down:
        cells = Item(table, column)
        steps.append(Statement(cells, cells.call("ffill")))
    if reading.drop_rows and reading.form not in ("csv", "excel", "fixed"):
        gone = [n - 1 for first, last in reading.drop_rows for n in range(first, last + 1)]
        steps.append(Statement(table, table.call("drop", index=gone, errors="ignore")))
    for column, words in reading.drop_where.items():
        if words:
            values = [w.strip() for w in words]
            values += [] if reading.form == "csv" else _as_numbers(words)
            kept = Not(_plain(reading, Item(table, column)).call("isin", values))
            steps.append(Statement(table, Item(table, kept)))
    if reading.drop_duplicates:
        keys = {c: _plain(reading, Item(table, c)) for c in reading.drop_duplicates}
        twice = Call(PD, "DataFrame", (keys,)).call("duplicated")
        steps.append(Statement(table, Item(table, Not(twice))))
    if steps and (reading.drop_duplicates or reading.drop_rows or any(reading.drop_where.values())):
        steps.append(Statement(table, table.call("reset_index", drop=True)))
    for column, pairs in reading.spellings.items():
        if pairs:
            cells = Item(table, column)
            steps.append(Statement(cells, cells.call("replace", dict(pairs))))
    return steps


def _plain(reading: ReadPlan, cells: Node) -> Node:
    """Cells without blanks at their ends; an empty one is the empty text."""
    if reading.form == "csv":
        return Attribute(cells.call("fillna", ""), "str").call("strip")
    bare = cells.call("astype", Name("object")).call("replace", r"^\s+|\s+$", "", regex=True)
    return bare.call("fillna", "")


def _as_numbers(words: tuple[str, ...]) -> list[Any]:
    return [n for n in map(as_number, words) if n is not None]


def _read_again(reading: ReadPlan, cells: Item, column: str, place: str | None) -> Statement:
    """A column in all its digits, as text: beside a missing one pandas makes floats of them."""
    where = f"data/{reading.path}" if place is None else place
    if reading.form in ("json", "lines"):
        lines = reading.form == "lines"
        values = Call(PD, "Series", (Fields(Opened(where, reading.encoding), column, lines),))
        values = replace(values, options={"dtype": Name("object")})
        return Statement(cells, values.call("map", Name("str"), na_action="ignore"))
    if reading.form in ("sqlite", "duckdb"):
        quoted_name = column.replace('"', '""')
        read = _sqlite if reading.form == "sqlite" else _duckdb
        frame = read(reading, where, f'cast("{quoted_name}" as text) as "{quoted_name}"')
        return Statement(cells, Item(frame, column))
    options = {"columns": [column], "dtype_backend": "numpy_nullable"}
    frame = Call(PD, f"read_{reading.form}", (where,), options)
    return Statement(cells, Item(frame, column).call("astype", Name("str")))


def after(reading: ReadPlan, name: str = "t") -> list[Statement]:
    """Statements for what pandas' reader does not do: each changes one column; the last leaves out
    the columns in doubt."""
    steps: list[Statement] = []
    used = set(reading.used)
    early = set(as_written(reading))
    for column in reading.columns:
        if column not in used:
            continue
        cells = Item(Name(name), column)
        words = words_of(reading, column) if reading.form != "csv" or column in early else []
        if words:
            steps.append(Statement(cells, cells.call("mask", cells.call("isin", words))))
        if column in reading.text and reading.form != "csv":
            text = cells.call("map", Name("str"), na_action="ignore")
            steps.append(Statement(cells, text))
        if column in reading.marked:
            steps.append(Statement(cells, to_number(reading, column, cells)))
        if column in reading.dates:
            form = reading.dates[column]
            steps.append(Statement(cells, Call(PD, "to_datetime", (cells,), {"format": form})))
        for number in _numbers(reading, column):
            steps.append(Statement(cells, cells.call("mask", Equal(cells, number))))
    if doubted := [c for c in reading.columns if c not in used]:
        table = Name(name)
        steps.append(Statement(table, table.call("drop", columns=doubted)))
    return steps


_OF_TEXT = ("csv", "fixed", "html")  # the forms whose cells are text to pandas


def _numbers(reading: ReadPlan, column: str) -> list[float]:
    """The numbers that mean no value in a column: a column of a typed form holds them as numbers
    already, whether or not the reader had to decide that it is one."""
    typed = reading.form not in _OF_TEXT and column not in (*reading.text, *reading.dates)
    if not typed and column not in reading.numbers:
        return []
    mark = reading.decimal_of(column)
    found = (as_number(w, mark) for w in reading.missing.get(column, ()))
    return sorted({n for n in found if n is not None})


def to_number(reading: ReadPlan, column: str, cells: Node) -> Call:
    """The expression that turns the cells of a column, text with marks, into numbers."""
    group = reading.thousands_of(column)
    drop = {" ": " \u00a0\u202f", "'": "'’"}.get(group, group)
    bare = Attribute(cells, "str").call("replace", f"[{drop}$€£% ]", "", regex=True)
    if reading.decimal_of(column) == ",":
        bare = Attribute(bare, "str").call("replace", ",", ".")
    number = Call(PD, "to_numeric", (bare,))
    if reading.form == "csv":
        return number
    # cells that are numbers already stay what they are
    return number.call("fillna", Call(PD, "to_numeric", (cells,), {"errors": "coerce"}))
