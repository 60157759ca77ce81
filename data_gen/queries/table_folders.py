"""What `assay tasks lake` and `assay tasks sql` have in common: folders of tables, and how a build
over them ends."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay import console
from assay.record import TABLES
from assay.task import Task, TaskError
from assay.workers import WorkerPool, limit_threads, usable_cores
from data_gen.certificate import CERTIFICATE, certificate, counted, shared, write_set
from data_gen.describe import read_describe
from data_gen.krama.folders import with_relative_files
from data_gen.licences import add_described, allowed, read_licences, unwanted
from data_gen.queries.carried import carried_about, export_carried
from data_gen.queries.lake import Folder, Lake, one_sided, open_lakes
from data_gen.splits import share_of
from data_gen.tally import REFUSED, Input, Tally, say_empty, say_inputs

SPLITS = ("train", "validation", "heldout")
Parts = dict[str, list[Task]]


def add_options(parser: console.Parser, count: int, heldout: float, short: str) -> None:
    """The options of both. `count` and `heldout` are defaults; `short` says what is short."""
    carried = "also tables of installed packages (scikit-learn, statsmodels; extra `tables`)"
    parser.add_argument("--carried", action="store_true", help=carried)
    add_described(parser)
    parser.add_argument("--stated-licence", default="", metavar="NAME", help="of the tables given")
    held = "share of the tables that is held out (%(default)s)"
    parser.add_argument("--heldout-share", type=share_of, default=heldout, metavar="S", help=held)
    valid = "share of the tables that validates (%(default)s)"
    parser.add_argument("--validation-share", type=share_of, default=0.1, metavar="S", help=valid)
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument("--out", required=True, type=Path, help="folder to write into")
    parser.add_argument("--count", type=int, default=count, help="tasks in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: as many as cores")


@contextmanager
def opened(
    args: argparse.Namespace, folders: Sequence[Path], bare: bool = False
) -> Generator[tuple[list[Lake], WorkerPool]]:
    """The folders and the carried tables as lakes, and the processes that read them. Raises
    `TaskError` for options that do not go together, and where two have one name."""
    if args.workers < 0 or args.count < 1:
        raise TaskError("--workers: 0 or more; --count: 1 or more")
    if args.heldout_share + args.validation_share > 1:
        raise TaskError("--heldout-share and --validation-share: together at most 1")
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


def need_tables(lakes: Sequence[Lake], args: argparse.Namespace, wanted: str = "") -> None:
    """Raises `TaskError`, and says why of each, where no table can be asked about."""
    if not any(lake.tables for lake in lakes):
        _say(inputs_of(lakes, {}, Tally(), args), args.out)
        raise TaskError(
            f"no usable table in the folders given; {args.out / REFUSED} says why for each{wanted}"
        )


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


def finish(
    builder: str,
    args: argparse.Namespace,
    lakes: Sequence[Lake],
    parts: Parts,
    tally: Tally,
    ok: bool = True,
    **own: Any,
) -> dict[str, Any]:
    """Write the files, say what became of every table, and return the certificate. No table is in
    two splits; an obscured one counts as the table that it was made of."""
    sides: dict[str, set[str]] = {name: set() for name in SPLITS}
    for name, tasks in parts.items():
        found = (str(d).partition(" ")[0] for t in tasks for d in t.meta["tables"])
        sides[name.removesuffix("_obscured")] |= set(found)
    inputs = inputs_of(lakes, parts, tally, args)
    proof = certificate(
        builder,
        parts,
        shared({name: {"tables": tables} for name, tables in sides.items()}),
        args.seed,
        ok=ok,
        packages=TABLES,
        tally=tally,
        doubts=(d for one in inputs for d in one.doubts),
        kinds=counted(parts, lambda task: (str(task.meta["kind"]),)),
        **own,
    )
    placed = {n: [with_relative_files(t, args.out) for t in tasks] for n, tasks in parts.items()}
    proof = write_set(args.out, placed, proof)
    _say(inputs, args.out)
    say_empty(proof["tasks"], args.out, "give more tables, or set the shares")
    for name, count in proof["tasks"].items():
        kinds = ", ".join(f"{n} {k}" for k, n in proof[builder]["kinds"][name].items())
        print(f"{args.out / name}.jsonl: {count} tasks ({kinds or 'none'})")
    print(f"gold computed twice: {_listed(proof['proof'])}")
    print(f"{args.out / CERTIFICATE}: refused {_listed(proof['refused'])}")
    if not proof["ok"]:
        print("assay tasks: see `shared` in the certificate; do not use these", file=sys.stderr)
    if sum(proof["tasks"][name] for name in SPLITS) < args.count:
        print("assay tasks: fewer tasks than asked for: the tables gave no more", file=sys.stderr)
    return proof


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {why}" for why, n in counts.items()) or "nothing"


def _say(inputs: Iterable[Input], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    say_inputs(list(inputs), out)
