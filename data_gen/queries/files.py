"""Files of tables: delimited text, workbooks, JSON, Parquet, HTML, SQLite.

What is written depends on the tables alone: no dates, no order of a hash.
"""

# pandas and openpyxl ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
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
Form = Literal["csv", "excel", "json", "lines", "parquet", "html", "sqlite"]


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


def can_read(form: Form) -> bool:
    """Whether what this form needs beside pandas is installed."""
    needs = {"excel": "openpyxl", "parquet": "pyarrow", "html": "lxml"}
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
