"""What `assay tasks lake` and `assay tasks sql` have in common: folders of tables, which table is
in which split, and how a build over them ends.

Copies of a table stay together, and so do tables that are drawn from one another: other rows of the
same table, or its quantities in another unit.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay import console
from assay.fingerprints import TableMarks
from assay.record import TABLES
from assay.seeds import derive_seed
from assay.task import TaskError
from assay.workers import WorkerPool, limit_threads, usable_cores
from data_gen.certificate import counted, shared
from data_gen.describe import read_describe
from data_gen.groups import Together, copies_of_tables, kin
from data_gen.krama.importer import with_relative_files
from data_gen.licences import allowed, read_licences, unwanted
from data_gen.pipeline import Parts, add_table_options, finish
from data_gen.queries.carried import carried_about, export_carried
from data_gen.queries.lake import Folder, Lake, one_sided, open_lakes
from data_gen.queries.tables import Table
from data_gen.splits import SPLITS, TRAIN, sides_of, wanted_of
from data_gen.tally import REFUSED, Input, Tally, say_inputs

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
        asked = [Folder(path, described, args.stated_licence, bare) for path in folders]
        if args.carried:
            written = export_carried(args.out / "carried", at.map)
            asked += [Folder(path, carried_about(path), bare=bare) for path in written]
        lakes = open_lakes(asked, at.map)
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
    """How many tasks of each split: as large a share as it has of the tables; of folders that are
    held out, a fifth."""
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
        (str(task.meta.get("source") or task.meta["domain"]), str(key))
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
