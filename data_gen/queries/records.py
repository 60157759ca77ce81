"""Rows that lie in text: a block of `Name: value` lines for each, or on a page a list of terms.

No table stands in such a file, so that no reader of tables sees it. What a block does not say is
missing. Columns are numbers where every value that is there is a plain one.
"""

# pandas and lxml ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

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


def written(style: Style, frame: Frame, top: Sequence[str]) -> str:
    """The text of a file; what is missing is left out."""
    rows = [
        [(str(k), _text(v)) for k, v in zip(frame.columns, row, strict=True) if not _missing(v)]
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


def _missing(value: Any) -> bool:
    return value is None or value != value


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
