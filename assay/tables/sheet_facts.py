"""What a workbook says of its sheets beside the values of cells: merged cells, formulas without
results, hidden rows. Each format is looked at without building its cells a second time.
"""

# xlrd ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import importlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

Span = tuple[int, int, int, int]  # first row, first column, last row, last column; from 0

_CELL = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})")
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_MERGED = 176  # the record of a merged range in a binary workbook
_REPEATED = 1 << 16  # rows and columns that a format repeats to the end of the sheet


@dataclass(frozen=True)
class Formula:
    """A cell with a formula. `stored` is its result as text, None where the file has none."""

    row: int
    column: int
    text: str
    stored: str | None


@dataclass
class Facts:
    """Of one sheet; rows and columns from 0."""

    merged: list[Span] = field(default_factory=list[Span])
    formulas: list[Formula] = field(default_factory=list[Formula])
    hidden_rows: set[int] = field(default_factory=set[int])
    hidden_columns: set[int] = field(default_factory=set[int])
    errors: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    hidden: bool = False


def facts_of(path: Path, engine: str) -> dict[str, Facts]:
    """The facts of each sheet by its title, for the engine of pandas that reads the file."""
    readers = {"openpyxl": _xml, "xlrd": _old, "odf": _open_document, "pyxlsb": _binary}
    return readers[engine](path)


def place_of(cell: str) -> tuple[int, int]:
    """(row, column) from 0 of a cell such as B12."""
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ValueError(f"no cell {cell!r}")
    column = 0
    for letter in found[1]:
        column = 26 * column + ord(letter) - 64
    return int(found[2]) - 1, column - 1


def cell_name(row: int, column: int) -> str:
    """B12 for row 11 and column 1, both from 0."""
    letters, rest = "", column + 1
    while rest:
        rest, last = divmod(rest - 1, 26)
        letters = chr(65 + last) + letters
    return f"{letters}{row + 1}"


def span_of(text: str) -> Span:
    """The span of `A1:E241`, or of one cell."""
    first, _, last = text.partition(":")
    top, left = place_of(first)
    bottom, right = place_of(last or first)
    return top, left, bottom, right


def references(formula: str) -> list[tuple[int, int]]:
    """The cells of the same sheet that a formula names, the ends of its spans."""
    bare = re.sub(r"\"[^\"]*\"|(?:'[^']*'|\w+)!\$?[A-Z]+\$?\d+(?::\$?[A-Z]+\$?\d+)?", "", formula)
    return [place_of(m[0]) for m in _CELL.finditer(bare)]


def _xml(path: Path) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    with zipfile.ZipFile(path) as book:
        for title, member, hidden in _members(book, "xl/workbook.xml"):
            with book.open(member) as sheet:
                found[title] = _sheet_xml(sheet)
            found[title].hidden = hidden
    return found


def _members(book: zipfile.ZipFile, listed: str) -> Iterator[tuple[str, str, bool]]:
    """(title, member of the archive, hidden) of the sheets."""
    folder, _, name = listed.rpartition("/")
    targets = {
        one.get("Id"): str(one.get("Target"))
        for one in ElementTree.fromstring(book.read(f"{folder}/_rels/{name}.rels"))
    }
    for one in ElementTree.fromstring(book.read(listed)).iter():
        if one.tag.rpartition("}")[2] != "sheet":
            continue
        key = next((v for k, v in one.attrib.items() if k.endswith("}id")), "")
        target = targets.get(key, "")
        member = target.lstrip("/") if target.startswith("/") else f"{folder}/{target}"
        if "worksheets/" in member and member in book.namelist():
            yield str(one.get("name")), member, one.get("state", "visible") != "visible"


def _sheet_xml(sheet: IO[bytes]) -> Facts:
    facts = Facts()
    row, column, formula, stored, kind = -1, -1, None, None, ""
    shared: dict[str, str] = {}
    for event, one in ElementTree.iterparse(sheet, ("start", "end")):
        tag = one.tag.rpartition("}")[2]
        if event == "start":
            if tag == "row":
                row, column = int(one.get("r", row + 2)) - 1, -1
                if one.get("hidden") in ("1", "true"):
                    facts.hidden_rows.add(row)
            elif tag == "c":
                place = one.get("r")
                column = place_of(place)[1] if place else column + 1
                formula, stored, kind = None, None, one.get("t", "")
        elif tag == "f":
            key = one.get("si", "")
            formula = one.text or shared.get(key, "")
            shared.setdefault(key, formula)
        elif tag == "v":
            stored = one.text
        elif tag == "c":
            if kind == "e":
                facts.errors.append((row, column))
            if formula is not None:
                stored = "" if stored is None and kind == "str" else stored
                facts.formulas.append(Formula(row, column, formula, stored))
        elif tag == "row":
            one.clear()
        elif tag == "mergeCell":
            facts.merged.append(span_of(str(one.get("ref"))))
        elif tag == "col" and one.get("hidden") in ("1", "true"):
            last = min(int(one.get("max", 0)), int(one.get("min", 1)) + 1000)
            facts.hidden_columns |= set(range(int(one.get("min", 1)) - 1, last))
    return facts


