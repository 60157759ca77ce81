"""Rows that stand in words, for the second way: line by line, from the names that a question uses.

It shares nothing with `records`, which reads them for gold pipelines.
"""

# bs4 ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from data_gen.krama.lakes.ops import Source
from data_gen.krama.lakes.unproved import NotProvable

Rows = list[list[str | None]]


def blocks(text: str, source: Source) -> tuple[list[str], Rows]:
    """(names, rows) of a text whose rows are blocks of lines between empty ones."""
    found: list[dict[str, str]] = []
    now: dict[str, str] = {}
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        name, colon, value = line.partition(": ")
        if not line:
            if len(now) > 1:  # a single line with a colon is no row
                found.append(now)
            now = {}
        elif colon:
            if name in now:
                raise NotProvable(f"{source.path}: {name!r} stands twice in one block")
            now[name] = value
    return _even(found, source)


def listed(page: Any, source: Source) -> tuple[list[str], Rows]:
    """(names, rows) of a page (bs4) whose rows are lists of terms with one value each."""
    found: list[dict[str, str]] = []
    for one in page.find_all("dl"):
        row: dict[str, str] = {}
        term: str | None = None
        for child in one.find_all(["dt", "dd"]):
            said = str(child.get_text()).strip()
            if child.name == "dt":
                if term is not None:
                    raise NotProvable(f"{source.path}: {term!r} has no value")
                term = said
            elif term is None or term in row:
                raise NotProvable(f"{source.path}: a value without a term of its own")
            else:
                row[term], term = said, None
        if len(row) > 1:
            found.append(row)
    return _even(found, source)


def _even(found: list[dict[str, str]], source: Source) -> tuple[list[str], Rows]:
    names = list(dict.fromkeys(name for row in found for name in row))
    if not found or not set(source.columns) <= set(names):
        raise NotProvable(f"{source.path}: the second reader finds no rows with these columns")
    return names, [[row.get(name) for name in names] for row in found]
