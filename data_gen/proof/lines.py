"""The second reader's view of a text file: what separates its fields, where the names stand.

It looks at the shape of all lines, by rules of its own, and takes no encoding but UTF-8 unless the
user names one. A file whose shape allows two readings is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

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
