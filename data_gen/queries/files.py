"""Files of tables: delimited text, workbooks, JSON, Parquet, HTML, NPZ, SQLite, and rows in text.

Written files depend on what is written alone: no dates, no order of a hash. Most are read by
`assay.tables`. Two forms that it does not know have their `Read` here: NPZ archives, and rows that
lie in text: a block of `Name: value` lines for each, or on a page a list of terms. No table stands
in such a text, so that no reader of tables sees it. What a block does not say is missing; columns
are numbers where every value that is there is a plain one.
"""

# pandas and lxml ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# pandas and openpyxl ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportMissingModuleSource=false

from __future__ import annotations

import glob
import importlib
import importlib.util
import io
import re
import sqlite3
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from assay.tables.settings import FILE

Frame = Any  # a pandas DataFrame
Style = Literal["cards", "entries"]
FILES: dict[str, Style] = {".txt": "cards", ".html": "entries", ".htm": "entries"}
NUMBER = re.compile(r"[-+]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_ROWS = 15  # that a file must hold
_FILLED = 0.5  # of the rows, in every column
_COLUMNS = 60
_CARDS = """\
cards = open({path!r}, encoding='utf-8').read().split('\\n\\n')
cards = [[s.split(': ', 1) for s in c.splitlines() if ': ' in s] for c in cards]
{name} = pd.DataFrame([dict(c) for c in cards if len(c) > 1], columns={columns!r})"""
_ENTRIES = """\
import lxml.html
page = lxml.html.fromstring(open({path!r}, encoding='utf-8').read())
cells = [[[e.text_content().strip() for e in d.iter(x)] for x in ('dt', 'dd')] for d in \
page.iter('dl')]
{name} = pd.DataFrame([dict(zip(*c)) for c in cells if len(c[0]) > 1], columns={columns!r})"""


class NoRecords(ValueError):
    """The file does not hold rows in this way."""


@dataclass(frozen=True)
class Records:
    """How the rows of such a file are read."""

    path: str
    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    form: Style
    part: str = ""

    def code(self, name: str = "t") -> str:
        """The statements that read it where the lake is the folder data/."""
        text = _CARDS if self.form == "cards" else _ENTRIES
        said = text.format(path=f"data/{self.path}", name=name, columns=list(self.columns))
        lines = [f"{name}[{n!r}] = pd.to_numeric({name}[{n!r}])" for n in self.numbers]
        return "\n".join([said, *lines])

    def load(self, folder: Path) -> Frame:
        """The frame that `code` gives. Raises `NoRecords` for a file that has changed."""
        return records_in(folder / self.path, self.path)[1]


def may_hold(path: Path) -> bool:
    """Whether a file could be such a one, by its ending and the start of it."""
    style = FILES.get(path.suffix.lower())
    if style is None:
        return False
    with open(path, "rb") as file:
        start = file.read(1 << 16)
    if style == "entries":
        return b"<dl" in start and b"<table" not in start
    return len(re.findall(rb"(?m)^[^:\r\n]{1,60}: \S", start)) >= 2 * _ROWS


def records_in(path: Path, name: str) -> tuple[Records, Frame]:
    """How a file's rows are read, and they. Raises `NoRecords` with the reason."""
    style = FILES[path.suffix.lower()]
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise NoRecords("no UTF-8") from None
    pairs = _cards(text) if style == "cards" else _entries(text)
    pd: Any = importlib.import_module("pandas")
    columns = list(dict.fromkeys(key for row in pairs for key, _ in row))
    if any(len({key for key, _ in row}) < len(row) for row in pairs):
        raise NoRecords("a name stands twice in one block")
    if len(pairs) < _ROWS or len(columns) > _COLUMNS:
        said = f"{len(pairs)} blocks of 'Name: value' with {len(columns)} names"
        raise NoRecords(f"{said}; wanted {_ROWS} or more with {_COLUMNS} at most")
    frame = pd.DataFrame([dict(row) for row in pairs], columns=columns)
    for column in columns:
        if frame[column].notna().mean() < _FILLED:
            raise NoRecords(f"most blocks do not say {column!r}")
    numbers = tuple(c for c in columns if all(map(NUMBER.fullmatch, frame[c].dropna())))
    for column in numbers:
        frame[column] = pd.to_numeric(frame[column])
    return Records(name, tuple(columns), numbers, style), frame


def _cards(text: str) -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for card in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line.split(": ", 1) for line in card.splitlines() if ": " in line]
        if len(lines) > 1:
            found.append([(key, value) for key, value in lines])
    return found


