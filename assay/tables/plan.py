"""What was decided about one table of a file, and the pandas statements that read it so.

`load` runs the same statements, with the file's place instead of `data/PATH`: what a sandbox reads
without Assay is what Assay read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast
from urllib.parse import quote as quoted

from assay.errors import TaskError
from assay.tables.doubts import Doubt
from assay.tables.missing import as_number

Frame = Any  # a pandas DataFrame; pandas ships no types
FORMS = ("csv", "excel", "json", "lines", "parquet", "sqlite", "html")


class Unreadable(TaskError):
    """A table that cannot be read, or that contradicts its `ReadPlan`; one sentence says why."""


@dataclass(frozen=True)
class Unread:
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
    tells. `numbers` are columns of numbers, `marked` those of them whose cells are text to pandas
    (marks between thousands, signs, numbers in quotes of a typed form), `text` columns that stay
    text whatever pandas would make of them. `notes` are sentences for the user.
    """

    path: str  # relative to the root folder, with /
    form: str
    part: str = ""  # sheet, SQLite table, number of the HTML table
    sep: str = ","
    encoding: str = "utf-8"
    quote: str = '"'
    escape: str = ""
    skip: int = 0
    header: bool = True
    columns: tuple[str, ...] = ()
    decimal: str = ""
    thousands: str = ""
    numbers: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    dates: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: tuple[str, ...] = ()  # columns whose missing values the user named
    ragged: str = ""  # "skip": rows of too many fields are left out
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()  # of single columns, which are left out of the frame

    @property
    def name(self) -> str:
        """How a sentence names the table."""
        return _place(self.path, self.part)

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
        for key in ("columns", "numbers", "marked", "text", "fixed", "notes"):
            values[key] = tuple(values.get(key, ()))
        found = cast("Mapping[str, list[str]]", values.get("missing", {}))
        values["missing"] = {k: tuple(v) for k, v in found.items()}
        return ReadPlan(**values)


def _place(path: str, part: str) -> str:
    return f"{path} [{part}]" if part else path


def statements(reading: ReadPlan, name: str = "t", place: str | None = None) -> list[str]:
    """All statements, in order. `place` is the file's, `data/PATH` where it is None."""
    imports = ["import sqlite3"] if reading.form == "sqlite" else []
    return [*imports, f"{name} = {expression(reading, place)}", *after(reading, name)]


def expression(reading: ReadPlan, place: str | None = None) -> str:
    """What reads the cells, before words for missing values and text become values."""
    where = f"data/{reading.path}" if place is None else place
    if reading.form == "csv":
        return f"pd.read_csv({', '.join([repr(where), *_csv(reading)])})"
    if reading.form == "excel":
        words = [repr(where), f"sheet_name={reading.part!r}"]
        words += [f"skiprows={reading.skip}"] if reading.skip else []
        words += [] if reading.header else ["header=None", f"names={list(reading.columns)!r}"]
        # cells keep their types: pandas would take the text 007 for a number
        words += ["dtype=object", "keep_default_na=False", "na_values=['']"]
        return f"pd.read_excel({', '.join(words)}).infer_objects()"
    if reading.form in ("json", "lines"):
        lines = ", lines=True" if reading.form == "lines" else ""
        kept = "dtype=False, convert_dates=False, convert_axes=False, precise_float=True"
        return f"pd.read_json({where!r}, orient='records'{lines}, {kept})"
    if reading.form == "parquet":
        reset = "" if reading.header else ".reset_index()"
        return f"pd.read_parquet({where!r}){reset}"
    if reading.form == "sqlite":
        table = reading.part.replace('"', '""')
        uri = f"file:{quoted(where)}?mode=ro"
        query = f'select * from "{table}"'
        return f"pd.read_sql({query!r}, sqlite3.connect({uri!r}, uri=True))"
    return _html(reading, where)


def _html(reading: ReadPlan, where: str) -> str:
    texts = ", ".join(f"{i}: str" for i in range(len(reading.columns)))
    words = [repr(where), "flavor='lxml'", f"encoding={reading.encoding!r}"]
    words += ["header=0" if reading.header else "header=None"]
    words += [f"converters={{{texts}}}", "thousands=None", "keep_default_na=False"]
    names = "" if reading.header else f".set_axis({list(reading.columns)!r}, axis=1)"
    return f"pd.read_html({', '.join(words)})[{reading.part}]{names}"


def _csv(reading: ReadPlan) -> list[str]:
    words: list[str] = []
    if reading.sep != ",":
        words.append(f"sep={reading.sep!r}")
    if reading.encoding != "utf-8":
        words.append(f"encoding={reading.encoding!r}")
    if not reading.quote:
        words.append("quoting=3")
    elif reading.quote != '"':
        words.append(f"quotechar={reading.quote!r}")
    if reading.escape:
        words.append(f"escapechar={reading.escape!r}")
    if reading.skip:
        words.append(f"skiprows={reading.skip}")
    if not reading.header:
        words += ["header=None", f"names={list(reading.columns)!r}"]
    if reading.decimal == ",":
        words.append("decimal=','")
    kept = [c for c in reading.columns if c in {*reading.text, *reading.marked, *reading.dates}]
    if kept:
        words.append(f"dtype={{{', '.join(f'{c!r}: str' for c in kept)}}}")
    words += ["keep_default_na=False", f"na_values={_empty(reading)}"]
    if reading.ragged == "skip":
        words.append("on_bad_lines='skip'")
    return [*words, "low_memory=False"]


def words_of(reading: ReadPlan, column: str) -> list[str]:
    """What is looked for as text: numbers, in a column of numbers, are looked for as numbers."""
    words = reading.missing.get(column, ())
    if column not in reading.numbers:
        return list(words)
    return [w for w in words if as_number(w, reading.decimal) is None]


def _empty(reading: ReadPlan) -> str:
    """pandas takes either one list for every column or a list for each."""
    if not any(words_of(reading, c) for c in reading.columns):
        return "['']"
    each = {c: ["", *(w for w in words_of(reading, c) if w)] for c in reading.columns}
    return repr(each)


def after(reading: ReadPlan, name: str = "t") -> list[str]:
    """Statements for what pandas' reader does not do: each changes one column."""
    lines: list[str] = []
    for column in reading.columns:
        cells = f"{name}[{column!r}]"
        words = [] if reading.form == "csv" else words_of(reading, column)
        if words:
            lines.append(f"{cells} = {cells}.mask({cells}.isin({words!r}))")
        if column in reading.marked:
            lines.append(f"{cells} = {to_number(reading, cells)}")
        if column in reading.dates:
            form = reading.dates[column]
            lines.append(f"{cells} = pd.to_datetime({cells}, format={form!r})")
        for number in _numbers(reading, column):
            lines.append(f"{cells} = {cells}.mask({cells} == {number!r})")
    return lines


def _numbers(reading: ReadPlan, column: str) -> list[float]:
    if column not in reading.numbers:
        return []
    found = (as_number(w, reading.decimal) for w in reading.missing.get(column, ()))
    return sorted({n for n in found if n is not None})


def to_number(reading: ReadPlan, cells: str) -> str:
    """The expression that turns text with marks into numbers."""
    drop = {" ": " \u00a0\u202f", "'": "'’"}.get(reading.thousands, reading.thousands)
    point = ".str.replace(',', '.')" if reading.decimal == "," else ""
    return f"pd.to_numeric({cells}.str.replace({'[' + drop + '$€£% ]'!r}, '', regex=True){point})"
