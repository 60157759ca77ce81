# pandas ships no types.
# pyright: reportMissingTypeStubs=false
"""`assay tasks dare --tables …`: databases from real tables, validated, at scale."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.files import mark_unfinished
from assay.task import Task, TaskError, write_jsonl
from assay.workers import usable_cores
from data_gen.dare.alike import without_repeats
from data_gen.dare.certificate import certificate, inputs_of
from data_gen.dare.database import Built, Settings
from data_gen.dare.describe import check_described, describe, read_describe
from data_gen.dare.importer import task_of, variants_of
from data_gen.dare.kin import joined
from data_gen.dare.layout import json_bytes, read_entries, read_table, write_question_list
from data_gen.dare.licences import read_licences
from data_gen.dare.proof import need_duckdb
from data_gen.dare.proof import told as told_proof
from data_gen.dare.shares import default_validation, empty_splits, splits_of
from data_gen.dare.short import short_kinds
from data_gen.dare.sources import fingerprints, sources
from data_gen.dare.sources import groups as groups_of
from data_gen.dare.wishes import FAMILIES, Wishes, read_wishes
from data_gen.dare.workers import run_tables
from data_gen.tally import REFUSED, say_inputs
from rewards.dare.score import read_gold, score_table


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
    settings = _settings(args)
    with mark_unfinished(args.out):
        _build(args, settings)


def _build(args: argparse.Namespace, settings: Settings) -> None:
    workers = args.workers or usable_cores()
    found = run_tables(args.tables, settings, workers, args.databases)
    rows, repeats = question_rows(found, args.out / "databases", workers)
    rows = rows[: args.databases]
    if len(rows) < args.databases:
        why = f"; {repeats} asked nearly the same as another" if repeats else ""
        print(
            f"{len(rows)} of {args.databases} databases: no table gave more{why}", file=sys.stderr
        )
    if not rows:
        say_inputs(inputs_of(found, rows), args.out)
        raise TaskError(f"no table gave a task; {args.out / REFUSED} says why for each")
    named = {str(row["file_path"]) for row in rows}
    for folder in (args.out / "databases").iterdir():  # what was built beyond the number asked
        if folder.name not in named:
            shutil.rmtree(folder)
    reworded = _reworded(args, rows, settings.seed)
    write_question_list(args.out, rows)
    groups = {str(row["table_group"]) for row in rows}
    share = args.validation_share
    share = default_validation(len(groups)) if share is None else share
    splits = splits_of(groups, args.heldout_share, share)
    tasks = asyncio.run(_tasks(args.out, rows, splits))
    for name in ("train", "validation", "heldout"):
        write_jsonl(args.out / f"{name}.jsonl", (t.to_json() for t in tasks if t.split == name))
    chosen = args.validation_share is not None
    for sentence in empty_splits(len(groups), args.heldout_share, share, chosen):
        print(f"{args.out}: {sentence}", file=sys.stderr)
    report = certificate(found, rows, tasks, settings.seed, repeats) | reworded
    (args.out / "certificate.json").write_bytes(json_bytes(report))
    say_inputs(inputs_of(found, rows), args.out)
    print(told_proof(report["gold_proved_twice"]), file=sys.stderr)
    print(
        f"{args.out}: {report['databases']} databases from {report['tables']} tables, "
        f"{report['tasks']} tasks {json.dumps(report['tracks'])}",
        file=sys.stderr,
    )


def _settings(args: argparse.Namespace) -> Settings:
    """What the words of the command ask for, checked against the tables."""
    mini = args.style == "mini"
    settings = Settings(
        args.out,
        args.seed,
        mini,
        published_marks(args.exclude),
        args.per_table or (4 if mini else 3),
        described=read_describe(args.describe) if args.describe else {},
        licences=read_licences(args.licence),
        wishes=Wishes(kinds=short_kinds(FAMILIES, "") if mini else FAMILIES),
    )
    asked = (args.target, args.features, args.time)
    if not (any(asked) or args.task_types or args.describe):
        return settings
    listed = list(sources(args.tables))
    check_described(listed, settings.described)
    listed = describe(listed, settings.described)
    wishes = read_wishes(*asked, args.task_types, listed)
    kinds = short_kinds(wishes.kinds, args.task_types) if mini else wishes.kinds
    return replace(settings, wishes=replace(wishes, kinds=kinds))


def question_rows(
    found: Sequence[Built], databases: Path, workers: int
) -> tuple[list[dict[str, Any]], int]:
    """(the rows of the question list, each with the group of its table and of those drawn from one
    another; how many were left out for asking nearly the same as another)."""
    marks = {b.source: b.marks for b in found if b.rows}  # a table's marks are the same each time
    together = groups_of(marks)
    rows = [row for built in found for row in built.rows]
    for row in rows:
        row["table_group"] = together[row["source"]]
    kin = joined(rows, databases, workers)
    for row in rows:
        row["table_group"] = kin[str(row["table_group"])]
    return without_repeats(rows)


def _reworded(args: argparse.Namespace, rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """Let an endpoint reword the questions, if one is given; what became of it."""
    if not args.writer:
        return {}
    from data_gen.dare.refine import recipe_in
    from data_gen.dare.writer import reword_rows

    recipes: dict[str, Any] = {}
    for row in rows:
        about = args.out / "databases" / row["file_path"] / "verify" / "all_metadata.json"
        if (recipe := recipe_in(about.read_bytes())) is not None:
            recipes[row["file_path"]] = recipe
    report = reword_rows(rows, recipes, args.out, (args.writer, args.writer_model), seed)
    said = {key: report[key] for key in ("asked", "reworded", "refused")}
    print(f"wordings: {json.dumps(said)}", file=sys.stderr)
    return {"reworded": report}


async def _tasks(
    out: Path, rows: Sequence[dict[str, Any]], splits: Mapping[str, str]
) -> list[Task]:
    by_name = {str(row["file_path"]): row for row in rows}
    tasks: list[Task] = []
    for entry in read_entries(out):
        row = by_name[entry.name]
        meta = {k: row[k] for k in ("domain", "licence", "source", "table_sha256", "table_group")}
        split = splits[row["table_group"]]
        for variant in variants_of(entry):
            tasks.append(await task_of(entry, variant, out, split, pool=None, meta=meta))
    for task in tasks:
        gold = read_gold(task.gold)
        if score_table(gold, gold.truth_csv.encode(), trusted=True).outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold does not score 1; nothing was written")
    return tasks
