"""Rows that stand in words or in arrays, for the second reader: blocks of lines, lists of terms,
NPZ archives without NumPy."""

from __future__ import annotations

import importlib
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.syntax import python_literal
from data_gen.proof.original import NotProvable

_LEAST = 3  # blocks that make a table
Rows = list[list[str | None]]
Table = tuple[list[str], Rows]


def blocks(text: str) -> Table | None:
    """(names, rows) of a text whose rows are blocks of `name: value` lines between empty ones, None
    where it is no such text. Raises `NotProvable`."""
    found: list[dict[str, str]] = []
    now: dict[str, str] = {}
    for line in [*text.split("\n"), ""]:
        name, colon, value = line.partition(": ")
        if not line:
            if len(now) > 1:  # a single line with a colon is no row
                found.append(now)
            now = {}
        elif colon:
            if name in now:
                raise NotProvable(f"{name!r} stands twice in one block")
            now[name] = value
    return _even(found) if len(found) >= _LEAST else None


def terms(page: str) -> Table | None:
    """(names, rows) of a page whose rows are lists of terms with one value each. Raises
    `NotProvable`."""
    soup: Any = importlib.import_module("bs4").BeautifulSoup(page, "html.parser")
    found: list[dict[str, str]] = []
    for one in soup.find_all("dl"):
        row: dict[str, str] = {}
        term: str | None = None
        for child in one.find_all(["dt", "dd"]):
            said = str(child.get_text()).strip()
            if child.name == "dt":
                if term is not None:
                    raise NotProvable(f"{term!r} has no value")
                term = said
            elif term is None or term in row:
                raise NotProvable("a value without a term of its own")
            else:
                row[term], term = said, None
        if len(row) > 1:
            found.append(row)
    return _even(found) if len(found) >= _LEAST else None


def _even(found: Sequence[dict[str, str]]) -> Table:
    names = list(dict.fromkeys(name for row in found for name in row))
    return names, [[row.get(name) or None for name in names] for row in found]


def arrays(path: Path) -> Table:
    """(names, rows) of an NPZ archive, its arrays being columns. Raises `NotProvable`."""
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        columns = [_array(archive.read(member)) for member in members]
    names = [member.removesuffix(".npy") for member in members]
    return names, [list(row) for row in zip(*columns, strict=True)]


def _array(data: bytes) -> list[Any]:
    if data[:6] != b"\x93NUMPY" or data[6] not in (1, 2):
        raise NotProvable("an array in a form that the second reader does not know")
    size, start = (2, 10) if data[6] == 1 else (4, 12)
    length = int.from_bytes(data[8 : 8 + size], "little")
    head: Any = python_literal(data[start : start + length].decode("latin-1"))
    (count,), kind, body = head["shape"], str(head["descr"]), data[start + length :]
    if kind.startswith("<U"):
        width = 4 * int(kind[2:])
        cells = [body[i * width : (i + 1) * width].decode("utf-32-le") for i in range(count)]
        return [c.rstrip("\0") or None for c in cells]
    code = {"<f8": "d", "<f4": "f", "<i8": "q", "<i4": "i", "|b1": "?"}.get(kind)
    if code is None:
        raise NotProvable(f"an array of {kind}, which the second reader does not know")
    values = struct.unpack(f"<{count}{code}", body[: count * struct.calcsize(code)])
    return [None if v != v else v for v in values]
