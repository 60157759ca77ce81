"""The tables of an HTML page as grids of text, by the standard library's parser."""

from __future__ import annotations

from html.parser import HTMLParser


class SpannedCells(ValueError):
    """A table whose cells span rows or columns: the grid is not plain."""


class _Tables(HTMLParser):
    """Rows of cells by table, in the order in which the tables begin."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str | None]]] = []
        self.spanned: set[int] = set()
        self._open: list[int] = []  # tables that have begun and not ended
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._end_cell()
            self._open.append(len(self.tables))
            self.tables.append([])
        elif self._open and tag == "tr":
            self._end_cell()
            self.tables[self._open[-1]].append([])
        elif self._open and tag in ("td", "th"):
            self._end_cell()
            self._cell = []
            if any(name in ("colspan", "rowspan") and value != "1" for name, value in attrs):
                self.spanned.add(self._open[-1])
        elif tag == "br" and self._cell is not None:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._end_cell()
        if tag == "table" and self._open:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def _end_cell(self) -> None:
        if self._cell is None or not self._open:
            self._cell = None
            return
        text = " ".join("".join(self._cell).split())
        rows = self.tables[self._open[-1]]
        if not rows:
            rows.append([])
        rows[-1].append(text or None)
        self._cell = None


def grid(text: str, part: str) -> list[list[str | None]] | None:
    """The rows of one table of a page: its number, or the only one where `part` is empty. None
    where that is not there. Raises `SpannedCells`."""
    parser = _Tables()
    parser.feed(text)
    parser.close()
    numbers = [n for n, rows in enumerate(parser.tables) if any(rows)]
    if not part.isdigit() and len(numbers) != 1:
        return None
    place = int(part) if part.isdigit() else 0
    if place >= len(numbers):
        return None
    if numbers[place] in parser.spanned:
        raise SpannedCells(f"table {place} has cells that span others")
    return [row for row in parser.tables[numbers[place]] if row]
