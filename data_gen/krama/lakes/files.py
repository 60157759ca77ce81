"""How a table lies in a file: delimited text, a workbook's sheet, JSON records, or Parquet.

One place for finding tables in files, the pandas expression that reads them, and writing them.
Written files depend on what is written alone: no dates, no order of a hash.
"""

# pandas and openpyxl ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportMissingModuleSource=false

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from rollouts.krama.columns import kind_of
from rollouts.krama.scan import header_row, shape_of

Form = Literal["csv", "excel", "json", "lines", "parquet"]
SUFFIXES = (".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".parquet")
# a workbook takes about a hundred times as long to read as text of its size
BYTES_MOST = {".xlsx": 2_000_000, ".json": 5_000_000, ".jsonl": 5_000_000}
BYTES_ELSE = 30_000_000
_SHEETS = 12
Frame = Any  # a pandas DataFrame


@dataclass(frozen=True)
class Layout:
    """One table in one file. `skip` counts the lines or rows above the column names."""

    path: str  # from the lake's folder, with /
    form: Form = "csv"
    sep: str = ","
    encoding: str = "utf-8"
    skip: int = 0
    sheet: str = ""
    decimal: str = "."  # of a csv file

    @property
    def load(self) -> str:
        """The expression that reads it where the lake is the folder data/."""
        words = [repr(f"data/{self.path}")]
        if self.form == "csv":
            words += [f"sep={self.sep!r}"] if self.sep != "," else []
            words += [f"skiprows={self.skip}"] if self.skip else []
            words += [f"encoding={self.encoding!r}"] if self.encoding != "utf-8" else []
            # a column is read whole: one with odd cells stays text from end to end
            words += ["decimal=','", "low_memory=False"] if self.decimal == "," else []
            return f"pd.read_csv({', '.join(words)})"
        if self.form == "excel":
            words += [f"sheet_name={self.sheet!r}"]
            words += [f"skiprows={self.skip}"] if self.skip else []
            return f"pd.read_excel({', '.join(words)})"
        if self.form == "parquet":
            return f"pd.read_parquet({words[0]})"
        return (
            f"pd.read_json({', '.join(words + (['lines=True'] if self.form == 'lines' else []))})"
        )

    @property
    def said(self) -> str:
        """How a question names it."""
        return f"sheet '{self.sheet}' of {self.path}" if self.form == "excel" else self.path


def can_read(form: Form) -> bool:
    """Whether what this form needs beside pandas is installed."""
    needs = {"excel": "openpyxl", "parquet": "pyarrow"}
    return form not in needs or importlib.util.find_spec(needs[form]) is not None


class _Rooted:
    """pandas whose readers take `data/…` from a folder; `raw` leaves the cells of text alone."""

    def __init__(self, folder: Path, raw: bool) -> None:
        self._pandas: Any = importlib.import_module("pandas")  # heavy
        self._folder, self._raw = folder, raw

    def __getattr__(self, name: str) -> Any:
        def read(path: str, **options: Any) -> Frame:
            if self._raw and name == "read_csv":
                options |= {"dtype": str, "keep_default_na": False}
            if self._raw and name == "read_excel":
                options |= {"dtype": object, "keep_default_na": False}
            return getattr(self._pandas, name)(self._folder / path.removeprefix("data/"), **options)

        return read


_NAMES = {"True": True, "False": False}


def read_frame(load: str, folder: Path, raw: bool = False) -> Frame:
    """The frame that a `Layout.load` gives. The expression is our own, made above of quoted parts;
    raises whatever pandas raises of a file it cannot read."""
    return eval(load, {"__builtins__": {}, "pd": _Rooted(folder, raw), **_NAMES})


def layouts(folder: Path, path: Path) -> list[Layout]:
    """The tables that may be in a file; none for a file too large or of another kind."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES or path.stat().st_size > BYTES_MOST.get(suffix, BYTES_ELSE):
        return []
    name = path.relative_to(folder).as_posix()
    try:
        if suffix == ".xlsx":
            return _sheets(name, path) if can_read("excel") else []
        if suffix in (".json", ".jsonl"):
            return _records(name, path)
        if suffix == ".parquet":
            return [Layout(name, "parquet")] if can_read("parquet") else []
    except Exception:  # whatever the reading library says of a broken file: no table for us
        return []
    return _delimited(name, path)


def _delimited(name: str, path: Path) -> list[Layout]:
    shape = shape_of(path)
    if shape is None or len(shape.names) < 2 or not shape.delimiter:
        return []
    if any(n.startswith("field ") for n in shape.names[:2]):  # no column names to ask about
        return []
    return [Layout(name, "csv", shape.delimiter, shape.encoding, max(0, shape.header - 1))]


def _sheets(name: str, path: Path) -> list[Layout]:
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    found: list[Layout] = []
    for sheet in book.worksheets[:_SHEETS]:
        rows = [
            ["" if cell is None else str(cell) for cell in row]
            for row in islice(sheet.iter_rows(max_col=80, values_only=True), 40)
        ]
        top = header_row(rows)
        if top is None or any(kind_of(c) in ("integer", "number") for c in rows[top]):
            continue
        found.append(Layout(name, "excel", skip=top, sheet=str(sheet.title)))
    book.close()
    return found


def _records(name: str, path: Path) -> list[Layout]:
    """An array of flat objects, or one object a line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".jsonl":
        rows = [json.loads(line) for line in text.splitlines()[:50] if line.strip()]
        form: Form = "lines"
    else:
        rows, form = json.loads(text), "json"
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        return []
    flat = all(not isinstance(v, dict | list) for r in rows[:50] for v in r.values())
    return [Layout(name, form)] if flat else []


def top_lines(layout: Layout, folder: Path) -> list[str]:
    """What stands above the column names: lines, or the texts of rows."""
    if not layout.skip:
        return []
    path = folder / layout.path
    if layout.form == "csv":
        with open(path, encoding=layout.encoding, newline="") as file:
            return [line.rstrip("\r\n") for line in islice(file, layout.skip)]
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    rows = islice(book[layout.sheet].iter_rows(values_only=True), layout.skip)
    found = [" ".join(str(c) for c in row if c is not None) for row in rows]
    book.close()
    return found


def write_frames(folder: Path, tables: Sequence[tuple[Layout, Frame, Sequence[str]]]) -> None:
    """Write the tables of one file: (layout, frame, lines above the names). Only a workbook holds
    several. Raises UnicodeEncodeError when the encoding lacks a character."""
    layout, frame, top = tables[0]
    place = folder / layout.path
    place.parent.mkdir(parents=True, exist_ok=True)
    if layout.form == "csv":
        body = frame.to_csv(index=False, sep=layout.sep, lineterminator="\n")
        place.write_bytes("\n".join([*top, body]).encode(layout.encoding))
    elif layout.form == "excel":
        place.write_bytes(_workbook(tables))
    elif layout.form == "parquet":
        frame.to_parquet(place, index=False)
    else:
        lines = layout.form == "lines"
        text = frame.to_json(orient="records", force_ascii=False, lines=lines, double_precision=15)
        place.write_text(text + ("" if lines else "\n"), encoding="utf-8")


def _workbook(tables: Sequence[tuple[Layout, Frame, Sequence[str]]]) -> bytes:
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.Workbook(write_only=True)
    for layout, frame, top in tables:
        sheet = book.create_sheet(layout.sheet)
        for line in top:
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
