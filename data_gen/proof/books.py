# python-calamine ships partial types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Sheets and pages as rows. Cells of workbooks are read by calamine, formulas
without results, which it does not show, from the parts of the file itself; pages by bs4."""

from __future__ import annotations

import importlib
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from data_gen.proof.original import NotProvable

Area = tuple[int, int, int, int]  # first row, first column, last row, last column, from 0
_FORMULA = re.compile(
    rb'<(?:\w+:)?c\b[^>]*?\br="([A-Z]+)(\d+)"[^>]*>((?:(?!</(?:\w+:)?c>).)*?<(?:\w+:)?f[ >/].*?)'
    rb"</(?:\w+:)?c>",
    re.S,
)
_STORED = re.compile(rb"<(?:\w+:)?v[^>]*>([^<]*)</")
_RANGE = re.compile(r"([A-Z]+)(\d+):([A-Z]+)(\d+)")
_XLSB_MERGED, _XLSB_FORMULAS = 176, (8, 9, 10, 11)


@dataclass(frozen=True)
class Grid:
    """The cells of a sheet from A1 on, None where one is empty."""

    part: str
    rows: list[list[Any]]
    merged: list[Area] = field(default_factory=list[Area])
    # columns of formulas that a `formulas:` line has to settle, and its word: missing where results
    # are not there, stored where all of them are 0
    unstored: dict[int, str] = field(default_factory=dict[int, str])


def sheet(path: Path, part: str) -> Grid:
    """A sheet, or the one area of it that `SHEET!A1:E9` names. Raises `NotProvable`."""
    calamine: Any = importlib.import_module("python_calamine")
    data = path.read_bytes()
    kind = _kind(data)
    book: Any = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    name, _, area = part.rpartition("!") if _RANGE.search(part) else (part, "", "")
    name = name or (book.sheet_names[0] if len(book.sheet_names) == 1 else "")
    if name not in book.sheet_names:
        raise NotProvable(f"there is no sheet {name!r}" if name else "which of its sheets is meant")
    found = book.get_sheet_by_name(name)
    rows = [
        [None if isinstance(v, str) and not v.strip() else v for v in row]
        for row in found.to_python(skip_empty_area=False)
    ]
    place = list(book.sheet_names).index(name)
    merged = [(a[0], a[1], b[0], b[1]) for a, b in found.merged_cell_ranges or ()]
    unstored: dict[int, str] = {}
    if kind == "xlsx":
        unstored = _without_results(path, name)
    elif kind == "xlsb":
        _plain_xlsb(path)
    elif kind == "ods":
        merged, unstored = _ods_facts(path, place)
    return Grid(part or name, within(rows, area) if area else rows, merged, unstored)


def _kind(data: bytes) -> str:
    """What a workbook is by its content: people call any of them .xls."""
    if not data.startswith(b"PK"):
        return "xls"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())
    if "xl/workbook.bin" in names:
        return "xlsb"
    return "ods" if "content.xml" in names else "xlsx"


def within(rows: list[list[Any]], area: str) -> list[list[Any]]:
    """The same grid with nothing outside of an area such as A1:E241."""
    found = _RANGE.fullmatch(area.strip())
    if found is None:
        raise NotProvable(f"no area of a sheet: {area!r}")
    left, right = column_number(found[1]), column_number(found[3])
    top, bottom = int(found[2]), int(found[4])
    return [
        [v if top <= r <= bottom and left <= c <= right else None for c, v in enumerate(row)]
        for r, row in enumerate(rows, 1)
    ]


def column_number(letters: str) -> int:
    """The place of a column by its letters, A being 0."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def _without_results(path: Path, name: str) -> dict[int, str]:
    """Columns in which a formula has no result in the file, or all of them have zeros, and what
    settles them."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read(_sheet_file(archive, name))
    if b"<f" not in data and b":f" not in data:
        return {}
    none: set[int] = set()
    zeros: dict[int, bool] = {}
    for letters, _, body in _FORMULA.findall(data):
        column = column_number(letters.decode())
        stored = _STORED.search(body)
        if stored is None or not stored[1].strip():
            none.add(column)
        else:
            zeros[column] = zeros.get(column, True) and stored[1].strip() in (b"0", b"0.0")
    return _settled_by(none, zeros)


def _settled_by(none: set[int], zeros: dict[int, bool]) -> dict[int, str]:
    found = dict.fromkeys((column for column, zero in zeros.items() if zero), "stored")
    return found | dict.fromkeys(none, "missing")


def _sheet_file(archive: zipfile.ZipFile, name: str) -> str:
    book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
    linked = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    targets = {str(one.get("Id")): str(one.get("Target")) for one in linked}
    for one in book.iter():
        if one.tag.endswith("}sheet") and one.get("name") == name:
            key = next(str(v) for k, v in one.attrib.items() if k.endswith("}id"))
            return targets[key].lstrip("/") if targets[key][0] == "/" else f"xl/{targets[key]}"
    raise NotProvable(f"there is no sheet {name!r}")


def _plain_xlsb(path: Path) -> None:
    """Raise `NotProvable` for a workbook with merged cells or formulas, which calamine does not
    tell from others."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/") and name.endswith(".bin"):
                kinds = set(_records(archive.read(name)))
                if _XLSB_MERGED in kinds:
                    raise NotProvable("an .xlsb file with merged cells")
                if kinds & set(_XLSB_FORMULAS):
                    raise NotProvable("an .xlsb file with formulas")