def _old(path: Path) -> dict[str, Facts]:
    xlrd: Any = importlib.import_module("xlrd")
    found: dict[str, Facts] = {}
    with xlrd.open_workbook(str(path), formatting_info=True) as book:
        for sheet in book.sheets():
            found[str(sheet.name)] = Facts(
                merged=[(r, c, last - 1, end - 1) for r, last, c, end in sheet.merged_cells],
                hidden_rows={int(r) for r, info in sheet.rowinfo_map.items() if info.hidden},
                hidden_columns={int(c) for c, info in sheet.colinfo_map.items() if info.hidden},
                hidden=bool(sheet.visibility),
            )
    return found


def _open_document(path: Path) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    facts, row, column, repeat = Facts(), 0, 0, 1
    with zipfile.ZipFile(path) as book, book.open("content.xml") as content:
        for event, one in ElementTree.iterparse(content, ("start", "end")):
            if event == "start" and one.tag == f"{_TABLE}table":
                facts, row = Facts(), 0
                found[str(one.get(f"{_TABLE}name"))] = facts
            elif event == "start" and one.tag == f"{_TABLE}table-row":
                column, repeat = 0, int(one.get(f"{_TABLE}number-rows-repeated", 1))
                if one.get(f"{_TABLE}visibility", "visible") != "visible" and repeat < _REPEATED:
                    facts.hidden_rows |= set(range(row, row + repeat))
            elif event == "start" and one.tag.startswith(_TABLE) and one.tag.endswith("-cell"):
                _open_cell(one, row, column, facts)
                column += int(one.get(f"{_TABLE}number-columns-repeated", 1))
            elif event == "end" and one.tag == f"{_TABLE}table-row":
                row += repeat
                one.clear()
    return found


def _open_cell(one: Any, row: int, column: int, facts: Facts) -> None:
    down = int(one.get(f"{_TABLE}number-rows-spanned", 1))
    right = int(one.get(f"{_TABLE}number-columns-spanned", 1))
    if down > 1 or right > 1:
        facts.merged.append((row, column, row + down - 1, column + right - 1))
    formula = one.get(f"{_TABLE}formula")
    if formula is not None:
        kind = one.get(f"{_OFFICE}value-type")
        stored = one.get(f"{_OFFICE}value", "" if kind else None)
        text = re.sub(r"\[\.([A-Z$]+\d+)(?::\.([A-Z$]+\d+))?\]", r"\1 \2", formula)
        facts.formulas.append(Formula(row, column, text, stored))


def _binary(path: Path) -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    with zipfile.ZipFile(path) as book:
        pyxlsb: Any = importlib.import_module("pyxlsb")
        with pyxlsb.open_workbook(str(path)) as opened:
            titles = [str(title) for title in opened.sheets]
        members = sorted(
            (n for n in book.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.bin", n)),
            key=lambda n: int(re.sub(r"\D", "", n.rpartition("/")[2])),
        )
        for title, member in zip(titles, members, strict=False):
            spans = [r for kind, r in _bin_records(book.read(member)) if kind == _MERGED]
            words = [[int.from_bytes(r[i : i + 4], "little") for i in (0, 4, 8, 12)] for r in spans]
            found[title] = Facts(merged=[(w[0], w[2], w[1], w[3]) for w in words])
    return found


def _bin_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, content) of the records of a part of a binary workbook [MS-XLSB 2.1.4]."""
    place = 0
    while place < len(data):
        kind, place = _varied(data, place, 2)
        size, place = _varied(data, place, 4)
        yield kind, data[place : place + size]
        place += size


def _varied(data: bytes, place: int, most: int) -> tuple[int, int]:
    """A number of up to `most` bytes, seven bits in each."""
    value = 0
    for shift in range(most):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            break
    return value, place
