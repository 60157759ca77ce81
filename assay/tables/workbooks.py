"""The tables of workbooks: where each stands on its sheet, and what of it is in doubt."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import importlib
import importlib.util
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree

from assay.errors import install_extra
from assay.tables.plan import ReadPlan, Skipped, Unreadable, check_fill
from assay.tables.settings import Doubt, FileSettings, TableSettings, yaml_list
from assay.tables.structure import doubts_of, joined_names

Span = tuple[int, int, int, int]  # first row, first column, last row, last column; from 0
Rows = list[list[Any]]

_CELL = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})")
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_MERGED = 176  # the record of a merged range in a binary workbook
_REPEATED = 1 << 16  # rows and columns that a format repeats to the end of the sheet


class Formula(NamedTuple):
    """A cell with a formula. `stored` is its result as text, None where the file has none."""

    row: int
    column: int
    text: str
    stored: str | None


@dataclass
class Sheet:
    """A sheet as it is looked at, rows and columns from 0: its cells from A1, the decisions of the
    user, what beside the cells is known of it."""

    title: str = ""
    name: str = ""  # of the workbook
    engine: str = ""
    rows: Rows = field(default_factory=list[list[Any]])
    rule: FileSettings = field(default_factory=FileSettings)
    merged: list[Span] = field(default_factory=list[Span])
    formulas: list[Formula] = field(default_factory=list[Formula])
    hidden_rows: set[int] = field(default_factory=set[int])
    hidden_columns: set[int] = field(default_factory=set[int])
    errors: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    hidden: bool = False

    def refused(self, doubt: Doubt) -> Skipped:
        doubt = replace(doubt, path=self.name, part=self.title)
        return Skipped(self.name, doubt.said, self.title, (doubt,))


def place_of(cell: str) -> tuple[int, int]:
    """(row, column) from 0 of a cell such as B12."""
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ValueError(f"no cell {cell!r}")
    column = reduce(lambda so_far, letter: 26 * so_far + ord(letter) - 64, found[1], 0)
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


def _xml(path: Path, book: Any) -> Iterator[Sheet]:
    with zipfile.ZipFile(path) as archive:
        for sheet in book.worksheets:
            facts = Sheet(sheet.title, hidden=sheet.sheet_state != "visible")
            with archive.open(sheet._worksheet_path) as content:  # openpyxl has no other name
                _read_xml(content, facts)
            yield facts


def _read_xml(sheet: IO[bytes], facts: Sheet) -> None:
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


def _old(path: Path, book: Any) -> Iterator[Sheet]:
    for sheet in book.sheets():
        yield Sheet(
            str(sheet.name),
            merged=[(r, c, last - 1, end - 1) for r, last, c, end in sheet.merged_cells],
            hidden_rows={int(r) for r, info in sheet.rowinfo_map.items() if info.hidden},
            hidden_columns={int(c) for c, info in sheet.colinfo_map.items() if info.hidden},
            hidden=bool(sheet.visibility),
        )


def _open_document(path: Path, book: Any) -> Iterator[Sheet]:
    facts, row, column, repeat = Sheet(), 0, 0, 1
    with zipfile.ZipFile(path) as archive, archive.open("content.xml") as content:
        for event, one in ElementTree.iterparse(content, ("start", "end")):
            if event == "start" and one.tag == f"{_TABLE}table":
                facts, row = Sheet(str(one.get(f"{_TABLE}name"))), 0
                yield facts
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


def _open_cell(one: Any, row: int, column: int, facts: Sheet) -> None:
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


def _binary(path: Path, book: Any) -> Iterator[Sheet]:
    with zipfile.ZipFile(path) as archive:
        members = [n for n in archive.namelist() if re.fullmatch(r"xl/worksheets/sheet\d+\.bin", n)]
        members.sort(key=lambda n: int(re.sub(r"\D", "", n.rpartition("/")[2])))
        for title, member in zip(book.sheets, members, strict=False):
            spans = [r for kind, r in _bin_records(archive.read(member)) if kind == _MERGED]
            words = [[int.from_bytes(r[i : i + 4], "little") for i in (0, 4, 8, 12)] for r in spans]
            yield Sheet(str(title), merged=[(w[0], w[2], w[1], w[3]) for w in words])


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


ROWS = 2000  # of a table, that are looked at for decisions
_LIBRARIES = {"openpyxl": "openpyxl", "xlrd": "xlrd", "pyxlsb": "pyxlsb", "odf": "odfpy"}


def engine_of(path: Path) -> str:
    """The library of pandas that reads a workbook, by its content whatever its suffix says.
    Raises `Unreadable` for what is no workbook, and for a library that is not installed."""
    with open(path, "rb") as file:
        head = file.read(512)
    engine = "xlrd" if head.startswith(b"\xd0\xcf\x11\xe0") else ""
    if head.startswith(b"PK"):
        with zipfile.ZipFile(path) as book:
            members = set(book.namelist())
        parts = {"xl/workbook.xml": "openpyxl", "xl/workbook.bin": "pyxlsb", "content.xml": "odf"}
        engine = next((e for member, e in parts.items() if member in members), "")
    if not engine:
        kind = "a page of HTML" if b"<" in head[:200] else "other data"
        raise Unreadable(f"is no workbook but {kind}; name it by what it is")
    if importlib.util.find_spec(engine) is None:
        raise Unreadable(f"{_LIBRARIES[engine]} is not installed; {install_extra('build')}")
    return engine


def sheets(path: Path, name: str, rules: TableSettings) -> Iterator[ReadPlan | Skipped]:
    """The tables of the sheets of a workbook, or why they are refused."""
    pd: Any = importlib.import_module("pandas")
    engine = engine_of(path)
    readers = {"openpyxl": _xml, "xlrd": _old, "odf": _open_document, "pyxlsb": _binary}
    more = {"formatting_info": True} if engine == "xlrd" else {}
    with pd.ExcelFile(path, engine=engine, engine_kwargs=more) as book:
        # the library may end its own reading after the last facts
        facts = {sheet.title: sheet for sheet in [*readers[engine](path, book.book)]}
        as_it_is = {"header": None, "dtype": object, "keep_default_na": False, "na_values": [""]}
        for title in map(str, book.sheet_names):
            sheet = facts.get(title, Sheet(title))
            sheet.name, sheet.engine, sheet.rule = name, engine, rules.of(name, title)
            some = None if sheet.rule.ranges else ROWS
            frame = pd.read_excel(book, sheet_name=title, nrows=some, **as_it_is)
            sheet.rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
            yield from _tables(sheet)


def _tables(sheet: Sheet) -> Iterator[ReadPlan | Skipped]:
    wide = max((len(row) for row in sheet.rows), default=0)
    if not any(cell is not None for row in sheet.rows for cell in row):
        yield Skipped(sheet.name, "the sheet is empty", sheet.title)
        return
    if sheet.rule.ranges:
        for text in _ranges(sheet):
            yield _table(sheet, span_of(text), f"{sheet.title}!{text}")
        return
    whole = (0, 0, len(sheet.rows) - 1, wide - 1)
    blocks = [] if sheet.rule.names or sheet.rule.drop_rows else _blocks(sheet)
    if len(blocks) > 1:
        named = [f"{cell_name(*b[:2])}:{cell_name(*b[2:])}" for b in blocks]
        said = f"{len(blocks)} tables stand on the sheet, at {' and '.join(named)}"
        yield sheet.refused(Doubt("several_tables", said, f"ranges: [{', '.join(named)}]"))
        return
    yield _table(sheet, whole, sheet.title)


def _ranges(sheet: Sheet) -> Iterator[str]:
    """The ranges that the user gave for this sheet."""
    for text in sheet.rule.ranges:
        title, mark, cells = text.rpartition("!")
        if mark and title.strip("'") != sheet.title:
            continue
        try:
            span_of(cells)
        except ValueError:
            raise Unreadable(f"ranges: {text!r} in tables.yaml; wanted A1:E241") from None
        yield cells.upper()


def _table(sheet: Sheet, span: Span, part: str) -> ReadPlan | Skipped:
    """The table in a span of cells, its names in the first full row."""
    top, left, bottom, right = span
    rows = [row[left : right + 1] for row in sheet.rows[top : bottom + 1]]
    gone = {n - 1 for first, last in sheet.rule.drop_rows or () for n in range(first, last + 1)}
    skip = _top(rows, top, sheet.rule, gone)
    if skip is None:
        return Skipped(sheet.name, "the range is empty", part)
    head = rows[skip - top]
    bare = _no_names(head, sheet.rule)
    plan = ReadPlan(sheet.name, "excel", part, skip=skip, header=not bare, engine=sheet.engine)
    if bare:
        plan.columns = tuple(f"column {i + 1}" for i in range(len(head)))
        plan.notes = ("no names above the data: the columns are numbered",)
    first = skip + (not bare)
    kept = [n for n in range(first, top + len(rows)) if n not in gone]
    heads = _two_rows_of_names(sheet, span, skip, [sheet.rows[n] for n in kept[:50]], kept)
    if heads is not None and not bare:
        return sheet.refused(heads)
    spans = [_cut(m, span) for m in sheet.merged if m[0] >= first]
    spans = [m for m in spans if m is not None and not _whole_row(m, span)]
    headless = [m for m in spans if m[0] in gone and not {*range(m[0], m[2] + 1)} <= gone]
    spans = [m for m in spans if m[0] not in gone]
    cells = {n: list(rows[n - top]) for n in kept}
    names = sheet.rule.names or tuple(map(str, head))
    known = [n for n in sheet.rule.fill_down or () if n in names]  # others are said elsewhere
    by_row = {n + 1: row for n, row in cells.items()}
    check_fill(replace(sheet.rule, fill_down=tuple(known)), names, by_row)
    doubts = [] if sheet.rule.merged else [*_merged(sheet, spans, left)]
    doubts += _formulas(sheet, span, first, gone)
    doubts += _merged(sheet, headless if sheet.rule.merged != "first" else [], left, True)
    fills = _fills(spans, cells, left) if sheet.rule.merged == "fill" else ()
    place = {n: i for i, n in enumerate(kept)}
    plan.filled = tuple((c, o, tuple(place[n] for n in at if n in place)) for c, o, at in fills)
    plan.placed = tuple(doubts)
    plan.notes += tuple(_notes(sheet, span, first))
    return plan


def _top(rows: Rows, above: int, rule: FileSettings, gone: set[int]) -> int | None:
    """The number of rows of the sheet above the names, those of the start of a span included."""
    filled = [0 if above + i in gone else _count(row) for i, row in enumerate(rows)]
    wide = Counter(n for n in filled if n)
    if not wide:
        return None
    if rule.skip is not None and not above:
        return min(rule.skip, len(rows) - 1)
    usual = max(wide, key=lambda n: (wide[n], n))
    return above + next(i for i, n in enumerate(filled) if n >= max(1, 0.6 * usual))


def _count(row: Sequence[Any]) -> int:
    return sum(v is not None for v in row)


def _no_names(head: Sequence[Any], rule: FileSettings) -> bool:
    if rule.header is not None:
        return not rule.header
    texts = any(isinstance(v, str) for v in head)
    return not texts and any(isinstance(v, int | float) for v in head)


def _two_rows_of_names(
    sheet: Sheet, span: Span, skip: int, rows: Rows, kept: Sequence[int]
) -> Doubt | None:
    """The doubt about names that stand in two rows, one of them above or below the names."""
    if sheet.rule.names or sheet.rule.skip is not None or sheet.rule.ranges:
        return None
    _, left, _, right = span
    names = ["" if v is None else str(v) for v in sheet.rows[skip][left : right + 1]]
    above = [row[left : right + 1] for row in sheet.rows[max(0, skip - 1) : skip]]
    cut = [row[left : right + 1] for row in rows]
    found = doubts_of(names, cut, [n + 1 for n in kept[: len(cut)]], sheet.rule, above)
    heads = next((d for d in found if d.code == "header_rows"), None)
    over = [
        m
        for m in sheet.merged
        if m[0] == m[2] == skip - 1 and 1 < m[3] - m[1] + 1 < right - left + 1
    ]
    if heads is not None or not over:
        return heads
    upper = ["" if v is None else str(v) for v in above[0]]
    said = f"above the names stands {upper[over[0][1] - left]!r} for several of them"
    named = yaml_list(joined_names(upper, names))
    return Doubt("header_rows", said, f"{{skip: {skip}, names: {named}}}")


def _blocks(sheet: Sheet) -> list[Span]:
    """The tables of a sheet that an empty column or an empty row keeps apart; one span, or none,
    where there is one table."""
    rows = sheet.rows
    wide = max(len(row) for row in rows)
    used = [any(row[c] is not None for row in rows if c < len(row)) for c in range(wide)]
    found: list[Span] = []
    sides = _runs(used)
    for left, right in sides:
        cut = [row[left : right + 1] for row in rows]
        parts = _runs([_count(row) > 0 for row in cut])
        tables = [t for p in parts if (t := _headed(cut, *p)) is not None]
        if not tables and parts and len(sides) > 1:
            tables = [(parts[0][0], parts[-1][1])]
        elif tables and len(tables) < len(parts):
            tables = _with_rest(tables, parts)
        found += [(top, left, bottom, right - _spare(cut, top, bottom)) for top, bottom in tables]
    return found


def _runs(used: Sequence[bool]) -> list[tuple[int, int]]:
    """(first, last) of the runs of true."""
    runs = [(on, list(at)) for on, at in groupby(range(len(used)), key=used.__getitem__)]
    return [(at[0], at[-1]) for on, at in runs if on]


def _headed(cut: Rows, top: int, bottom: int) -> tuple[int, int] | None:
    """The rows of a block from its names on, if it has names above rows: words alone, above
    numbers or other values."""
    for row in range(top, bottom):
        head, below = cut[row], cut[row + 1 : bottom + 1]
        texts = [v for v in head if v is not None]
        if len(texts) < max(1, 0.6 * max(map(_count, below))):
            continue
        words = all(isinstance(v, str) for v in texts)
        values = any(not isinstance(v, str) and v is not None for r in below[:50] for v in r)
        return (row, bottom) if words and values else None
    return None


def _with_rest(
    tables: list[tuple[int, int]], parts: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The tables, each with the blocks below it that have no names of their own."""
    ends = [*(t[0] for t in tables[1:]), 1 << 30]
    return [
        (top, max(last for first, last in parts if first <= bottom or first < end))
        for (top, bottom), end in zip(tables, ends, strict=True)
    ]


