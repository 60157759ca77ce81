"""What was decided about one table of a file, and the pandas code that reads it so.

A plan is carried out as it is printed: `Expr` holds a call of pandas with its code. `load` makes
the calls with the file's place instead of `data/PATH`, so what a sandbox reads without Assay is
what Assay read. Columns in doubt are left out by both.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote as quoted

from assay.errors import TaskError
from assay.syntax import parse_python
from assay.tables.number_format import as_number
from assay.tables.settings import Doubt, FileSettings

Frame = Any  # a pandas DataFrame; pandas ships no types
Spans = tuple[tuple[int, int], ...]
# suffix of a packed file → the module whose `open` unpacks it
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma", ".zst": "zstandard"}
_MODULES = {"duckdb", "io", "json", "sqlite3", "zipfile", *PACKED.values()}
_OF_TEXT = ("csv", "fixed", "html")  # the forms whose cells are text to pandas


class Expr:
    """An expression of Python that is not evaluated yet. `value` evaluates it with the names that
    it is given, and `code` spells it: attributes, items and calls of an `Expr` are one as well."""

    def __init__(self, code: str) -> None:
        self.code = code

    def value(self, names: Mapping[str, Any]) -> Any:
        return eval(self.code, _Names(names))

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return Expr(f"{self.code}.{name}")

    def __getitem__(self, key: Any) -> Expr:
        return Expr(f"{self.code}[{_spelled(key)}]")

    def __call__(self, *args: Any, **options: Any) -> Expr:
        listed = [*map(_spelled, args), *(f"{k}={_spelled(v)}" for k, v in options.items())]
        return Expr(f"{self.code}({', '.join(listed)})")

    def __invert__(self) -> Expr:
        return Expr(f"~{self.code}")

    def equal(self, right: Any) -> Expr:
        return Expr(f"{self.code} == {_spelled(right)}")


class _Names(dict[str, Any]):
    """The names of an expression: those given, else a builtin, else a module, which is imported."""

    def __missing__(self, name: str) -> Any:
        found = getattr(builtins, name, None)
        return found or importlib.import_module("pandas" if name == "pd" else name)


def _spelled(value: Any) -> str:
    """A literal as Python spells it, with the expressions inside it."""
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return f"{{{', '.join(f'{k!r}: {_spelled(v)}' for k, v in pairs)}}}"
    return value.code if isinstance(value, Expr) else repr(value)


_PD = Expr("pd")


def opened(place: str, encoding: str, member: str = "") -> Expr:
    """A file of text, unpacked by its suffix; or one member of a zip archive."""
    if member:
        return Expr("io").TextIOWrapper(_member(place, member), encoding=encoding, newline="")
    module = next((m for s, m in PACKED.items() if place.lower().endswith(s)), "")
    opener = Expr(module).open if module else Expr("open")
    return opener(place, "rt", encoding=encoding, newline="")


def _member(place: str, member: str) -> Expr:
    """What opens a member of a zip archive, as bytes."""
    return Expr("zipfile").ZipFile(place).open(member)


def kept_lines(lines: Iterable[str], dropped: Spans) -> Iterator[str]:
    """Lines but those with these numbers, the first of which is 1."""
    for number, line in enumerate(lines, 1):
        if not any(first <= number <= last for first, last in dropped):
            yield line


def _without(file: Expr, dropped: Spans) -> Expr:
    """The text of a file without some of its lines, as a file."""
    kept = f"not any(a <= n <= b for a, b in {list(dropped)!r})"
    return Expr(f"io.StringIO(''.join(line for n, line in enumerate({file.code}, 1) if {kept}))")


@dataclass(frozen=True)
class Step:
    """`t = expression`, or `t["column"] = expression`."""

    of: Expr
    column: str | None = None

    def run(self, names: dict[str, Any], table: str = "t") -> None:
        if self.column is None:
            names[table] = self.of.value(names)
        else:
            names[table][self.column] = self.of.value(names)

    def code(self, table: str = "t") -> str:
        return f"{table if self.column is None else f'{table}[{self.column!r}]'} = {self.of.code}"


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
    settings: FileSettings, columns: Sequence[str], rows: Mapping[int, Sequence[Any]]
) -> None:
    """Raise `Unreadable` where `drop_rows` leaves out a row whose value stands for the rows below:
    `rows` are those that are kept, by their numbers."""
    for name in settings.fill_down or ():
        place = columns.index(name)
        for first, last in settings.drop_rows or ():
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


@dataclass
class ReadPlan:
    """How one table of a file is read. It is filled in step by step, and changed no more when it
    is handed out.

    `skip` counts lines or rows above the column names. `columns` are the names of the frame; where
    `header` is false they are not in the file. `decimal` is empty where no number of the table
    tells; `marks` holds the decimal mark, and that between thousands, of columns that the user gave
    other ones. `numbers` are columns of numbers, `marked` those of them whose cells are text to
    pandas (marks between thousands, signs, numbers in quotes of a typed form), `text` columns that
    stay text whatever pandas would make of them; `exact` are those of them that are read a second
    time, as numbers of theirs have more digits than a float holds. `renamed`: `columns` take the
    place of the names in the file. `drop_rows`, `drop_where`, `drop_duplicates` and `spellings` are
    the user's. `notes` are sentences for the user.
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
    renamed: bool = False
    picked: tuple[str, ...] = ()  # the columns that are read, where the file has others
    labelled: tuple[str, ...] = ()  # columns of codes with labels, which are read as text
    places: tuple[tuple[int, int], ...] = ()  # of the fields of a text of fixed places
    # merged cells: (place of the column, of the one it is filled from, rows of the frame from 0)
    filled: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    fill_down: tuple[str, ...] = ()  # columns whose empty cells mean the value above them
    drop_rows: Spans = ()
    drop_where: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    drop_duplicates: tuple[str, ...] = ()
    # {} for a column whose values that look alike are different values
    spellings: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    ragged: str = ""  # "skip": rows of too many fields are left out
    notes: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()  # of single columns, which are left out of the frame
    placed: tuple[tuple[int, Doubt], ...] = ()  # the same by places, before columns have names

    @property
    def name(self) -> str:
        """How a sentence names the table."""
        return _place(self.path, self.part)

    @property
    def used(self) -> tuple[str, ...]:
        """The columns of the frame: those that are not in doubt."""
        return tuple(filter(self.uses, self.columns))

    def uses(self, column: str) -> bool:
        """Whether no doubt names a column."""
        return all(doubt.column != column for doubt in self.doubts)

    def doubt(self, found: Doubt | None) -> None:
        """Add a doubt, if there is one."""
        self.doubts += (found,) if found else ()

    def refuse_without_columns(self) -> None:
        """Raises `Unreadable` where every column is in doubt."""
        if self.columns and not self.used:
            raise in_doubt(*self.doubts)

    def set_missing(self, column: str, words: Sequence[str]) -> None:
        """Say which words mean no value in a column."""
        self.missing = {k: v for k, v in {**self.missing, column: tuple(words)}.items() if v}

    def decimal_of(self, column: str) -> str:
        """The decimal mark of a column."""
        return self.marks[column][0] if column in self.marks else self.decimal

    def thousands_of(self, column: str) -> str:
        """What stands between the thousands of a column."""
        return self.marks[column][1:] if column in self.marks else self.thousands

    def said(self) -> str:
        """One sentence: what was decided."""
        if self.form != "csv":
            said = [self.form] + ([f"{self.skip} rows above the names"] if self.skip else [])
        else:
            names = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", r"\s+": "spaces"}
            between = f"fields between {names.get(self.sep, repr(self.sep))}"
            said = ["one column" if len(self.columns) == 1 else between]
            said += [self.encoding] if self.encoding != "utf-8" else []
            said += [f"quotes {self.quote or 'none'}"] if self.quote != '"' else []
            said += [f"{self.skip} lines above what is read"] if self.skip else []
        if self.decimal == "," or self.thousands:
            between = f", {self.thousands!r} between thousands" if self.thousands else ""
            said.append(f"decimal mark {self.decimal or '.'!r}{between}")
        for name, words in self.missing.items():
            said.append(f"{name!r}: {', '.join(map(repr, words))} means no value")
        said += [f"{name!r}: dates as {form}" for name, form in self.dates.items()]
        said += [f"in doubt {doubt.line()}" for doubt in self.doubts]
        return f"{self.name}: {'; '.join([*said, *self.notes])}"

    def code(self, name: str = "t") -> str:
        """pandas statements that put into `name` what `load` gives, read from `data/PATH`."""
        place = f"data/{self.path}"
        rows = row_steps(self, place, name)
        steps = [Step(source(self, place)), *rows, *value_steps(self, name)]
        named = _modules_in("\n".join(one.of.code for one in steps))
        return "\n".join([*(f"import {n}" for n in named), *(one.code(name) for one in steps)])


