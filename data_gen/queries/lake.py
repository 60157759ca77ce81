"""A lake: a folder of tables, read once."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random

from assay.files import machine_failed
from assay.tables.formats import connect, files_below, form_of
from assay.tables.load import load_file
from assay.tables.plan import Skipped
from assay.tables.settings import Doubt, TableSettings, read_settings
from assay.task import TaskError
from assay.workers import MapFunction
from data_gen.describe import About, Described, names
from data_gen.queries.lake_checks import Prover
from data_gen.queries.pipeline import Frames
from data_gen.queries.tables import Links, Refers, Table, describe, links_of, spelled_apart
from data_gen.tally import Input, Tally
from rollouts.krama.index import LakeIndex, index_lake

FILES_MOST = 150  # of one lake; of more, a choice is asked about
# a workbook takes about a hundred times as long to read as text of its size
_BYTES = {"excel": 2_000_000, "json": 5_000_000, "lines": 5_000_000, "html": 5_000_000}
_BYTES_ELSE = 30_000_000
TABLES_MOST = 12  # of one file


_UNTRIED = "no question was drawn from it: other tables gave enough"


@dataclass
class Lake:
    """A folder of tables, read once. `refused` holds a reason for each table that is not used, and
    `doubts` those that refused it."""

    folder: Path
    name: str
    tables: list[Table]
    frames: Frames
    seen: set[str] = field(default_factory=set[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    doubts: dict[str, tuple[Doubt, ...]] = field(default_factory=dict[str, tuple[Doubt, ...]])
    alone: bool = False  # no question joins its tables

    @cached_property
    def links(self) -> Links:
        """Which tables can be joined."""
        return [() for _ in self.tables] if self.alone else links_of(self.tables)

    @cached_property
    def apart(self) -> dict[str, list[str]]:
        """What is said of keys that match but for their spelling."""
        return {} if self.alone else spelled_apart(self.tables)

    def input_name(self, key: str) -> str:
        """What the lines of a build call a table."""
        return f"{self.name}/{key}"

    @cached_property
    def index(self) -> LakeIndex:
        """What agents are told of its files."""
        return index_lake(self.folder)

    @cached_property
    def prover(self) -> Prover:
        """The second way to compute over the files."""
        return Prover(self.folder)

    def inputs(
        self, tasks: Mapping[str, int], tally: Tally, licence: str = "unknown"
    ) -> list[Input]:
        """Make one `Input` for each table. `tasks`: how many tasks used a table, by its key;
        `tally`: what became of the drafts."""

        def unused(table: Table) -> tuple[str, ...]:
            if tasks.get(table.key):
                return ()
            return (tally.why_none(self.input_name(table.key)) or _UNTRIED,)

        used = [
            Input(
                self.input_name(t.key),
                tasks.get(t.key, 0),
                (*unused(t), *t.notes, *self.apart.get(t.key, ())),
                t.about.licence or licence,
                doubts=t.doubts,
            )
            for t in self.tables
            if t.key not in self.refused
        ]
        return used + [
            Input(self.input_name(key), 0, (why,), licence, doubts=self.doubts.get(key, ()))
            for key, why in self.refused.items()
        ]


@dataclass(frozen=True)
class Folder:
    """A folder to open: what is said of its tables, and their licence."""

    path: Path
    described: Described = field(default_factory=dict[str, About])
    licence: str = ""
    bare: bool = False  # also small tables, and tables without measures


def open_lake(folder: Path, described: Described | None = None, licence: str = "") -> Lake:
    """Reads every table below a folder. Raises `TaskError` for what is no folder."""
    return open_lakes([Folder(folder, described or {}, licence)], map)[0]


def open_lakes(folders: Sequence[Folder], turn: MapFunction) -> list[Lake]:
    """`open_lake` of each; a file is read in whatever process `turn` has free. Raises `TaskError`
    for what is no folder."""
    chosen = [_files(folder.path) for folder in folders]
    rules = [read_settings(folder.path) for folder in folders]
    jobs = [
        (path, one.path, rule, about(_name(path, one.path), one.described, one.licence), one.bare)
        for one, rule, (paths, _) in zip(folders, rules, chosen, strict=True)
        for path in paths
    ]
    found = iter(turn(_tables, jobs))
    lakes: list[Lake] = []
    for one, (paths, refused) in zip(folders, chosen, strict=True):
        tables: list[Table] = []
        doubts: dict[str, tuple[Doubt, ...]] = {}
        for key, made, doubted in (row for _ in paths for row in next(found)):
            if isinstance(made, Table):
                tables.append(made)
            else:
                refused[key], doubts[key] = made, doubted
        folder = one.path
        name = folder.parent.name if folder.name == "input" else folder.name
        lakes.append(Lake(folder, name, tables, Frames(folder), refused=refused, doubts=doubts))
    return lakes


def _files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The files of tables that are opened, and why others are not: every file has its line."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; give folders of tables")
    paths, others = files_below(folder)
    refused = {one.path: one.why for one in others}
    if len(paths) <= FILES_MOST:
        return paths, refused
    chosen = set(Random(0).sample(paths, FILES_MOST))  # by their names alone
    why = (
        f"the folder has {len(paths)} files; {FILES_MOST} of them are asked about, and not this one"
    )
    return sorted(chosen), refused | {_name(p, folder): why for p in paths if p not in chosen}


def about(path: str, described: Described, licence: str = "") -> About:
    """What is said of the table at a path, by the first entry that fits, in words that can stand in
    a question."""
    found = next((one for n, one in described.items() if names(n, path, path)), About())
    columns = {name: _line(words) for name, words in found.columns.items()}
    return About(_line(found.title), _line(found.licence) or licence, found.about, columns)


def _line(text: str) -> str:
    """On one line, without what breaks quoting."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:120]


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