def _spare(cut: Rows, top: int, bottom: int) -> int:
    """How many columns at the right of a block are empty in these rows."""
    wide = max((len(row) for row in cut), default=0)
    last = max(
        (i for row in cut[top : bottom + 1] for i, v in enumerate(row) if v is not None), default=-1
    )
    return wide - 1 - last


def _cut(merged: Span, span: Span) -> Span | None:
    """The part of merged cells inside a span."""
    top, left = max(merged[0], span[0]), max(merged[1], span[1])
    bottom, right = min(merged[2], span[2]), min(merged[3], span[3])
    return (top, left, bottom, right) if top <= bottom and left <= right else None


def _whole_row(merged: Span, span: Span) -> bool:
    """Whether merged cells are a title in a row of its own, which is told as a note."""
    return merged[0] == merged[2] and merged[3] - merged[1] >= max(1, span[3] - span[1] - 1)


def _merged(
    sheet: Sheet, spans: Sequence[Span], left: int, headless: bool = False
) -> Iterator[tuple[int, Doubt]]:
    """The doubts of the columns of merged cells. `headless`: the row that holds their value is left
    out by `drop_rows`, and others that they stand for are not."""
    for column in sorted({c for m in spans for c in range(m[1], m[3] + 1)}):
        mine = [m for m in spans if m[1] <= column <= m[3]]
        top, first, bottom, last = mine[0]
        cell = sheet.rows[top][first] if top < len(sheet.rows) else None
        where = f"{cell_name(top, first)}:{cell_name(bottom, last)}"
        said = f"{len(mine)} merged cells such as {where} ({cell!r}) stand for several cells"
        if headless:
            said = f"drop_rows leaves out row {top + 1}, whose value {cell!r} stands for all of "
            said += f"the merged cells {where}"
        settle = "merged: first  # or keep the row" if headless else "merged: fill  # or first"
        yield column - left, Doubt("merged_cells", said, settle)