@lru_cache(maxsize=4096)  # a table is asked about many times
def _modules_in(code: str) -> list[str]:
    """The modules that a code names."""
    found = {one.id for one in ast.walk(parse_python(code)) if isinstance(one, ast.Name)}
    return sorted(found & _MODULES)


def refused(path: str, error: Unreadable, part: str = "") -> Skipped:
    """The table with its doubts, which are told where they stand."""
    where = _place(path, part)
    doubts = tuple(replace(d, path=path, part=part) for d in error.doubts)
    return Skipped(path, str(error).removeprefix(f"{where}: "), part, doubts)


def _place(path: str, part: str) -> str:
    return f"{path} [{part}]" if part else path


def source(plan: ReadPlan, where: str) -> Expr:
    """What reads the cells, before rows are left out and words become values; `where` the file
    lies."""
    if plan.form == "csv":
        found: Any = _member(where, plan.part) if plan.part else where
        if plan.drop_rows:
            found = _without(opened(where, plan.encoding, plan.part), plan.drop_rows)
        return _PD.read_csv(found, **_csv(plan))
    if plan.form == "fixed":
        options: dict[str, Any] = {"colspecs": list(plan.places), "dtype": Expr("str")}
        options |= {"keep_default_na": False, "na_values": [""]} | _skipped(plan)
        if plan.drop_rows:
            frame = _PD.read_fwf(_without(opened(where, plan.encoding), plan.drop_rows), **options)
        else:
            frame = _PD.read_fwf(where, **options, encoding=plan.encoding)
    elif plan.form == "excel":
        frame = _excel(plan, where)
    elif plan.form in ("json", "lines"):
        lines = {"lines": True} if plan.form == "lines" else {}
        kept = {"dtype": False, "convert_dates": False, "convert_axes": False}
        frame = _PD.read_json(where, orient="records", **lines, **kept, precise_float=True)
    elif plan.form in ("parquet", "feather", "stata", "spss"):
        options = {"columns": list(plan.picked)} if plan.picked else {}
        frame = getattr(_PD, f"read_{plan.form}")(where, **options)
        frame = frame if plan.header else frame.reset_index()
    elif plan.form in ("sqlite", "duckdb"):
        frame = _queried(plan, where, "*")
    else:
        frame = _html(plan, where)
    if plan.labelled:
        frame = frame.astype({c: Expr("object") for c in plan.labelled})
    return frame.set_axis(list(plan.columns), axis=1) if plan.renamed else frame


