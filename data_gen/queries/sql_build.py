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

from assay import console
from assay.console import Progress
from assay.fingerprints import TableMarks
from assay.task import Task, TaskError
from assay.workers import Named
from data_gen.certificate import Tally, counted
from data_gen.pipeline import Parts
from data_gen.queries.lake import (
    Lake,
    add_options,
    divided,
    finish_tables,
    need_tables,
    opened,
    wanted_tasks,
)
from data_gen.splits import SPLITS
from rewards.sql.family import marks_of

LIKE = "a table like one of another side"
_SPARE = 1.6  # tasks made for one that is wanted, so that kinds can be evened out
GENERATE = Named("data_gen.queries.sql_tasks:generate")
Job = tuple[Lake, str, int, argparse.Namespace]  # a folder's tables of a split, tasks of each


def without_like(made: Sequence[Task], reasons: Counter[str]) -> list[Task]:
    """The tasks without those over a table that is like one of a stricter side, by its columns,
    its rows or its quantities: held out is strictest, then validation. Others are counted."""
    kept: list[Task] = []
    known: list[TableMarks] = []
    for side in reversed(SPLITS):
        mine: dict[str, tuple[TableMarks, ...]] = {}
        for task in made:
            if task.split == side:
                text = str(task.gold["database"])
                mine.setdefault(text, marks_of(text))
        shared = {text for text, tables in mine.items() if any(_like(t, known) for t in tables)}
        own = [task for task in made if task.split == side]
        kept += [task for task in own if task.gold["database"] not in shared]
        reasons[LIKE] += sum(task.gold["database"] in shared for task in own)
        known += [t for text, tables in mine.items() if text not in shared for t in tables]
    reasons += Counter()  # without what never was
    return kept


def _like(table: TableMarks, known: Sequence[TableMarks]) -> bool:
    marks = table.all()
    return any(not marks.isdisjoint(other.all()) and table.like(other) for other in known)


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """`count` tasks, even over kinds and then over tables as far as these allow, in the order
    given."""
    left: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        left.setdefault(str(task.meta["kind"]), []).append(place)
    kinds: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    chosen: list[int] = []
    while len(chosen) < count and left:
        kind = min(left, key=lambda name: (kinds[name], name))
        place = min(left[kind], key=lambda at: (tables[str(tasks[at].meta["database"])], at))
        left[kind].remove(place)
        if not left[kind]:
            del left[kind]
        kinds[kind] += 1
        tables[str(tasks[place].meta["database"])] += 1
        chosen.append(place)
    return [tasks[place] for place in sorted(chosen)]


def options() -> console.Parser:
    parser = console.parser("tasks sql", __doc__)
    tables = "folders of tables: text, workbooks, JSON, Parquet, SQLite files"
    parser.add_argument("--tables", nargs="*", default=[], type=Path, metavar="DIR", help=tables)
    rows = (
        "of a table that are used, from its top; where it has more, the build and the task say so"
    )
    parser.add_argument("--rows", type=int, default=20_000, help=rows)
    add_options(parser, 1000, "one table of at most 8 columns, prompts of at most 350 tokens")
    return parser


def build(args: argparse.Namespace) -> int:
    """Write the folder; returns the exit status. Raises `TaskError`."""
    if args.rows < 15:
        raise TaskError("--rows: 15 or more")
    if not args.tables and not args.carried:
        raise TaskError("no tables: give folders with --tables, or --carried")
    tasks: list[Task] = []
    tally, drafts = Tally(), Counter[str]()
    cut: dict[str, str] = {}  # what is said of tables of which rows are left out
    with opened(args, args.tables, bare=True) as (lakes, crew):
        need_tables(lakes, args)
        shares = args.heldout_share, args.validation_share
        sides = divided(lakes, [], *shares, args.seed, linked=True)
        wanted = wanted_tasks(sides, args)
        jobs: list[Job] = []
        for split, own in sides.items():
            each = -(-round(_SPARE * wanted[split]) // max(1, sum(len(k.tables) for k in own)))
            jobs += [(k, split, max(2, each), args) for k in own if k.tables]
        with Progress("questions", "folders", len(jobs)) as bar:
            for made, found, kinds, said in crew.map(GENERATE, jobs):
                tasks += made
                tally.add(found)
                drafts += kinds
                cut |= said
                bar.add(1)
    kept = without_like(tasks, tally.refused)
    parts: Parts = {n: spread([t for t in kept if t.split == n], wanted[n]) for n in SPLITS}
    lakes = [_told(lake, cut) for own in sides.values() for lake in own]
    status = finish_tables(
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
        drafts=dict(sorted(drafts.items())),
        told_apart_by_a_clause=sum(bool(t.meta["clauses"]) for t in tasks),
        rows_left_out=dict(sorted(cut.items())),
        sqlite=sqlite3.sqlite_version,
    )
    if not tasks:
        raise TaskError(f"{args.out}: no question over these tables passed every check")
    return status


def _told(lake: Lake, cut: Mapping[str, str]) -> Lake:
    """The lake, its tables with what is said of rows that are left out."""
    notes = [(cut[n],) if (n := lake.input_name(t.key)) in cut else () for t in lake.tables]
    tables = [replace(t, notes=(*n, *t.notes)) for t, n in zip(lake.tables, notes, strict=True)]
    return replace(lake, tables=tables)


def main(argv: Sequence[str]) -> int:
    return build(options().parse_args(argv))