def _fills(
    spans: Sequence[Span], cells: dict[int, list[Any]], left: int
) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """The steps that give the value of merged cells to all of them; `cells` are filled as well."""
    steps: dict[tuple[int, int], list[int]] = {}
    for top, first, bottom, last in spans:
        rows = [n for n in range(top, bottom + 1) if n in cells]
        value = cells[top][first - left] if top in cells else None
        if value is None:
            continue
        for column in range(first - left, last - left + 1):
            taken = rows if column > first - left else [n for n in rows if n != top]
            if taken:
                steps.setdefault((column, first - left), []).extend(taken)
            for n in taken:
                cells[n][column] = value
    ordered = sorted(steps, key=lambda step: (step[0] != step[1], step))
    return tuple((c, o, tuple(sorted(steps[c, o]))) for c, o in ordered)


def _formulas(sheet: Sheet, span: Span, first: int, gone: set[int]) -> Iterator[tuple[int, Doubt]]:
    """Columns whose formulas have no stored results, or all zeros from cells that are none."""
    by_column: dict[int, list[Any]] = {}
    for one in sheet.formulas:
        if first <= one.row <= span[2] and span[1] <= one.column <= span[3] and one.row not in gone:
            by_column.setdefault(one.column, []).append(one)
    for column, formulas in sorted(by_column.items()):
        lost = [f for f in formulas if f.stored is None]
        zeros = all(_zero(f.stored) for f in formulas)
        if sheet.rule.formulas == "missing" or (sheet.rule.formulas and not lost):
            continue
        if not lost and not (zeros and any(_from_numbers(sheet, f.text) for f in formulas)):
            continue
        one = (lost or formulas)[0]
        what = f"{len(lost)} formulas have no stored result" if lost else "all results are 0"
        said = (
            f"{what}, such as {cell_name(one.row, column)} (={one.text[:40]}): open the file in a "
            "spreadsheet program and save it"
        )
        yield (
            column - span[1],
            Doubt("formulas", said, "use: false" if lost else "formulas: stored"),
        )


