"""`assay tasks sql`: verified text-to-SQL questions over tables and SQLite files.

Writes `train.jsonl`, `validation.jsonl` and `heldout.jsonl`, `refused.jsonl` and
`certificate.json`. Every task carries its database. Gold is computed twice, by SQLite and by pandas
over the original file; a question that another query fits as well is told from it, or refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay import console
from assay.tables.settings import count
from assay.task import Task, TaskError
from data_gen.tally import REFUSED, Input, say_inputs

if TYPE_CHECKING:
    from data_gen.krama.lakes.lake import Lake
    from data_gen.sql.generate import Asked, Tally

PARTS = ("train", "validation", "heldout")
Parts = dict[str, list[Task]]
_SPARE = 1.6  # tasks made for one that is wanted, so that kinds can be evened out


def options() -> console.Parser:
    parser = console.parser("tasks sql", __doc__)
    tables = "folders of tables: text, workbooks, JSON, Parquet, SQLite files"
    parser.add_argument("--tables", nargs="*", default=[], type=Path, metavar="DIR", help=tables)
    carried = "also tables of installed packages (scikit-learn, statsmodels; extra `tables`)"
    parser.add_argument("--carried", action="store_true", help=carried)
    words = "YAML with titles, licences and words for columns, by file (docs/krama.md)"
    parser.add_argument("--describe", type=Path, metavar="FILE", help=words)
    parser.add_argument("--licence", default="", help="licence of the tables in the folders")
    held = "share of the tables that is held out"
    parser.add_argument("--heldout-share", type=float, default=0.2, metavar="S", help=held)
    valid = "share of the tables that validate"
    parser.add_argument("--validation-share", type=float, default=0.1, metavar="S", help=valid)
    rows = (
        "of a table that are used, from its top; where it has more, the build and the task say so"
    )
    parser.add_argument("--rows", type=int, default=20_000, help=rows)
    short = "one table of at most 8 columns, prompts of at most 350 tokens"
    parser.add_argument("--short", action="store_true", help=short)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--count", type=int, default=1000, help="tasks in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: as many as cores")
    return parser


def _checked(args: argparse.Namespace) -> None:
    for name in ("heldout_share", "validation_share"):
        if not 0 <= getattr(args, name) < 1:
            flag = name.replace("_", "-")
            raise TaskError(f"--{flag} {getattr(args, name)}: give a share from 0 to below 1")
    if args.heldout_share + args.validation_share > 1:
        raise TaskError("--heldout-share and --validation-share: together at most 1")
    if args.workers < 0 or args.count < 1 or args.rows < 15:
        raise TaskError("--workers: 0 or more; --count: 1 or more; --rows: 15 or more")
    if not args.tables and not args.carried:
        raise TaskError("no tables: give folders with --tables, or --carried")


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder; returns the certificate. Raises `TaskError`."""
    from assay.console import Progress
    from assay.workers import WorkerPool, limit_threads, usable_cores
    from data_gen.krama.lakes.about import Described, read_about
    from data_gen.krama.lakes.carried import carried_about, export_carried
    from data_gen.krama.lakes.lake import Folder, open_lakes
    from data_gen.sql.generate import Tally, generate
    from data_gen.sql.sides import parted, sides_of

    described: Described = read_about(args.describe) if args.describe else {}
    made: list[Task] = []
    tally = Tally()
    with WorkerPool(args.workers or usable_cores(), limit_threads) as crew:
        folders = [Folder(path, described, args.licence, True) for path in args.tables]
        if args.carried:
            written = export_carried(args.out / "carried", crew.map)
            folders += [Folder(path, carried_about(path), bare=True) for path in written]
        lakes = open_lakes(folders, crew.map)
        _named_once(lakes, args)
        sides = sides_of(lakes, args.heldout_share, args.validation_share, args.seed)
        jobs = _jobs(lakes, sides, args)
        with Progress("questions", "folders", len(jobs)) as bar:
            for tasks, found in crew.map(generate, jobs):
                made += tasks
                tally.add(found)
                bar.add(1)
    parts = _parts(parted(made, tally.reasons), args)
    inputs = _inputs(lakes, parts, tally, args)
    proof = certificate(parts, tally, args.seed)
    proof |= {"doubts": count(d for one in inputs for d in one.doubts)}
    _write(args.out, parts, proof)
    _say(inputs, args)
    if not made:
        raise TaskError(f"{args.out}: no question over these tables passed every check")
    return proof


def _named_once(lakes: Sequence[Lake], args: argparse.Namespace) -> None:
    from data_gen.sql.generate import Tally

    names = Counter(lake.name for lake in lakes)
    if twice := [name for name, n in names.items() if n > 1]:
        raise TaskError(f"two folders are called {twice[0]!r}; rename one")
    if not any(lake.tables for lake in lakes):
        _say(_inputs(lakes, {}, Tally(), args), args)
        raise TaskError(
            f"no usable table in the folders given; {args.out / REFUSED} says why for each"
        )


def _wanted(args: argparse.Namespace) -> dict[str, int]:
    """How many tasks of each side: as many as its share of the tables."""
    held = round(args.count * args.heldout_share)
    valid = round(args.count * args.validation_share)
    return {"train": args.count - held - valid, "validation": valid, "heldout": held}


