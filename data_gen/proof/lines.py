# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The second reader's view of text files, sheets and pages: rows.

Of a text file it looks at the shape of all lines, by rules of its own, and takes no encoding but
UTF-8 unless the user names one. A file whose shape allows two readings is refused. Cells of
workbooks are read by calamine, formulas without results, which it does not show, from the parts of
the file itself; pages by bs4.
"""

from __future__ import annotations

import importlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from data_gen.proof.original import NotProvable, Said

_SEPARATORS = (",", ";", "\t", "|")
_BLANKS = {r"\s+": re.compile(r"\s+"), r"\s{2,}": re.compile(r"\s{2,}")}
NUMBER = re.compile(r"[+-]?[$€£]?[\d.,' ]*\d[\d.,' ]*%?")
_YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
Record = tuple[int, str]  # number of its first line, text


@dataclass(frozen=True)
class TextRows:
    """The rows below the names, as text, and the numbers of their lines."""

    names: list[str]
    numbers: list[int]
    cells: list[list[str]]


def decoded(data: bytes, said: Said) -> str:
    """The text of a file. Raises `NotProvable` for bytes that are not the encoding's."""
    encoding = said.text("encoding")
    if not encoding:
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        raise NotProvable(f"it is no {encoding}; name its encoding in tables.yaml") from None
    if "\0" in text:
        raise NotProvable("it holds null characters")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def text_rows(data: bytes, said: Said) -> TextRows:
    """The rows of a delimited file. Raises `NotProvable`."""
    quote = str(said.given["quote"]) if "quote" in said.given else '"'
    lines = decoded(data, said).split("\n")
    sep = said.text("sep")
    if not sep and re.fullmatch(r'"?sep=.', lines[0].rstrip('"')):
        sep, lines[0] = lines[0].rstrip('"')[-1], ""  # the file says it, for a spreadsheet
    gone = said.dropped() or set()
    skip = said.number("skip")
    lines = ["" if n <= skip or n in gone else line for n, line in enumerate(lines, 1)]
    if quote and any('\\"' in line for line in lines):
        raise NotProvable("quotes with backslashes before them")
    records = _records(lines, quote)
    if not records:
        raise NotProvable("it holds no rows")
    if sep in _BLANKS:
        return _between_blanks(records, (sep,), said)
    shapes = [s for one in ((sep,) if sep else _SEPARATORS) if (s := _shape(records, one, quote))]
    if len(shapes) > 1:
        first = min(start for _, _, start in shapes)  # a decimal comma is in no name
        shapes = [s for s in shapes if s[2] == first]
    if len(shapes) > 1:
        shapes = [s for s in shapes if _may_be_names(_fields(records[s[2]][1], s[0], quote), None)]
    if len(shapes) > 1:
        raise NotProvable(f"both {shapes[0][0]!r} and {shapes[1][0]!r} separate fields")
    if not shapes:
        return _between_blanks(records, tuple(_BLANKS), said)
    return _rows(records, shapes[0], quote, said)


def _records(lines: list[str], quote: str) -> list[Record]:
    """Lines with the numbers that an editor gives them; a line break in quotes does not end one."""
    if not quote or not any(quote in line for line in lines):
        return [(n, line) for n, line in enumerate(lines, 1) if line.strip()]
    found: list[Record] = []
    held, start = "", 0
    for number, line in enumerate(lines, 1):
        held, start = (f"{held}\n{line}", start) if held else (line, number)
        if held.count(quote) % 2 == 0:
            if held.strip():
                found.append((start, held))
            held = ""
    if held:
        raise NotProvable(f"the quotes that begin in line {start} do not end")
    return found


def _quoted(quote: str) -> re.Pattern[str]:
    q = re.escape(quote)
    return re.compile(f"{q}(?:[^{q}]|{q}{q})*{q}", re.S)


def _parts(line: str, sep: str, quote: str) -> list[str]:
    """The fields of a line, with their quotes."""
    if not quote or quote not in line:
        return line.split(sep)
    marked = _quoted(quote).sub(lambda found: found[0].replace(sep, "\1"), line)
    return [part.replace("\1", sep) for part in marked.split(sep)]


def _bare(part: str, quote: str) -> str:
    """A field without blanks and quotes around it."""
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] == quote:
        return part[1:-1].replace(quote * 2, quote)
    return part


def _cell(number: int, part: str, sep: str, quote: str) -> str:
    """A field as it is, or what its quotes hold. Raises `NotProvable` for quotes that hold a part
    of it only."""
    if not quote or quote not in part:
        return part
    begins = part.lstrip()[:1] == quote
    if begins and _quoted(quote).fullmatch(part.strip()):
        return _bare(part, quote)
    if begins or sep in part:
        raise NotProvable(f"line {number} has quotes around a part of a field")
    return part


def _shape(records: list[Record], sep: str, quote: str) -> tuple[str, int, int] | None:
    """(separator, fields a row, place of the names), where nearly all rows agree."""
    widths = [len(_parts(line, sep, quote)) for _, line in records]
    common = Counter(n for n in widths if n > 1).most_common(1)
    if not common:
        return None
    width, start = common[0][0], widths.index(common[0][0])
    while width > 2 and sum(map(bool, _fields(records[start][1], sep, quote))) <= 1:
        start += 1  # titles, padded to the width of the table
        if start == len(records):
            return None
    below = widths[start:]
    return (sep, width, start) if below.count(width) >= 0.7 * len(below) else None


