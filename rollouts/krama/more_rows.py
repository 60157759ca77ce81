"""More rows of a lake's files than its index keeps, for studies of how many rows help.

The release shows the first 100 rows of every CSV (paper, Tables 6 and 12). An index keeps
`ROWS_KEPT` of a file, some from its start and some from further on; more are read here, all from
its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rollouts.krama.index import LakeIndex, groups
from rollouts.krama.scan import READ_MOST, ROWS_KEPT, FileNote, rows_of


def more_rows(lake: Path, index: LakeIndex, count: int) -> dict[str, list[str]]:
    """The first `count` rows of the first file of every group, by file; {} where the index keeps
    so many. A file of another kind than text, or of which nothing is found, is left out: what its
    index holds is shown. Raises OSError for a file that is gone."""
    if count <= ROWS_KEPT:
        return {}
    found: dict[str, list[str]] = {}
    for group in groups(index):
        rows = list(islice(_rows(lake / group.names[0], group.note), count))
        if rows:
            found[group.names[0]] = rows
    return found


def _rows(path: Path, note: FileNote) -> Iterator[str]:
    """Rows as an index writes them."""
    if note.kind not in ("table", "records", "text"):
        return
    with open(path, "rb") as file:
        text = file.read(READ_MOST).decode(note.encoding or "utf-8", "replace")
    text = text.removeprefix("\ufeff")
    if note.kind == "table":
        yield from _table(text, note)
    elif note.kind == "records":
        yield from _records(text, path)
    else:
        yield from (line[:200] for line in text.split("\n"))


def _table(text: str, note: FileNote) -> Iterator[str]:
    mark = note.delimiter or " "
    rows = rows_of(text, note.delimiter)
    for row in islice(rows, max(note.header, 0), None):
        if row:
            yield mark.join(cell[:60] for cell in row[:60])


def _records(text: str, path: Path) -> Iterator[str]:
    lines = path.suffix.lower() == ".jsonl"
    try:
        whole: Any = (
            (json.loads(line) for line in text.splitlines() if line.strip())
            if lines
            else json.loads(text)
        )
        for row in cast("Iterator[Any]", whole):
            yield json.dumps(row, ensure_ascii=False)[:400]
    except (ValueError, RecursionError):  # a file that was cut, or has changed
        return
