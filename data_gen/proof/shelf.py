"""The tables of one folder in one DuckDB, each file's table read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_gen.proof.forms import opened
from data_gen.proof.original import NotProvable, Opened, Original, connect


class Shelf:
    """The originals below a folder, whose `tables.yaml` counts. Close it after use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.con: Any = connect()
        self._held: dict[tuple[str, str], Opened | NotProvable] = {}
        self.listed: dict[str, list[Any]] = {}  # distinct values by query (listings.py)
        self.once: set[str] = set()  # files that one library alone reads

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def table(self, path: str, part: str = "") -> Opened:
        """A table of a file. Raises `NotProvable`, each time."""
        key = (path, part)
        if key not in self._held:
            original = Original(self.folder / path, part, self.folder)
            if original.once:
                self.once.add(path)
            try:
                self._held[key] = opened(original, self.con, f"raw{len(self._held)}")
            except NotProvable as error:
                self._held[key] = NotProvable(str(error).replace(original.path.name, path, 1))
        found = self._held[key]
        if isinstance(found, NotProvable):
            raise found
        return found