def _zero(stored: str | None) -> bool:
    try:
        return stored is not None and float(stored) == 0
    except ValueError:
        return False


def _from_numbers(sheet: Sheet, formula: str) -> bool:
    """Whether a formula names a cell that holds a number, not 0."""
    for row, column in references(formula):
        if row < len(sheet.rows) and column < len(sheet.rows[row]):
            value = sheet.rows[row][column]
            if isinstance(value, int | float) and value:
                return True
    return False


def _notes(sheet: Sheet, span: Span, first: int) -> Iterator[str]:
    """What a person who opens the workbook does not see, though it is read."""
    if sheet.hidden:
        yield "the sheet is hidden in the workbook"
    rows = sum(first <= n <= span[2] for n in sheet.hidden_rows)
    columns = sorted(n for n in sheet.hidden_columns if span[1] <= n <= span[3])
    if rows:
        yield f"{rows} rows are hidden in the workbook, and read"
    if columns:
        named = ", ".join(cell_name(0, n)[:-1] for n in columns[:5])
        yield f"columns hidden in the workbook, and read: {named}"
    errors = sum(first <= r <= span[2] and span[1] <= c <= span[3] for r, c in sheet.errors)
    if errors:
        yield f"{errors} cells hold an error such as #N/A, which is no value"
