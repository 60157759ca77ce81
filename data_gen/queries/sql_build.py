"""`assay tasks sql`: verified text-to-SQL questions over tables and SQLite files.

Writes `train.jsonl`, `validation.jsonl` and `heldout.jsonl`, `refused.jsonl` and
`certificate.json`. Every task carries its database. Gold is computed twice, by SQLite and by pandas
over the original file; a question that another query fits as well is told from it, or refused.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay import console
from assay.console import Progress
from assay.task import Task, TaskError
from data_gen.certificate import counted
from data_gen.queries.lake import Lake
from data_gen.queries.sql_generate import Asked, SqlTally, generate, spread
from data_gen.queries.sql_sides import parted, sides_of
from data_gen.queries.table_folders import (
    SPLITS,
    Parts,
    add_options,
    finish,
    need_tables,
    opened,
)

_SPARE = 1.6  # tasks made for one that is wanted, so that kinds can be evened out


def options() -> console.Parser:
    parser = console.parser("tasks sql", __doc__)
    tables = "folders of tables: text, workbooks, JSON, Parquet, SQLite files"
    parser.add_argument("--tables", nargs="*", default=[], type=Path, metavar="DIR", help=tables)
    rows = (
        "of a table that are used, from its top; where it has more, the build and the task say so"
    )
    parser.add_argument("--rows", type=int, default=20_000, help=rows)
    add_options(parser, 1000, 0.2, "one table of at most 8 columns, prompts of at most 350 tokens")
    return parser


def build(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder; returns the certificate. Raises `TaskError`."""
    if args.rows < 15:
        raise TaskError("--rows: 15 or more")
    if not args.tables and not args.carried:
        raise TaskError("no tables: give folders with --tables, or --carried")
    made: list[Task] = []
    tally = SqlTally()
    with opened(args, args.tables, bare=True) as (lakes, crew):
        need_tables(lakes, args)
        sides = sides_of(lakes, args.heldout_share, args.validation_share, args.seed)
        jobs = _jobs(lakes, sides, args)
        with Progress("questions", "folders", len(jobs)) as bar:
            for tasks, found in crew.map(generate, jobs):
                made += tasks
                tally.add(found)
                bar.add(1)
    kept = parted(made, tally.refused)
    wanted = _wanted(args)
    parts: Parts = {n: spread([t for t in kept if t.split == n], wanted[n]) for n in SPLITS}
    for lake in lakes:
        lake.tables = [
            replace(t, notes=(tally.cut[name], *t.notes)) if name in tally.cut else t
            for t in lake.tables
            for name in (lake.input_name(t.key),)
        ]
    proof = finish(
        "sql",
        args,
        lakes,
        parts,
        tally,
        tables={n: len({str(t.meta["database"]) for t in ts}) for n, ts in parts.items()},
        tables_a_question=counted(parts, lambda t: (str(t.meta["tables_asked"]),)),
        prompt_characters={
            n: max((len(t.prompt[0]["content"]) for t in tasks), default=0)
            for n, tasks in parts.items()
        },
        drafts=dict(sorted(tally.kinds.items())),
        told_apart_by_a_clause=tally.clauses,
        rows_left_out=dict(sorted(tally.cut.items())),
        sqlite=sqlite3.sqlite_version,
    )
    if not made:
        raise TaskError(f"{args.out}: no question over these tables passed every check")
    return proof


def _wanted(args: argparse.Namespace) -> dict[str, int]:
    """How many tasks of each side: as many as its share of the tables."""
    held = round(args.count * args.heldout_share)
    valid = round(args.count * args.validation_share)
    return {"train": args.count - held - valid, "validation": valid, "heldout": held}


def _jobs(
    lakes: Sequence[Lake], sides: Mapping[str, dict[str, str]], args: argparse.Namespace
) -> list[Asked]:
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
            licence=args.stated_licence,
        )
        for lake in lakes
        if lake.tables
    ]


def main(argv: Sequence[str]) -> int:
    proof = build(options().parse_args(argv))
    return console.DONE if proof["ok"] else console.UNUSABLE
