# pandas ships no types.
# pyright: reportMissingTypeStubs=false
"""`assay tasks dare --tables …`: databases from real tables, validated, at scale."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.files import mark_unfinished
from assay.record import TABLES
from assay.task import Task, TaskError
from assay.workers import usable_cores
from data_gen.certificate import CERTIFICATE, shared
from data_gen.dare.database import Built, Settings
from data_gen.dare.describe import check_described, describe
from data_gen.dare.importer import task_of, variants_of
from data_gen.dare.layout import read_entries, read_table, write_question_list
from data_gen.dare.proof import need_duckdb
from data_gen.dare.sources import fingerprints, sources
from data_gen.dare.wishes import FAMILIES, Wishes, read_wishes
from data_gen.dare.wording import short_kinds
from data_gen.dare.workers import run_tables
from data_gen.dare.writer import recipe_in, reword_rows
from data_gen.describe import read_describe
from data_gen.groups import copies_of_tables, kin_of_databases
from data_gen.licences import read_licences
from data_gen.pipeline import finish
from data_gen.rewording import writer_of
from data_gen.splits import SPLITS, sides_of
from data_gen.tally import (
    AGREED,
    ONCE,
    REFUSED,
    Input,
    Refusal,
    Tally,
    say_inputs,
)
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


def build_all(args: argparse.Namespace) -> int:
    """The command: databases, question list, tasks by split, certificate; its exit status."""
    need_duckdb()
    settings = _settings(args)
    with mark_unfinished(args.out):
        for name in (CERTIFICATE, *(f"{split}.jsonl" for split in SPLITS)):
            (args.out / name).unlink(missing_ok=True)
        found, rows = _databases(args, settings)
        reworded = _reworded(args, rows, settings.seed)
        write_question_list(args.out, rows)
    groups = {str(row["table_group"]) for row in rows}
    side = sides_of(groups, args.heldout_share, args.validation_share, lambda group: group[-8:])
    tasks = _tasks(args.out, rows, side)
    splits = {name: [t for t in tasks if t.split == name] for name in SPLITS}
    tally = Tally()
    for refusal in (r for built in found for r in built.refused):
        tally.refuse(refusal)
    once = {built.source for built in found if built.once}
    for row in rows:
        tally.proof[ONCE if row["source"] in once else AGREED] += 1
    print(f"{args.out}: {len(rows)} databases from {len(groups)} tables, {len(tasks)} tasks")
    return finish(
        "dare",
        args.out,
        splits,
        shared({n: {"tables": {t.meta["table_group"] for t in own}} for n, own in splits.items()}),
        inputs_of(found, rows),
        settings.seed,
        tally=tally,
        hint=f"{len(groups)} different table(s): give more, or set the shares",
        packages=TABLES,
        databases=len(rows),
        tables=len(groups),
        sources=len({row["source"] for row in rows}),
        tables_looked_at=len({built.source for built in found}),
        several_targets=sum(len(row["target"]) > 1 for row in rows),
        domains=dict(Counter(str(row["domain"]) for row in rows).most_common()),
        **reworded,
    )


def _databases(
    args: argparse.Namespace, settings: Settings
) -> tuple[list[Built], list[dict[str, Any]]]:
    """(what became of every table, the rows of the question list: at most as many as asked for,
    none of which nearly repeats another). Raises `TaskError` where there is none."""
    workers = args.workers or usable_cores()
    found = run_tables(args.tables, settings, workers, args.databases)
    rows, repeats = question_rows(found, args.out / "databases", workers)
    found += [_left(row, "repeat", "it asks nearly the same as another") for row in repeats]
    found += [_left(r, "enough", "there were enough without it") for r in rows[args.databases :]]
    rows = rows[: args.databases]
    if len(rows) < args.databases:
        why = f"; {len(repeats)} asked nearly the same as another" if repeats else ""
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
    return found, rows


def _left(row: Mapping[str, Any], code: str, why: str) -> Built:
    """What is said of a database that was built and is not used."""
    refused = [Refusal(code, why, str(row["file_path"]))]
    return Built(str(row["source"]), refused=refused, licence=str(row["licence"]))


def inputs_of(found: Sequence[Built], rows: Sequence[Mapping[str, Any]]) -> list[Input]:
    """One input a table: how many tasks of the question list it gave, why there are no more, and
    its doubts."""
    tasks = Counter[str]()
    for row in rows:
        tasks[str(row["source"])] += sum(bool(row[f"question_v{n}"]) for n in (1, 2))
    said: dict[str, list[Built]] = {}
    for built in found:
        said.setdefault(built.source, []).append(built)
    inputs: list[Input] = []
    for name, own in sorted(said.items()):
        why = [str(refusal) for built in own for refusal in built.refused]
        doubts = tuple(dict.fromkeys(doubt for built in own for doubt in built.doubts))
        if not (why or doubts or tasks[name]):
            why = ["no column can be a target"]
        inputs.append(Input(name, tasks[name], tuple(why), own[-1].licence, doubts=doubts))
    return inputs


def _settings(args: argparse.Namespace) -> Settings:
    """What the words of the command ask for, checked against the tables."""
    mini = args.short
    settings = Settings(
        args.out,
        args.seed,
        mini,
        published_marks(args.exclude),
        args.per_table or (4 if mini else 3),
        described=read_describe(args.describe),
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
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the rows of the question list, each with the group of its table and of those drawn from one
    another; those that are left out for asking nearly the same as another)."""
    marks = {b.source: b.marks for b in found if b.rows}  # a table's marks are the same each time
    together = copies_of_tables(marks)
    rows = [row for built in found for row in built.rows]
    for row in rows:
        row["table_group"] = together[row["source"]]
    kin = kin_of_databases(rows, databases, workers)
    for row in rows:
        row["table_group"] = kin[str(row["table_group"])]
    return without_repeats(rows)