def _skipped(plan: ReadPlan) -> dict[str, Any]:
    return {"skiprows": plan.skip} if plan.skip else {}


def _excel(plan: ReadPlan, where: str) -> Expr:
    title, columns, last = sheet_range(plan.part)
    options: dict[str, Any] = {"sheet_name": title, "engine": plan.engine or "openpyxl"}
    dropped = {n - 1 for first, end in plan.drop_rows for n in range(first, end + 1)}
    options |= {"skiprows": sorted({*range(plan.skip), *dropped})} if dropped else _skipped(plan)
    if columns:
        below = range(plan.skip + plan.header, last)
        options |= {"usecols": columns, "nrows": sum(n not in dropped for n in below)}
    options |= {} if plan.header else {"header": None, "names": list(plan.columns)}
    # cells keep their types: pandas would take the text 007 for a number
    options |= {"dtype": Expr("object"), "keep_default_na": False, "na_values": [""]}
    return _PD.read_excel(where, **options).infer_objects()


def sheet_range(part: str) -> tuple[str, str, int]:
    """(sheet, columns such as A:E, last row) of a part such as `Sheet!A1:E241`; of a whole sheet
    the columns are empty."""
    found = re.fullmatch(r"(.*)!([A-Z]+)[0-9]+:([A-Z]+)([0-9]+)", part, re.S)
    return (found[1], f"{found[2]}:{found[3]}", int(found[4])) if found else (part, "", 0)


