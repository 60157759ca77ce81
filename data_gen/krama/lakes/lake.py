"""A lake: a folder of tables, read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from data_gen.krama.lakes.pipeline import Frames
from data_gen.krama.lakes.tables import Table, read_tables
from rewards.task import TaskError

FILES_MOST = 150  # of one lake; of more, a choice is asked about


@dataclass
class Lake:
    """A folder of tables, read once."""

    folder: Path
    name: str
    tables: list[Table]
    frames: Frames
    seen: set[str] = field(default_factory=set[str])
    refused: tuple[str, ...] = ()  # tables whose numbers could be read in two ways, and why


def open_lake(folder: Path, banned: frozenset[str] = frozenset()) -> Lake:
    """Raises `TaskError` for a folder without usable tables."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; give folders of tables")
    name = folder.parent.name if folder.name == "input" else folder.name
    refused: list[str] = []
    tables = [t for t in read_tables(folder, FILES_MOST, refused) if t.digest not in banned]
    unique = list({t.digest: t for t in tables}.values())
    return Lake(folder, name, unique, Frames(folder), refused=tuple(refused))
