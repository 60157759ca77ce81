# pandas ships no types.
# pyright: reportMissingTypeStubs=false
"""`assay tasks dare --tables …`: databases from real tables, validated, at scale."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from data_gen.dare.certificate import certificate, refusals, shortage
from data_gen.dare.database import Settings
from data_gen.dare.importer import tasks_of
from data_gen.dare.layout import json_bytes, read_entries, read_table, write_question_list
from data_gen.dare.proof import need_duckdb
from data_gen.dare.sources import fingerprints, groups
from data_gen.dare.workers import run_tables
from rewards.dare.prediction import read_gold, score_table
from rewards.task import Task, TaskError, write_jsonl


def published_marks(folders: Sequence[Path]) -> frozenset[str]:
    """Column fingerprints of official databases that must never be trained on."""
    marks: set[str] = set()
    for folder in folders:
        for entry in read_entries(folder):
            for path in sorted((entry.folder / "source").iterdir()):
                if path.name.startswith(("train_v2", "val_v2", "train.csv", "val_v1.csv")):
                    marks |= fingerprints(read_table(path))
            tables = [read_table(p) for p in sorted((entry.folder / "source").glob("*_v2.*"))]
            if len(tables) == 2:  # the source table is the two together
                import pandas as pd

                marks |= fingerprints(pd.concat(tables))
    return frozenset(marks)


def build_all(args: argparse.Namespace) -> None:
    """The command: databases, question list, tasks by split, certificate."""
    need_duckdb()
    per_table = args.per_table or (4 if args.style == "mini" else 2)
    settings = Settings(
        args.out, args.seed, args.style == "mini", published_marks(args.exclude), per_table
    )
    args.out.mkdir(parents=True, exist_ok=True)
    workers = args.workers or len(os.sched_getaffinity(0))
    found = run_tables(args.tables, settings, workers, args.databases)
    rows = [row for built in found for row in built.rows][: args.databases]
    write_jsonl(args.out / "refused.jsonl", refusals(found))
    if len(rows) < args.databases:
        print(shortage(found, len(rows), args.databases), file=sys.stderr)
    if not rows:
        raise TaskError(f"no table gave a task; {args.out / 'refused.jsonl'} says why for each")
    named = {str(row["file_path"]) for row in rows}
    for folder in (args.out / "databases").iterdir():  # what was built beyond the number asked
        if folder.name not in named:
            shutil.rmtree(folder)
    marks = {b.source: b.marks for b in found if b.rows}  # a table's marks are the same each time
    together = groups(marks)
    for row in rows:
        row["table_group"] = together[row["source"]]
    reworded = _reworded(args, rows)
    write_question_list(args.out, rows)
    tasks = asyncio.run(_tasks(args.out, rows, args.heldout_share))
    for name in ("train", "heldout"):
        write_jsonl(args.out / f"{name}.jsonl", (t.to_json() for t in tasks if t.split == name))
    if args.heldout_share > 0 and all(task.split == "train" for task in tasks):
        print(
            f"{args.out / 'heldout.jsonl'} is empty: every task is made from one table (or copies "
            "of it); give tables of other data to test on",
            file=sys.stderr,
        )
    report = certificate(found, rows, tasks, settings.seed) | reworded
    (args.out / "certificate.json").write_bytes(json_bytes(report))
    print(
        f"{args.out}: {report['databases']} databases from {report['tables']} tables, "
        f"{report['tasks']} tasks {json.dumps(report['tracks'])}",
        file=sys.stderr,
    )


def _reworded(args: argparse.Namespace, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Let an endpoint reword the questions, if one is given; what became of it."""
    if not args.refine_url:
        return {}
    from data_gen.dare.refine import recipe_in, refine_rows
    from rewards.krama.judge_endpoint import Endpoint

    recipes: dict[str, Any] = {}
    for row in rows:
        about = args.out / "databases" / row["file_path"] / "verify" / "all_metadata.json"
        if (recipe := recipe_in(about.read_bytes())) is not None:
            recipes[row["file_path"]] = recipe
    endpoint = Endpoint(args.refine_url, args.refine_model, os.environ.get("ASSAY_REFINE_KEY", ""))
    report = refine_rows(rows, recipes, endpoint)
    print(f"wordings: {json.dumps(report)}", file=sys.stderr)
    return {"reworded": report}


def held_out(groups: Iterable[str], share: float) -> set[str]:
    """The groups of tables to test on: this share of them, in an order that their hashes give.

    A group is a table with its copies, so nothing made from it stands on both sides. From two
    groups on, at least one is held out and at least one trained on, unless the share is 0.
    """
    ranked = sorted(set(groups), key=lambda group: (group[-8:], group))
    if share <= 0 or len(ranked) < 2:
        return set()
    return set(ranked[: min(len(ranked) - 1, max(1, round(share * len(ranked))))])


async def _tasks(out: Path, rows: Sequence[dict[str, Any]], share: float) -> list[Task]:
    by_name = {str(row["file_path"]): row for row in rows}
    held = held_out((str(row["table_group"]) for row in rows), share)
    tasks: list[Task] = []
    for entry in read_entries(out):
        row = by_name[entry.name]
        meta = {k: row[k] for k in ("domain", "licence", "source", "table_sha256", "table_group")}
        split = "heldout" if row["table_group"] in held else "train"
        tasks += await tasks_of(entry, out, split, pool=None, meta=meta)
    for task in tasks:
        gold = read_gold(task.gold)
        if score_table(gold, gold.truth_csv.encode(), trusted=True).outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold does not score 1; nothing was written")
    return tasks