NEAR = 0.8  # share of features in common


def nearly_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows of a question list ask the same kind of question for the same targets of one
    table (or of copies), from nearly the same features."""
    if any(one[key] != other[key] for key in ("task", "table_group")):
        return False
    a, b = set(one["features"]), set(other["features"])
    alike = not (a | b) or len(a & b) >= NEAR * len(a | b)
    return alike and set(one["target"]) == set(other["target"])


def without_repeats(
    rows: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(the rows, in order, without those that nearly repeat an earlier one; these)."""
    kept: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    for row in rows:
        (gone if any(nearly_same(row, other) for other in kept) else kept).append(row)
    return kept, gone


def _reworded(args: argparse.Namespace, rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """Let an endpoint reword the questions, if one is given; what became of it."""
    writer = writer_of(args, args.out)
    if writer is None:
        return {}
    recipes: dict[str, Any] = {}
    for row in rows:
        about = args.out / "databases" / row["file_path"] / "verify" / "all_metadata.json"
        if (recipe := recipe_in(about.read_bytes())) is not None:
            recipes[row["file_path"]] = recipe
    report = reword_rows(rows, recipes, writer, seed)
    said = {key: report[key] for key in ("asked", "reworded", "refused")}
    print(f"wordings: {json.dumps(said)}", file=sys.stderr)
    return {"reworded": report}


def _tasks(out: Path, rows: Sequence[dict[str, Any]], splits: Mapping[str, str]) -> list[Task]:
    by_name = {str(row["file_path"]): row for row in rows}
    tasks: list[Task] = []
    for entry in read_entries(out):
        row = by_name[entry.name]
        meta = {k: row[k] for k in ("domain", "licence", "source", "table_sha256", "table_group")}
        meta["kind"] = row["task"]
        split = splits[row["table_group"]]
        for variant in variants_of(entry):
            tasks.append(task_of(entry, variant, out, split, meta=meta))
    for task in tasks:
        gold = read_gold(task.gold)
        if score_table(gold, gold.truth_csv.encode(), trusted=True).outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold does not score 1; nothing was written")
    return tasks