def _records(data: bytes) -> Iterator[int]:
    """The kinds of the records of a binary part: each has a kind and a length of 7-bit bytes."""
    at = 0

    def number(most: int) -> int:
        nonlocal at
        value = 0
        for place in range(most):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << (7 * place)
            if not byte & 0x80:
                break
        return value

    while at < len(data):
        first = data[at]
        at += 1
        kind = first
        if first & 0x80:
            kind = (first & 0x7F) | (data[at] << 7)
            at += 1
        size = number(4)
        yield kind
        at += size


def _ods_facts(path: Path, place: int) -> tuple[list[Area], dict[int, str]]:
    """(merged cells, columns of formulas to be settled) of a sheet of an .ods file. Rows and cells
    that are written once for several count as many times."""
    with zipfile.ZipFile(path) as archive:
        book = ElementTree.fromstring(archive.read("content.xml"))
    table = [one for one in book.iter() if one.tag.endswith("}table")][place]
    merged: list[Area] = []
    none: set[int] = set()
    zeros: dict[int, bool] = {}
    row = 0
    for line in (one for one in table.iter() if one.tag.endswith("}table-row")):
        column = 0
        for cell in line:
            said = {key.rpartition("}")[2]: value for key, value in cell.attrib.items()}
            down, across = (int(said.get(f"number-{w}-spanned", 1)) for w in ("rows", "columns"))
            if down > 1 or across > 1:
                merged.append((row, column, row + down - 1, column + across - 1))
            value = said.get("value", said.get("string-value"))
            if "formula" in said and value is None:
                none.add(column)
            elif "formula" in said:
                zeros[column] = zeros.get(column, True) and value in ("0", "0.0")
            column += int(said.get("number-columns-repeated", 1))
        row += _times(line)
    return merged, _settled_by(none, zeros)


def _times(line: ElementTree.Element) -> int:
    """How many rows one that is written stands for."""
    return next((int(v) for k, v in line.attrib.items() if k.endswith("}number-rows-repeated")), 1)


# --- tables of pages ---


def grid(page: str, part: str) -> list[list[str | None]] | None:
    """The rows of one table of a page: its number, or the only one where `part` is empty. None
    where that is not there. Raises `NotProvable` for one whose cells span others."""
    soup: Any = importlib.import_module("bs4").BeautifulSoup(page, "html.parser")
    for broken in soup.find_all("br"):
        broken.replace_with(" ")
    tables = [t for t in soup.find_all("table") if _inner(t, "tr", "table")]
    if not part.isdigit() and len(tables) != 1:
        return None
    place = int(part) if part.isdigit() else 0
    if place >= len(tables):
        return None
    rows = [_inner(row, ("td", "th"), "tr") for row in _inner(tables[place], "tr", "table")]
    spans = (cell.get(name, "1") for row in rows for cell in row for name in ("colspan", "rowspan"))
    if any(span != "1" for span in spans):
        raise NotProvable(f"table {place} has cells that span others")
    return [[_words(cell) for cell in row] for row in rows if row]


def _inner(home: Any, names: Any, kind: str) -> list[Any]:
    """The elements of these names whose nearest parent of a kind is `home`: none of a table in
    it."""
    return [one for one in home.find_all(names) if one.find_parent(kind) is home]


def _words(cell: Any) -> str | None:
    own = [text for text in cell.strings if text.find_parent(("td", "th")) is cell]
    return " ".join("".join(own).split()) or None