def _entries(text: str) -> list[list[tuple[str, str]]]:
    html: Any = importlib.import_module("lxml.html")
    found: list[list[tuple[str, str]]] = []
    for one in html.fromstring(text).iter("dl"):
        keys, values = (
            [str(e.text_content()).strip() for e in one.iter(tag)] for tag in ("dt", "dd")
        )
        if len(keys) != len(values):
            raise NoRecords("a list with terms and values of different numbers")
        if len(keys) > 1:
            found.append(list(zip(keys, values, strict=True)))
    return found


def holds(frame: Frame) -> bool:
    """Whether such a file can hold a table's cells as they are."""
    for name in frame.columns:
        column, filled = frame[name], frame[name].dropna()
        kind = column.dtype.kind
        if ":" in name or name != name.strip() or len(filled) < _FILLED * len(frame):
            return False
        if kind in "iuf" and not filled.isin([-9999.0, -999.0]).any():
            continue
        if kind in "iufbmM" or not all(isinstance(cell, str) for cell in filled):
            return False
        if not all(cell and cell == cell.strip() and cell.isprintable() for cell in filled):
            return False
        if all(map(NUMBER.fullmatch, filled)):
            return False
    return len(frame) >= _ROWS and bool((frame.notna().sum(axis=1) > 1).all())


def in_words(style: Style, frame: Frame, top: Sequence[str]) -> str:
    """The text of a file; what is missing is left out."""
    rows = [
        [(str(k), _said(v)) for k, v in zip(frame.columns, row, strict=True) if not _is_missing(v)]
        for row in frame.astype(object).itertuples(index=False)
    ]
    if style == "cards":
        blocks = ["\n".join(f"{key}: {value}" for key, value in row) for row in rows]
        return "\n\n".join([*(["\n".join(top)] if top else []), *blocks]) + "\n"
    parts = ["<!DOCTYPE html>", '<html><head><meta charset="utf-8"></head><body>']
    parts += [f"<p>{escape(line)}</p>" for line in top]
    for row in rows:
        terms = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in row)
        parts.append(f"<dl>{terms}</dl>")
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _said(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


Form = Literal["csv", "excel", "json", "lines", "parquet", "html", "npz", "sqlite"] | Style
BYTES_ELSE = 30_000_000


@dataclass(frozen=True)
class Layout:
    """How one table is laid into a file. `top` lines stand above the column names."""

    path: str  # from the lake's folder, with /
    form: Form = "csv"
    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    sheet: str = ""  # or the table's name
    top: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrays:
    """An NPZ archive of arrays of one length: a table whose columns they are."""

    path: str
    columns: tuple[str, ...] = ()
    form: str = "npz"
    part: str = ""

    def code(self, name: str = "t") -> str:
        """The statement that reads it where the lake is the folder data/."""
        return f"{name} = pd.DataFrame(dict(np.load({f'data/{self.path}'!r})))"

    def load(self, folder: Path) -> Frame:
        """The frame that `code` gives. Raises what NumPy and pandas raise of another file."""
        return load_arrays(folder / self.path)


def load_arrays(path: Path) -> Frame:
    """The frame that `Arrays.code` gives. Raises what NumPy and pandas raise of another file."""
    np: Any = importlib.import_module("numpy")
    pd: Any = importlib.import_module("pandas")
    with np.load(path, allow_pickle=False) as found:
        return pd.DataFrame(dict(found))


def can_read(form: Form) -> bool:
    """Whether what this form needs beside pandas is installed."""
    needs = {"excel": "openpyxl", "parquet": "pyarrow", "html": "lxml", "entries": "lxml"}
    return form not in needs or importlib.util.find_spec(needs[form]) is not None


def top_lines(path: Path, form: str, part: str, skip: int, encoding: str) -> tuple[str, ...]:
    """What stands above the column names: lines, or the texts of rows."""
    if not skip:
        return ()
    if form == "csv":
        with open(path, encoding=encoding, newline="") as file:
            return tuple(line.rstrip("\r\n") for line in islice(file, skip))
    openpyxl = importlib.import_module("openpyxl")
    with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
        rows = islice(book[part].iter_rows(values_only=True), skip)
        return tuple(" ".join(str(c) for c in row if c is not None) for row in rows)


def write_frames(folder: Path, tables: Sequence[tuple[Layout, Frame]]) -> None:
    """Write the tables of one file. Only workbooks, pages and databases hold several. Raises
    UnicodeEncodeError when the encoding lacks a character."""
    layout, frame = tables[0]
    place = folder / layout.path
    place.parent.mkdir(parents=True, exist_ok=True)
    match layout.form:
        case "csv":
            place.write_bytes(_delimited(layout, frame).encode(layout.encoding))
        case "excel":
            place.write_bytes(_workbook(tables))
        case "parquet":
            frame.to_parquet(place, index=False)
        case "html":
            place.write_text(_page(tables), encoding="utf-8")
        case "cards" | "entries":
            place.write_text(in_words(layout.form, frame, layout.top), encoding="utf-8")
        case "npz":
            np: Any = importlib.import_module("numpy")
            np.savez(place, **{str(c): _array(frame[c]) for c in frame.columns})
        case "sqlite":
            place.unlink(missing_ok=True)
            with closing(sqlite3.connect(place)) as db:
                for one, part in tables:
                    part.to_sql(one.sheet, db, index=False)
        case "json" | "lines":
            lines = layout.form == "lines"
            how = {"orient": "records", "force_ascii": False, "lines": lines}
            text = frame.to_json(**how, double_precision=15)
            place.write_text(text + ("" if lines else "\n"), encoding="utf-8")


Rules = Mapping[tuple[str, str], Mapping[str, Any]]  # keys of `tables.yaml` by (file, part)


def write_rules(folder: Path, rules: Rules) -> None:
    """Write `tables.yaml`: what settles the doubts about files, or about parts of them. Without any
    there is no such file."""
    yaml: Any = importlib.import_module("yaml")
    said = {
        f"{path} [{part}]" if part else glob.escape(path): dict(rule)
        for (path, part), rule in sorted(rules.items())
        if rule
    }
    if said:
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(said, allow_unicode=True, sort_keys=False, width=100)
        (folder / FILE).write_text(text, encoding="utf-8")
    else:
        (folder / FILE).unlink(missing_ok=True)


def _delimited(layout: Layout, frame: Frame) -> str:
    if layout.sep == r"\s+":  # columns under each other, for cells without blanks
        cells = [[str(c) for c in frame.columns]]
        cells += [["NA" if v != v else _text(v) for v in row] for row in frame.values.tolist()]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rows = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in cells]
        body = "\n".join(row.rstrip() for row in rows) + "\n"
    else:
        if layout.decimal == ",":  # also where a column holds words beside numbers
            for name in [c for c in frame.columns if frame[c].dtype.kind == "O"]:
                frame = frame.assign(**{str(name): frame[name].map(_with_comma)})
        how = {"sep": layout.sep, "decimal": layout.decimal, "lineterminator": "\n"}
        body = frame.to_csv(index=False, **how)
    return "\n".join([*layout.top, body])