def _jobs(
    lakes: Sequence[Lake], sides: dict[str, dict[str, str]], args: argparse.Namespace
) -> list[Asked]:
    from data_gen.sql.generate import Asked

    counts = Counter(side for found in sides.values() for side in found.values())
    most = {
        side: max(2, -(-round(_SPARE * n) // max(1, counts[side])))
        for side, n in _wanted(args).items()
    }
    return [
        Asked(
            folder=lake.folder,
            name=lake.name,
            tables=tuple(lake.tables),
            links=lake.links,
            sides=sides[lake.name],
            most=most,
            rows=args.rows,
            seed=args.seed,
            short=args.short,
            licence=args.licence,
        )
        for lake in lakes
        if lake.tables
    ]


def _parts(made: Sequence[Task], args: argparse.Namespace) -> Parts:
    from data_gen.sql.generate import spread

    wanted = _wanted(args)
    return {side: spread([t for t in made if t.split == side], wanted[side]) for side in PARTS}


def certificate(parts: Parts, tally: Tally, seed: int) -> dict[str, Any]:
    """Counts, reasons for refusal with examples, and the overlap of tables between the splits."""
    import sqlite3

    from assay.record import TABLES, installed

    tables = {n: {str(d) for t in tasks for d in t.meta["tables"]} for n, tasks in parts.items()}
    pairs = [(one, two) for one in PARTS for two in PARTS if one < two]
    overlap = sum(len(tables[one] & tables[two]) for one, two in pairs)
    return {
        "ok": overlap == 0,
        "seed": seed,
        "versions": {**installed(TABLES), "sqlite": sqlite3.sqlite_version},
        "tables_in_two_splits": overlap,
        "tasks": {n: len(tasks) for n, tasks in parts.items()},
        "tables": {n: len({str(t.meta["database"]) for t in ts}) for n, ts in parts.items()},
        "kinds": _counted(parts, lambda t: str(t.meta["kind"])),
        "tables_a_question": _counted(parts, lambda t: str(t.meta["tables_asked"])),
        "licences": _counted(parts, lambda t: ", ".join(t.meta["licences"])),
        "prompt_characters": {n: _longest(tasks) for n, tasks in parts.items()},
        "drafts": dict(sorted(tally.kinds.items())),
        "told_apart_by_a_clause": tally.clauses,
        "rows_left_out": dict(sorted(tally.cut.items())),
        "proof": dict(tally.proof.most_common()),
        "refused": dict(tally.reasons.most_common()),
        "examples": tally.examples,
    }


def _counted(parts: Parts, name: Callable[[Task], str]) -> dict[str, dict[str, int]]:
    return {n: dict(Counter(name(t) for t in tasks).most_common()) for n, tasks in parts.items()}


def _longest(tasks: Sequence[Task]) -> int:
    return max((len(t.prompt[0]["content"]) for t in tasks), default=0)


def _write(out: Path, parts: Parts, proof: dict[str, Any]) -> None:
    """The files, all or none. Every task's gold is scored once more as it is written."""
    from assay.files import atomic_write_set, write_text
    from assay.task import write_jsonl

    with atomic_write_set(out, [f"{name}.jsonl" for name in PARTS]) as new:
        for name, tasks in parts.items():
            write_jsonl(new / f"{name}.jsonl", (replace(t, split=name).to_json() for t in tasks))
        write_text(new / "certificate.json", json.dumps(proof, indent=2) + "\n")


def _inputs(
    lakes: Sequence[Lake], parts: Parts, tally: Tally, args: argparse.Namespace
) -> list[Input]:
    """A line for every table."""
    from data_gen.krama.lakes.lake import why_none

    counts: Counter[tuple[str, str]] = Counter()
    for tasks in parts.values():
        counts.update((str(t.meta["source"]), str(k)) for t in tasks for k in t.meta["keys"])
    said: dict[str, Input] = {}
    for lake in lakes:
        own = {key: n for (name, key), n in counts.items() if name == lake.name}
        for one in lake.inputs(own, args.licence or "unknown"):
            why = tally.unused.get(one.name.removeprefix(f"{lake.name}/"))
            why = why or why_none(tally.tables.get(one.name, Counter()))
            one = replace(one, why=(why, *one.why[1:])) if why and not one.used else one
            cut = tally.cut.get(one.name)
            said[one.name] = replace(one, why=(cut, *one.why)) if cut else one
    return list(said.values())


def _say(inputs: Sequence[Input], args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    say_inputs(inputs, args.out)


def main(argv: Sequence[str]) -> int:
    args = options().parse_args(argv)
    _checked(args)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="openpyxl")  # of what a workbook also holds
        proof = build(args)
    for name in PARTS:
        kinds = ", ".join(f"{n} {k}" for k, n in proof["kinds"][name].items())
        tables = proof["tables"][name]
        count = proof["tasks"][name]
        print(f"{args.out / name}.jsonl: {count} tasks over {tables} tables ({kinds or 'none'})")
    proofs = ", ".join(f"{n} {why}" for why, n in proof["proof"].items())
    print(f"gold computed twice: {proofs or 'nothing'}")
    refused = ", ".join(f"{n} {why}" for why, n in proof["refused"].items())
    print(f"{args.out / 'certificate.json'}: refused {refused or 'nothing'}")
    if sum(proof["tasks"].values()) < args.count:
        print("assay tasks: fewer tasks than asked for: the tables gave no more", file=sys.stderr)
    return console.DONE if proof["ok"] else console.UNUSABLE
