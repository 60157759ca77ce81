"""A lake: a folder of tables, read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from assay.tables.overrules import Overrules, overrules
from assay.tables.plan import Unread
from assay.tables.read import form_of, settled
from data_gen.inputs import Input
from data_gen.krama.lakes.about import About, Described, about
from data_gen.krama.lakes.describe import describe
from data_gen.krama.lakes.files import Arrays, load_arrays
from data_gen.krama.lakes.links import Links, links_of
from data_gen.krama.lakes.pipeline import Frames
from data_gen.krama.lakes.proof import Prover
from data_gen.krama.lakes.records import NoRecords, may_hold, records_in
from data_gen.krama.lakes.tables import Table
from rewards.processes import Turn
from rewards.task import TaskError
from rollouts.krama.index import LakeIndex, index_lake

FILES_MOST = 150  # of one lake; of more, a choice is asked about
# a workbook takes about a hundred times as long to read as text of its size
_BYTES = {"excel": 2_000_000, "json": 5_000_000, "lines": 5_000_000, "html": 5_000_000}
_BYTES_ELSE = 30_000_000
_TABLES = 12  # of one file


_FAILED = "no question over it passed every check; certificate.json counts them"
_UNTRIED = "no question was drawn from it before there were enough, or its columns fit none"


@dataclass
class Lake:
    """A folder of tables, read once. `refused` holds a reason for each table that is not used."""

    folder: Path
    name: str
    tables: list[Table]
    frames: Frames
    seen: set[str] = field(default_factory=set[str])
    tried: set[str] = field(default_factory=set[str])  # tables that some question was asked of
    refused: dict[str, str] = field(default_factory=dict[str, str])
    alone: bool = False  # no question joins its tables

    @cached_property
    def links(self) -> Links:
        """Which tables can be joined."""
        return [() for _ in self.tables] if self.alone else links_of(self.tables)

    @cached_property
    def index(self) -> LakeIndex:
        """What agents are told of its files."""
        return index_lake(self.folder)

    @cached_property
    def prover(self) -> Prover:
        """The second way to compute over the files."""
        return Prover(self.folder)

    def inputs(self, tasks: dict[str, int], licence: str = "unknown") -> list[Input]:
        """A line for each table: `tasks` counts by its key."""
        used = [
            Input(
                f"{self.name}/{t.key}",
                tasks.get(t.key, 0),
                (*t.notes, *self._unused(t, tasks)),
                t.about.licence or licence,
            )
            for t in self.tables
        ]
        return used + [
            Input(f"{self.name}/{key}", 0, (why,), licence) for key, why in self.refused.items()
        ]

    def _unused(self, table: Table, tasks: dict[str, int]) -> tuple[str, ...]:
        """Why no task asks of the table, if none does."""
        if tasks.get(table.key):
            return ()
        return (_FAILED if table.key in self.tried else _UNTRIED,)


@dataclass(frozen=True)
class Folder:
    """A folder to open: what is said of its tables, and their licence."""

    path: Path
    described: Described = field(default_factory=dict[str, About])
    licence: str = ""


def open_lake(folder: Path, described: Described | None = None, licence: str = "") -> Lake:
    """Reads every table below a folder. Raises `TaskError` for what is no folder."""
    return open_lakes([Folder(folder, described or {}, licence)], map)[0]


def open_lakes(folders: Sequence[Folder], turn: Turn) -> list[Lake]:
    """`open_lake` of each; a file is read in whatever process `turn` has free. Raises `TaskError`
    for what is no folder."""
    chosen = [_files(folder.path) for folder in folders]
    rules = [overrules(folder.path) for folder in folders]
    jobs = [
        (path, one.path, rule, about(_name(path, one.path), one.described, one.licence))
        for one, rule, (paths, _) in zip(folders, rules, chosen, strict=True)
        for path in paths
    ]
    found = iter(turn(_tables, jobs))
    lakes: list[Lake] = []
    for one, (paths, refused) in zip(folders, chosen, strict=True):
        tables: list[Table] = []
        for key, made in (pair for _ in paths for pair in next(found)):
            if isinstance(made, Table):
                tables.append(made)
            else:
                refused[key] = made
        folder = one.path
        name = folder.parent.name if folder.name == "input" else folder.name
        lakes.append(Lake(folder, name, tables, Frames(folder), refused=refused))
    return lakes


def _files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files of tables that are opened, and why others are not."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; give folders of tables")
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and _readable(p))
    if len(paths) <= FILES_MOST:
        return paths, {}
    chosen = set(Random(0).sample(paths, FILES_MOST))  # by their names alone
    why = f"the lake has more than {FILES_MOST} files; this one is not asked about"
    return sorted(chosen), {_name(p, folder): why for p in paths if p not in chosen}


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _readable(path: Path) -> bool:
    return bool(form_of(path)) or _arrays(path) or may_hold(path)


def _arrays(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _tables(job: tuple[Path, Path, Overrules, About]) -> list[tuple[str, Table | str]]:
    """(key, table or why it is refused) for all that is in a file."""
    path, folder, rules, said = job
    name = _name(path, folder)
    most = _BYTES.get(form_of(path), _BYTES_ELSE)
    if path.stat().st_size > most:
        return [(name, f"larger than {most // 1_000_000} MB; a lake's questions need less")]
    if _arrays(path):
        return [(name, _archive(path, name, said))]
    if may_hold(path):
        return [(name, _in_words(path, name, said))]
    found: list[tuple[str, Table | str]] = []
    for one in settled(path, folder, rules, _TABLES):
        if isinstance(one, Unread):
            key = f"{one.path} [{one.part}]" if one.part else one.path
            found.append((key, one.why))
            continue
        reading, frame = one
        holes = tuple(c for c, words in reading.missing.items() if any(w.strip() for w in words))
        made = describe(reading, frame, said, holes)
        if isinstance(made, Table):
            made = replace(made, notes=(*reading.notes, *made.notes))
        found.append((reading.name, made))
    return found


def _archive(path: Path, name: str, said: About) -> Table | str:
    try:
        frame: Any = load_arrays(path)
    except Exception as error:  # whatever NumPy and pandas say of a file they cannot read
        return f"no arrays of one length ({type(error).__name__})"
    return describe(Arrays(name, tuple(map(str, frame.columns))), frame, said)


def _in_words(path: Path, name: str, said: About) -> Table | str:
    try:
        reading, frame = records_in(path, name)
    except (NoRecords, ImportError) as error:
        return f"no rows in words that can be read: {error}"
    return describe(reading, frame, said)


def one_sided(lake: Lake, kept: list[Table], why: str) -> Lake:
    """The lake with some of its tables; of the others it says why."""
    gone = {t.key: why for t in lake.tables if t not in kept}
    return replace(lake, tables=kept, seen=set(), tried=set(), refused=lake.refused | gone)