def _with_comma(value: Any) -> Any:
    return repr(value).replace(".", ",") if isinstance(value, float) and value == value else value


def _text(value: Any) -> str:
    return "NA" if value is None else repr(value) if isinstance(value, float) else str(value)


def _array(column: Any) -> Any:
    """A column as an array that needs no pickle to be read."""
    return column.to_numpy() if column.dtype.kind in "iufb" else column.astype(str).to_numpy("U")


def _page(tables: Sequence[tuple[Layout, Frame]]) -> str:
    """A page with a heading and a table for each."""
    parts = ["<!DOCTYPE html>", '<html><head><meta charset="utf-8"></head><body>']
    for layout, frame in tables:
        parts += [f"<p>{escape(line)}</p>" for line in layout.top]
        heads = "".join(f"<th>{escape(str(c))}</th>" for c in frame.columns)
        parts += ["<table>", f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
            cells = ["" if c is None else _text(c) for c in row]
            parts.append("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
        parts += ["</tbody>", "</table>"]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _workbook(tables: Sequence[tuple[Layout, Frame]]) -> bytes:
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    for layout, frame in tables:
        sheet = book.create_sheet(layout.sheet)
        for line in layout.top:
            sheet.append([line])
        sheet.append([str(c) for c in frame.columns])
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
            sheet.append([_cell(c) for c in row])
    made = io.BytesIO()
    book.save(made)
    return _undated(made.getvalue())


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # no workbook may hold them


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return _CONTROL.sub("", value) or None
    return value.item() if hasattr(value, "item") else value


def _undated(data: bytes) -> bytes:
    """The same workbook without the time it was written."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            if name == "docProps/core.xml":
                body = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", b"2000-01-01T00:00:00Z", body)
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(info, body)
    return out.getvalue()
