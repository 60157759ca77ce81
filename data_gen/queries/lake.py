"""Lakes, that is folders of tables, read once: what `assay tasks lake` and `assay tasks sql` share,
from the folders that are given to the end of a build.

Copies of a table stay in one split, and so do tables that are drawn from one another: other rows of
the same table, or its quantities in another unit.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import warnings
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from assay import console
from assay.files import machine_failed
from assay.fingerprints import TableMarks
from assay.machine import usable_cores
from assay.record import TABLES
from assay.tables.formats import connect, files_below, form_of
from assay.tables.plan import Skipped
from assay.tables.settings import Doubt, TableSettings, read_settings
from assay.task import TaskError, derive_seed, with_relative_files
from assay.workers import MapFunction, WorkerPool, limit_threads
from data_gen.certificate import REFUSED, Input, Tally, counted, say_inputs, shared
from data_gen.describe import (
    About,
    Described,
    allowed,
    names,
    read_describe,
    read_licences,
    unwanted,
)
from data_gen.overlap import Together, copies_of_tables, kin
from data_gen.pipeline import Parts, add_table_options, finish
from data_gen.queries.tables import Links, Refers, Table, describe, links_of, spelled_apart
from data_gen.splits import SPLITS, TRAIN, sides_of, wanted_of

if TYPE_CHECKING:
    from rollouts.krama.index import LakeIndex

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
        from rollouts.krama.index import index_lake  # queries are asked about tables alone

        return index_lake(self.folder)

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


def open_lakes(folders: Sequence[Folder], turn: MapFunction) -> list[Lake]:
    """Every table below each folder; a file is read in whatever process `turn` has free. Raises
    `TaskError` for what is no folder."""
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
        lakes.append(Lake(folder, name, tables, refused=refused, doubts=doubts))
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
    # the processes that read load the reader; the one that divides the tables needs none of it
    from assay.tables.load import load_file

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


Place = tuple[str, str]  # lake, table

_COPY = "a copy of a table that is used already"
_HELD = "a copy of a table that is held out"
_DRAWN = "its rows or quantities are those of a table that is held out"


def add_options(parser: console.Parser, count: int, short: str) -> None:
    """The options of both. `count` is a default; `short` says what is short."""
    carried = "also tables of installed packages (scikit-learn, statsmodels; extra `tables`)"
    parser.add_argument("--carried", action="store_true", help=carried)
    parser.add_argument("--stated-licence", default="", metavar="NAME", help="of the tables given")
    parser.add_argument("--count", type=int, default=count, help="tasks in all (%(default)s)")
    add_table_options(parser, short)


@contextmanager
def opened(
    args: argparse.Namespace, folders: Sequence[Path], bare: bool = False
) -> Generator[tuple[list[Lake], WorkerPool]]:
    """The folders and the carried tables as lakes, and the processes that read them. Raises
    `TaskError` for options that do not go together, and where two have one name."""
    if args.workers < 0 or args.count < 1:
        raise TaskError("--workers: 0 or more; --count: 1 or more")
    described = read_describe(args.describe)
    warnings.filterwarnings("ignore", module="openpyxl")  # of what a workbook also holds
    with WorkerPool(args.workers or usable_cores(), limit_threads) as at:
        # Every table is kept to the end, so many may wait here while one file takes long.
        turn = partial(at.map, ahead=FILES_MOST)
        asked = [Folder(path, described, args.stated_licence, bare) for path in folders]
        if args.carried:
            from data_gen.queries.carried import carried_about, export_carried

            written = export_carried(args.out / "carried", turn)
            asked += [Folder(path, carried_about(path), bare=bare) for path in written]
        lakes = open_lakes(asked, turn)
        names = Counter(lake.name for lake in lakes)
        if twice := [name for name, n in names.items() if n > 1]:
            raise TaskError(f"two folders are called {twice[0]!r}; rename one")
        yield [licensed(lake, read_licences(args.licence)) for lake in lakes], at


def licensed(lake: Lake, wanted: Sequence[str]) -> Lake:
    """The lake with its tables of the licences that are wanted; (): of any."""
    others = {t.about.licence or "unknown": t for t in lake.tables if wanted}
    for licence in others:
        if not allowed(licence, wanted):
            kept = [t for t in lake.tables if (t.about.licence or "unknown") != licence]
            lake = one_sided(lake, kept, unwanted(licence, wanted))
    return lake


def need_tables(lakes: Sequence[Lake], args: argparse.Namespace, need: str = "") -> None:
    """Raises `TaskError`, and says why of each, where no table can be asked about; `need`: what one
    needs."""
    if not any(lake.tables for lake in lakes):
        args.out.mkdir(parents=True, exist_ok=True)
        say_inputs(inputs_of(lakes, {}, Tally(), args), args.out)
        raise TaskError(
            f"no usable table in the folders given; {args.out / REFUSED} says why for each{need}"
        )


def divided(
    lakes: Sequence[Lake],
    held: Sequence[Lake],
    heldout: float | None,
    validation: float | None,
    seed: int,
    linked: bool = False,
) -> dict[str, list[Lake]]:
    """Split → the lakes with their tables of it; all of `held` is held out, else by default a share
    of the others.

    No family of tables is in two splits, and of copies one is used: the first without doubts, or
    else with the fewest. `linked`: tables that can be joined stay together as well.
    """
    every = [*lakes, *held]
    group, together = _groups(every, linked)
    family = {place: together.head(name) for place, name in group.items()}

    def of(lake: Lake, table: Table) -> Place:
        return lake.name, table.key

    def without(lake: Lake, gone: Mapping[Place, str], names: set[str], why: str) -> Lake:
        return one_sided(lake, [t for t in lake.tables if gone[of(lake, t)] not in names], why)

    copies = {group[of(lake, t)] for lake in held for t in lake.tables}
    drawn = {family[of(lake, t)] for lake in held for t in lake.tables}
    lakes = [without(without(k, group, copies, _HELD), family, drawn, _DRAWN) for k in lakes]
    best: dict[str, tuple[int, Place]] = {}
    for lake in (*lakes, *held):
        for table in lake.tables:
            name, own = group[of(lake, table)], (len(table.doubts), of(lake, table))
            if name not in best or own[0] < best[name][0]:
                best[name] = own
    used = {place for _, place in best.values()}

    def firsts(lakes: Sequence[Lake]) -> list[Lake]:
        """Without second copies."""
        return [one_sided(k, [t for t in k.tables if of(k, t) in used], _COPY) for k in lakes]

    lakes, held = firsts(lakes), firsts(held)
    heldout = 0.0 if held and heldout is None else heldout
    names = {family[of(lake, t)] for lake in lakes for t in lake.tables}
    side = sides_of(names, heldout, validation, lambda name: derive_seed(seed, "tables", name))
    found: dict[str, list[Lake]] = {}
    for split in SPLITS:
        own = [
            one_sided(k, [t for t in k.tables if side[family[of(k, t)]] == split], "")
            for k in lakes
        ]
        found[split] = [lake for lake in own if lake.tables or split == TRAIN]
    found["heldout"] += held
    return found


def _groups(lakes: Sequence[Lake], linked: bool) -> tuple[dict[Place, str], Together]:
    """(table → the group of tables whose columns are mostly the same, in whatever order; the groups
    that are drawn from one another)."""
    marks = {f"{lake.name}\0{t.key}": t.marks for lake in lakes for t in lake.tables}
    group: dict[Place, str] = {
        (n.partition("\0")[0], n.partition("\0")[2]): g for n, g in copies_of_tables(marks).items()
    }
    like: dict[str, list[TableMarks]] = {}
    together = Together()
    for lake in lakes:
        for place, table in enumerate(lake.tables):
            own = group[lake.name, table.key]
            like.setdefault(own, []).append(table.kin)
            for link in lake.links[place] if linked else ():
                together.join(own, group[lake.name, lake.tables[link.other].key])
    for name, head in kin(like).items():
        together.join(name, head)
    return group, together


def wanted_tasks(sides: Mapping[str, Sequence[Lake]], args: argparse.Namespace) -> dict[str, int]:
    """Return how many tasks each split gets. A split's share of the tasks is its share of the
    tables. Folders that are held out get a fifth of all tasks."""
    given = bool(getattr(args, "heldout", ()))
    split = {
        f"{lake.name}/{table.key}": name
        for name, lakes in sides.items()
        for lake in lakes
        for table in lake.tables
        if not (given and name == "heldout")
    }
    held = 0 if not given else args.count // 5 if split else args.count
    return wanted_of(args.count - held, split) | ({"heldout": held} if given else {})


def inputs_of(
    lakes: Sequence[Lake], parts: Parts, tally: Tally, args: argparse.Namespace
) -> list[Input]:
    """A line for every table; one that stands on two sides is said once."""
    tasks = Counter(
        (str(task.meta["source"]), str(key))
        for name in SPLITS
        for task in parts.get(name, ())
        for key in task.meta["keys"]
    )
    said: dict[str, Input] = {}
    for lake in lakes:
        own = {key: n for (name, key), n in tasks.items() if name == lake.name}
        for one in lake.inputs(own, tally, args.stated_licence or "unknown"):
            if one.name not in said or one.used:
                said[one.name] = one
    return list(said.values())


def finish_tables(
    builder: str,
    args: argparse.Namespace,
    lakes: Sequence[Lake],
    parts: Parts,
    tally: Tally,
    ok: bool = True,
    **own: Any,
) -> int:
    """Write the files and say what became of every table; returns the exit status. No table is in
    two splits; an obscured one counts as the table that it was made of."""
    sides: dict[str, set[str]] = {name: set() for name in SPLITS}
    for name, tasks in parts.items():
        found = (str(d).partition(" ")[0] for t in tasks for d in t.meta["tables"])
        sides[name.removesuffix("_obscured")] |= set(found)
    return finish(
        builder,
        args.out,
        {n: [with_relative_files(t, args.out) for t in tasks] for n, tasks in parts.items()},
        shared({name: {"tables": tables} for name, tables in sides.items()}),
        inputs_of(lakes, parts, tally, args),
        args.seed,
        tally=tally,
        kind=lambda task: str(task.meta["kind"]),
        hint="give more tables, or set the shares",
        wanted=args.count,
        ok=ok,
        packages=TABLES,
        kinds=counted(parts, lambda task: (str(task.meta["kind"]),)),
        **own,
    )