def _queried(plan: ReadPlan, where: str, what: str) -> Expr:
    """What reads columns of a table of a database."""
    table = plan.part.replace('"', '""')
    query = f'select {what} from "{table}"'
    if plan.form == "duckdb":
        return Expr("duckdb").connect(where, read_only=True).execute(query).df()
    database = Expr("sqlite3").connect(f"file:{quoted(where)}?mode=ro", uri=True)
    return _PD.read_sql(query, database)


def _html(plan: ReadPlan, where: str) -> Expr:
    texts = {i: Expr("str") for i in range(len(plan.columns))}
    options: dict[str, Any] = {"flavor": "lxml", "encoding": plan.encoding}
    options |= {"header": 0 if plan.header else None, "converters": texts}
    options |= {"thousands": None, "keep_default_na": False}
    table = _PD.read_html(where, **options)[int(plan.part)]
    return table.copy() if plan.header else table.set_axis(list(plan.columns), axis=1)


def _csv(plan: ReadPlan) -> dict[str, Any]:
    options: dict[str, Any] = {"sep": plan.sep} if plan.sep != "," else {}
    if plan.encoding != "utf-8" and not plan.drop_rows:
        options["encoding"] = plan.encoding
    if not plan.quote:
        options["quoting"] = 3
    elif plan.quote != '"':
        options["quotechar"] = plan.quote
    options |= {"escapechar": plan.escape} if plan.escape else {}
    options |= {"skipinitialspace": True} if plan.blanks else {}
    options |= _skipped(plan)
    if not plan.header or plan.renamed:
        options |= {"header": 0 if plan.header else None, "names": list(plan.columns)}
    options |= {"decimal": ","} if plan.decimal == "," else {}
    texts = {*plan.text, *plan.marked, *plan.dates, *as_written(plan)}
    if kept := [c for c in plan.columns if c in texts]:
        options["dtype"] = {c: Expr("str") for c in kept}
    options |= {"keep_default_na": False, "na_values": _empty(plan)}
    options |= {"on_bad_lines": "skip"} if plan.ragged == "skip" else {}
    return {**options, "low_memory": False}


def as_written(plan: ReadPlan) -> tuple[str, ...]:
    """The columns whose cells choose rows, or are spelled anew, before they mean anything."""
    spelled = [c for c, pairs in plan.spellings.items() if pairs]
    return (*plan.fill_down, *plan.drop_where, *plan.drop_duplicates, *spelled)


def words_of(plan: ReadPlan, column: str) -> list[str]:
    """What is looked for as text: numbers, in a column of numbers, are looked for as numbers."""
    words = plan.missing.get(column, ())
    if column not in plan.numbers:
        return list(words)
    return [w for w in words if as_number(w, plan.decimal_of(column)) is None]


def _empty(plan: ReadPlan) -> Any:
    """pandas takes either one list for every column or a list for each."""
    early = set(as_written(plan))
    words = {c: words_of(plan, c) if c not in early else [] for c in plan.columns}
    if not any(words.values()):
        return [""]
    return {c: ["", *(w for w in found if w)] for c, found in words.items()}


def row_steps(plan: ReadPlan, where: str, name: str = "t") -> list[Step]:
    """Steps that leave out rows and spell cells anew, by their cells as written."""
    table = Expr(name)
    steps = [Step(_read_again(plan, c, where), c) for c in plan.exact]
    for column, origin, at in ((plan.columns[c], plan.columns[o], a) for c, o, a in plan.filled):
        value = table[column].ffill() if column == origin else table[origin]
        here = table.index.isin(list(at))
        steps.append(Step(table[column].mask(here, value).infer_objects(), column))
    steps += [Step(table[column].ffill(), column) for column in plan.fill_down]
    if plan.drop_rows and plan.form not in ("csv", "excel", "fixed"):
        gone = [n - 1 for first, last in plan.drop_rows for n in range(first, last + 1)]
        steps.append(Step(table.drop(index=gone, errors="ignore")))
    for column, words in plan.drop_where.items():
        if words:
            values: list[Any] = [w.strip() for w in words]
            if plan.form != "csv":
                values += [n for n in map(as_number, words) if n is not None]
            steps.append(Step(table[~_plain(plan, table[column]).isin(values)]))
    if plan.drop_duplicates:
        keys = {c: _plain(plan, table[c]) for c in plan.drop_duplicates}
        steps.append(Step(table[~_PD.DataFrame(keys).duplicated()]))
    if steps and (plan.drop_duplicates or plan.drop_rows or any(plan.drop_where.values())):
        steps.append(Step(table.reset_index(drop=True)))
    spelled = [(c, dict(pairs)) for c, pairs in plan.spellings.items() if pairs]
    return [*steps, *(Step(table[c].replace(pairs), c) for c, pairs in spelled)]


