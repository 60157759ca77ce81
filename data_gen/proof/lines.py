"""The second reader's view of a text file: encoding, separator, where the names stand.

It looks at the shape of the lines alone, by rules of its own. A file whose shape allows two
readings is not decided.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEPARATORS = (",", ";", "\t", "|")
_LINES = 2000  # looked at
_NOTES = 5  # lines below a table that are none of its rows
_QUOTED = re.compile(r'"(?:[^"]|"")*"', re.S)
_NUMBER = re.compile(r"[+-]?[\d.,' ]*\d[\d.,' ]*%?")


@dataclass(frozen=True)
class CsvPlan:
    """The rows below the names, as text, with what separates their fields."""

    sep: str
    names: list[str]
    body: str


def csv_plan(data: bytes, said: Mapping[str, Any]) -> CsvPlan | str:
    """How to read a text file, or why the second reader cannot tell. `said`: what the user says of
    it (`told.py`)."""
    if said.get("header") is False or said.get("quote", '"') != '"':
        return "the second reader knows names in the first row, and quotes, only"
    text = (
        _decoded(data, said.get("encoding"))
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\0", "")
    )
    text = text.split("\n", int(said.get("skip") or 0))[-1]
    lines = _logical_lines(text)
    wanted = (str(said["sep"]),) if said.get("sep") else SEPARATORS
    shapes = [shape for sep in wanted if (shape := _shape(lines, sep)) is not None]
    if not shapes:
        return "no separator gives most lines the same number of fields"
    if len(shapes) > 1:
        first = min(start for _, _, start in shapes)  # a decimal comma is in no name
        shapes = [s for s in shapes if s[2] == first]
    if len(shapes) > 1:
        shapes = [s for s in shapes if _steady(lines, s)] or shapes
    if len(shapes) > 1:
        return f"both {shapes[0][0]!r} and {shapes[1][0]!r} separate fields"
    sep, width, start = shapes[0]
    names = _fields(lines[start], sep)
    below = [_fields(line, sep) for line in lines[start + 1 : start + 4] if line.strip()]
    if _numbers(names) and below and _numbers(below[0]):
        return "there is no row of names"
    skipped = start + 1
    wordy = below and not any(c.isdigit() for field in below[0] for c in field)
    if len(below) > 1 and wordy and all(_numbers(row) for row in below[1:]):
        skipped += 1  # units below the names
    body = text.split("\n", sum(line.count("\n") + 1 for line in lines[:skipped]))[-1]
    if body and not body.endswith("\n"):
        body += "\n"
    named = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]
    return CsvPlan(sep, named[:width], body)


def _decoded(data: bytes, encoding: str | None) -> str:
    if encoding:
        return data.decode(encoding, errors="replace").removeprefix("\ufeff")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _logical_lines(text: str) -> list[str]:
    """The first lines of a text; a line break in quotes does not end one."""
    lines: list[str] = []
    held = ""
    for line in text.split("\n"):
        held = f"{held}\n{line}" if held else line
        if held.count('"') % 2 == 0:
            lines.append(held)
            held = ""
            if len(lines) >= _LINES:
                break
    if held:
        lines.append(held)
    return lines


def _count(line: str, sep: str) -> int:
    return _QUOTED.sub("", line).count(sep) + 1


def _shape(lines: list[str], sep: str) -> tuple[str, int, int] | None:
    """(separator, fields a row, line of the names), where nearly all lines below agree."""
    counts = [_count(line, sep) if line.strip() else 0 for line in lines]
    common = Counter(n for n in counts if n > 1).most_common(1)
    if not common:
        return None
    width = common[0][0]
    start = counts.index(width)
    below = [n for n in counts[start:] if n]
    for _ in range(_NOTES):  # below the table
        if below and below[-1] != width:
            below.pop()
    return (sep, width, start) if sum(n == width for n in below) >= 0.9 * len(below) else None


def _steady(lines: list[str], shape: tuple[str, int, int]) -> bool:
    """Whether the names could stand in the first line of the shape: different words, none a number.
    A decimal comma splits rows of numbers evenly too, but not the names above them."""
    sep, width, start = shape
    names = [name.strip() for name in _fields(lines[start], sep)]
    first = all(_count(line, sep) == width for line in lines[start : start + 3] if line.strip())
    return first and not any(_NUMBER.fullmatch(n) for n in names) and len(set(names)) == len(names)


def _fields(line: str, sep: str) -> list[str]:
    marked = _QUOTED.sub(lambda found: found[0].replace(sep, "\1"), line)
    parts = [part.strip().replace("\1", sep) for part in marked.split(sep)]
    return [
        p[1:-1].replace('""', '"') if p[:1] == p[-1:] == '"' and len(p) > 1 else p for p in parts
    ]


def _numbers(fields: list[str]) -> bool:
    """Whether any field is a number."""
    return any(_NUMBER.fullmatch(field) for field in fields)
