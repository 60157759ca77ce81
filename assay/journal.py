"""Journals: files that a command appends rows to, and goes on from when it is started again.

While one is written a file of checksums stands beside it (`.NAME.sums`). A row that a kill cut off,
or that the disk changed since, is left out when the journal is read: its work is done again.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.files import named, replacing
from assay.task import TaskError, json_line, parse_object


class Appender:
    """`with Appender(path) as journal: journal.add(rows)`: rows are whole in the file, or cut off
    at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Appender:
        self._rows = open(self._path, "ab", buffering=0)
        # rows of a journal without sums are taken as they are: so are those before ours
        if not _sums(self._path).is_file() and self._path.stat().st_size:
            _note(self._path, self._path.read_bytes().splitlines(keepends=True))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.close()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, all of them in one write. Raises `OSError` naming the file."""
        lines = [json_line(row) for row in rows]
        with named(self._path):
            _note(self._path, lines)
            left = memoryview(b"".join(lines))
            while left:
                left = left[self._rows.write(left) :]


def read_journal(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a journal. What is cut off or damaged is taken out of the file, and said.

    Raises `TaskError` naming the line for one that is no JSON object, where no sums tell whether
    the disk changed it.
    """
    path = Path(path)
    if not path.is_file():
        return []
    data = path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    sums = _sums(path)
    known = set(sums.read_bytes().split()) if sums.is_file() else None
    good = lines if known is None else [line for line in lines if _sum(line) in known]
    if damaged := len(lines) - len(good):
        print(f"{path}: {damaged} damaged rows are done again", file=sys.stderr)
    if b"".join(good) != data:
        with replacing(path) as out:
            out.writelines(good)
    texts = (line.decode("utf-8", "replace") for line in good)
    return [parse_object(t, f"{path} line {n}") for n, t in enumerate(texts, 1) if t.strip()]


def rewrite_journal(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put these rows in the place of those of the journal, which goes on."""
    lines = [json_line(row) for row in rows]
    if _sums(path).is_file():
        _note(path, lines)
    with replacing(path) as out:
        out.writelines(lines)


def end_journal(path: Path) -> None:
    """Nothing is appended any more: the sums go."""
    _sums(path).unlink(missing_ok=True)


def key_of(row: Mapping[str, Any], path: Path) -> tuple[str, int]:
    """(id of the task, number of the sample) of a row. Raises `TaskError` for one of neither."""
    task, sample = row.get("task_id"), row.get("sample")
    if not isinstance(task, str) or not isinstance(sample, int):
        raise TaskError(
            f"{path}: holds a row without task_id and sample; give another --out, or remove the row"
        )
    return task, sample


def _note(path: Path, lines: Iterable[bytes]) -> None:
    """Sums come before their rows: a row without one is not ours."""
    with named(path), open(_sums(path), "ab", buffering=0) as out:
        out.write(b"".join(_sum(line) + b"\n" for line in lines))


def _sum(line: bytes) -> bytes:
    return b"%08x" % zlib.crc32(line)


def _sums(path: Path) -> Path:
    return path.with_name(f".{path.name}.sums")
