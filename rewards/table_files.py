"""Marks of the tables in files, read by the one reader of tables. A file is read once a process,
as long as it stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from assay.table_marks import TableMarks
from assay.task import TaskError

FILES = 40  # of a folder, where no task says which it uses


def tables_of(paths: Iterable[Path]) -> list[TableMarks]:
    """The marks of every table in files that can be read as tables, each once."""
    found: dict[TableMarks, None] = {}
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            continue
        found |= dict.fromkeys(_of_file(str(path), about.st_size, about.st_mtime_ns))
    return [table for table in found if table]


def tables_below(folder: Path, names: Iterable[str]) -> list[TableMarks]:
    """The marks of the tables in these files of a folder, given by their place in it; without
    names those of its first `FILES` files."""
    places = [folder / name for name in names]
    return tables_of(places or list(_first(folder)))


def _first(folder: Path) -> Iterator[Path]:
    from assay.tables.formats import form_of

    files = sorted(path for path in folder.rglob("*") if path.is_file() and form_of(path))
    yield from files[:FILES]


@lru_cache(maxsize=4096)
def _of_file(path: str, size: int, changed: int) -> tuple[TableMarks, ...]:
    del size, changed  # part of the key: another content of the same file is read anew
    from assay.table_marks import marks_of_frame
    from assay.tables.load import check_plan, plan_file
    from assay.tables.plan import Skipped

    place = Path(path)
    found: list[TableMarks] = []
    for reading in plan_file(place):
        if isinstance(reading, Skipped):
            continue
        try:
            found.append(marks_of_frame(check_plan(reading, place.parent)[1]))
        except (TaskError, OSError):
            continue
    return tuple(found)