def _plain(plan: ReadPlan, cells: Expr) -> Expr:
    """Cells without blanks at their ends; an empty one is the empty text."""
    if plan.form == "csv":
        return cells.fillna("").str.strip()
    bare = cells.astype(Expr("object")).replace(r"^\s+|\s+$", "", regex=True)
    return bare.fillna("")


def _read_again(plan: ReadPlan, column: str, where: str) -> Expr:
    """A column in all its digits, as text: beside a missing one pandas makes floats of them."""
    if plan.form in ("json", "lines"):
        file = opened(where, plan.encoding).code
        rows = f"(json.loads(x) for x in {file} if x.strip())"
        rows = rows if plan.form == "lines" else f"json.load({file})"
        values = Expr(f"[r.get({column!r}) for r in {rows}]")
        return _PD.Series(values, dtype=Expr("object")).map(Expr("str"), na_action="ignore")
    if plan.form in ("sqlite", "duckdb"):
        name = column.replace('"', '""')
        return _queried(plan, where, f'cast("{name}" as text) as "{name}"')[column]
    options: dict[str, Any] = {"columns": [column], "dtype_backend": "numpy_nullable"}
    return getattr(_PD, f"read_{plan.form}")(where, **options)[column].astype(Expr("str"))


def value_steps(plan: ReadPlan, name: str = "t") -> list[Step]:
    """Steps for what pandas' reader does not do: each changes one column; the last leaves out the
    columns in doubt."""
    steps: list[Step] = []
    used, early, table = set(plan.used), set(as_written(plan)), Expr(name)
    for column in (c for c in plan.columns if c in used):
        cells = table[column]
        words = words_of(plan, column) if plan.form != "csv" or column in early else []
        if words:
            steps.append(Step(cells.mask(cells.isin(words)), column))
        if column in plan.text and plan.form != "csv":
            steps.append(Step(cells.map(Expr("str"), na_action="ignore"), column))
        if column in plan.marked:
            steps.append(Step(to_number(plan, column, cells), column))
        if column in plan.dates:
            steps.append(Step(_PD.to_datetime(cells, format=plan.dates[column]), column))
        steps += [Step(cells.mask(cells.equal(n)), column) for n in _numbers(plan, column)]
    if doubted := [c for c in plan.columns if c not in used]:
        steps.append(Step(table.drop(columns=doubted)))
    return steps


def _numbers(plan: ReadPlan, column: str) -> list[float]:
    """The numbers that mean no value in a column: a column of a typed form holds them as numbers
    already, whether or not the reader had to decide that it is one."""
    typed = plan.form not in _OF_TEXT and column not in (*plan.text, *plan.dates)
    if not typed and column not in plan.numbers:
        return []
    found = (as_number(w, plan.decimal_of(column)) for w in plan.missing.get(column, ()))
    return sorted({n for n in found if n is not None})


def to_number(plan: ReadPlan, column: str, cells: Expr) -> Expr:
    """The expression that turns the cells of a column, text with marks, into numbers."""
    group = plan.thousands_of(column)
    drop = {" ": " \u00a0\u202f", "'": "'’"}.get(group, group)
    bare = cells.str.replace(f"[{drop}$€£% ]", "", regex=True)
    if plan.decimal_of(column) == ",":
        bare = bare.str.replace(",", ".")
    number = _PD.to_numeric(bare)
    if plan.form == "csv":
        return number
    # cells that are numbers already stay what they are
    return number.fillna(_PD.to_numeric(cells, errors="coerce"))