def _fields(line: str, sep: str, quote: str) -> list[str]:
    return [_bare(part, quote) for part in _parts(line, sep, quote)]


def _may_be_names(names: list[str], below: list[str] | None) -> bool:
    """Whether a row could be names: words, or years one after the other beside words."""
    numbers = [name for name in names if NUMBER.fullmatch(name)]
    years = all(_YEAR.fullmatch(name) for name in numbers) and numbers == sorted(set(numbers))
    if not numbers or (years and len(numbers) < len(names)):
        return True
    # a code as a name is one only above words
    return below is not None and not any(NUMBER.fullmatch(cell) for cell in below)


def _rows(records: list[Record], shape: tuple[str, int, int], quote: str, said: Said) -> TextRows:
    sep, width, start = shape
    for number, line in records[:start]:
        if sum(map(bool, _fields(line, sep, quote))) > 1:
            raise NotProvable(f"line {number} above the names has fields too")
    names = _fields(records[start][1], sep, quote)
    body = records[start + 1 :]
    if said.given.get("header") is False:
        body, names = records[start:], [f"column {n}" for n in range(1, width + 1)]
    elif not said.words("names"):
        first = _fields(body[0][1], sep, quote) if body else []
        if not _may_be_names(names, first):
            raise NotProvable("there is no row of names")
    rows: list[tuple[int, list[str]]] = []
    for number, line in body:
        parts = _parts(line, sep, quote)
        if len(parts) > width and said.text("ragged") == "skip":
            continue
        if len(parts) != width:
            raise NotProvable(f"line {number} has {len(parts)} fields, the names are {width}")
        rows.append((number, [_cell(number, part, sep, quote) for part in parts]))
    return TextRows(names, [number for number, _ in rows], [cells for _, cells in rows])


def _between_blanks(records: list[Record], seps: tuple[str, ...], said: Said) -> TextRows:
    """A file whose fields blanks part, each row as many; no quotes."""
    fitting: list[TextRows] = []
    for sep in seps:
        rows = [_BLANKS[sep].split(line.strip()) for _, line in records]
        width = Counter(map(len, rows)).most_common(1)[0][0]
        start = next(at for at, row in enumerate(rows) if len(row) == width)
        below = rows[start + 1 :]
        even = width > 1 and all(len(row) == width for row in below)
        even = even and all(any(map(NUMBER.fullmatch, row)) for row in below)  # else it is prose
        named = len(set(rows[start])) == width and _may_be_names(rows[start], None)
        if even and named and said.given.get("header") is not False:
            numbers = [number for number, _ in records[start + 1 :]]
            fitting.append(TextRows(rows[start], numbers, below))
    if not fitting:
        raise NotProvable("no separator gives the rows the same number of fields")
    if len(fitting) > 1 and fitting[0].cells != fitting[1].cells:
        raise NotProvable("one blank may separate fields, or two")
    return fitting[0]


# --- sheets and pages

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
                kinds = set(_record_kinds(archive.read(name)))
                if _XLSB_MERGED in kinds:
                    raise NotProvable("an .xlsb file with merged cells")
                if kinds & set(_XLSB_FORMULAS):
                    raise NotProvable("an .xlsb file with formulas")


def _record_kinds(data: bytes) -> Iterator[int]:
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
    tables, place = _tables(page), int(part) if part.isdigit() else 0
    if place >= len(tables) or not (part.isdigit() or len(tables) == 1):
        return None
    cells = [cell for row in tables[place] for cell, _ in row]
    if any(cell.get(name, "1") != "1" for cell in cells for name in ("colspan", "rowspan")):
        raise NotProvable(f"table {place} has cells that span others")
    rows = [[" ".join("".join(texts).split()) for _, texts in row] for row in tables[place]]
    return [[words or None for words in row] for row in rows if row]


_Cells = list[tuple[Any, list[str]]]  # of a row, each with its texts: none of a cell in it


def _tables(page: str) -> list[list[_Cells]]:
    """The rows of every table of a page that has any. A row is of the nearest table around it, a
    cell of the nearest row, a text of the nearest cell; one walk finds them all, where asking each
    for its parents takes ten times as long."""
    bs4: Any = importlib.import_module("bs4")
    soup = bs4.BeautifulSoup(page, "html.parser")
    tables: list[list[_Cells]] = []
    around: dict[int, tuple[list[_Cells], _Cells, list[str]]] = {id(soup): ([], [], [])}
    for one in soup.descendants:
        rows, cells, texts = around[id(one.parent)]
        if one.name is None:  # a text, or a comment or a script, which nobody reads
            texts += [one] if type(one) in (bs4.NavigableString, bs4.CData) else []
        elif one.name == "br":
            texts.append(" ")
        elif one.name == "table":
            tables.append(rows := [])
        elif one.name == "tr":
            rows.append(cells := [])
        elif one.name in ("td", "th"):
            cells.append((one, texts := []))
        around[id(one)] = rows, cells, texts
    return [rows for rows in tables if rows]