_Found = tuple[str, Table | str, tuple[Doubt, ...]]  # (key, table or why it is refused, doubts)


def _tables(job: tuple[Path, Path, TableSettings, About, bool]) -> list[_Found]:
    """All that is in a file. A file never ends a build, whatever it holds."""
    path, folder = job[:2]
    try:
        return _read(*job)
    except Exception as error:
        if machine_failed(error):
            raise
        said = " ".join(str(error).split())[:160]
        return [(_name(path, folder), f"cannot be read ({type(error).__name__}: {said})", ())]


def _read(path: Path, folder: Path, rules: TableSettings, said: About, bare: bool) -> list[_Found]:
    name = _name(path, folder)
    most = _BYTES.get(form_of(path), _BYTES_ELSE)
    if (size := path.stat().st_size) > most:
        limit = f"{most // 1_000_000} MB are asked about; store it as csv or parquet, or a part"
        return [(name, f"{size / 1e6:.0f} MB: files of this form up to {limit}", ())]
    found: list[_Found] = []
    refers = _references(path) if form_of(path) == "sqlite" else {}
    for one in load_file(path, folder, rules, TABLES_MOST + 1):
        part = one.part if isinstance(one, Skipped) else one[0].part
        if len(found) == TABLES_MOST:
            why = f"the file has more than {TABLES_MOST} tables; from this one on they are left out"
            found.append((f"{name} [{part}]", why, ()))
        elif isinstance(one, Skipped):
            found.append((f"{one.path} [{part}]" if part else one.path, one.why, one.doubts))
        else:
            reading, frame = one
            holes = tuple(c for c, words in reading.missing.items() if any(map(str.strip, words)))
            made = describe(reading, frame, said, holes, bare)
            if isinstance(made, Table):
                notes, keys = (*reading.notes, *made.notes), refers.get(part, ())
                made = replace(made, notes=notes, doubts=reading.doubts, refers=keys)
            found.append((reading.name, made, reading.doubts))
    return found


def _references(path: Path) -> dict[str, tuple[Refers, ...]]:
    """Table → the foreign keys of one column that a SQLite file declares for it."""
    found: dict[str, tuple[Refers, ...]] = {}
    with contextlib.closing(connect(path)) as db:
        names = [str(r[0]) for r in db.execute("select name from sqlite_master where type='table'")]
        for table in names:
            rows = db.execute("select * from pragma_foreign_key_list(?)", [table]).fetchall()
            several = Counter(row[0] for row in rows)
            keys = [
                Refers(str(row[3]), str(row[2]), str(row[4] or _primary(db, str(row[2]))))
                for row in rows
                if several[row[0]] == 1
            ]
            found[table] = tuple(reversed(keys))  # SQLite lists the last one first
    return found


def _primary(db: sqlite3.Connection, table: str) -> str:
    """The column that a table's primary key is; "" where it has several, or none."""
    rows = db.execute("select name from pragma_table_info(?) where pk", [table]).fetchall()
    return str(rows[0][0]) if len(rows) == 1 else ""


def one_sided(lake: Lake, kept: list[Table], why: str) -> Lake:
    """The lake with some of its tables; of the others it says why (empty: nothing is said), and
    what is in doubt."""
    gone = [t for t in lake.tables if why and t not in kept]
    return replace(
        lake,
        tables=kept,
        seen=set(),
        refused=lake.refused | {t.key: why for t in gone},
        doubts=lake.doubts | {t.key: t.doubts for t in gone},
    )
