# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""`assay tasks dare --tables …`: databases from real tables, validated, at scale.

Tables are handled by several processes, each with a sandbox of its own; the result depends on the
tables and the seed alone, never on the number of processes or who finished first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.dare.analyse import Looked, class_targets, clean, giveaways, number_targets
from data_gen.dare.certificate import Built, certificate, refusals, shortage
from data_gen.dare.importer import tasks_of
from data_gen.dare.layout import (
    KIND,
    json_bytes,
    read_entries,
    read_table,
    write_database,
    write_question_list,
)
from data_gen.dare.sources import (
    Source,
    database_name,
    fingerprints,
    groups,
    same_table,
    sources,
    table_hash,
)
from data_gen.dare.tabular import draft, files_of, metadata_json
from data_gen.dare.validate import finished, prove
from data_gen.dare.wording import if_question, metadata_text, mini_question, mm_question
from rewards.dare.prediction import read_gold, score_table
from rewards.seeds import derive_seed
from rewards.task import Task, TaskError, write_jsonl
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import Pool
from rollouts.workshop import run_now


@dataclass(frozen=True)
class Settings:
    out: Path
    seed: int
    mini: bool
    published: frozenset[str]  # column fingerprints of evaluation databases
    per_table: int = 2


DOMAINS = {
    "finance": r"price|wage|income|salar|bank|loan|credit|stock|econom|insur|expend|cost",
    "health": r"patient|disease|cancer|blood|drug|birth|hospital|medic|health|mortal|weight",
    "education": r"school|student|teacher|score|college|university|exam|grade",
    "environment": r"temperature|species|forest|weather|rain|ozone|pollut|river|soil|plant|bird",
    "business": r"customer|sales|firm|market|retail|employ|product",
    "technology": r"comput|software|internet|phone",
    "automotive": r"\bcar\b|vehicle|traffic|driver|automobile",
}


def domain_of(source: Source) -> str:
    """One word, by what the source says about itself; `other` when nothing does."""
    import re

    text = f"{source.title} {source.about[:1500]}".lower()
    counts = {d: len(re.findall(p, text)) for d, p in DOMAINS.items()}
    best = max(counts, key=lambda d: counts[d])
    return best if counts[best] else "other"


def column_lines(source: Source, looked: Looked) -> dict[str, str]:
    """A line for every column: what the source says, and what the values are."""
    out: dict[str, str] = {}
    for name in looked.frame.columns:
        values = looked.frame[name].dropna()
        if looked.kinds[name] == "numerical":
            fact = f"number from {values.min():g} to {values.max():g}"
        else:
            shown = sorted(map(str, values.unique()))[:6]
            fact = f"one of {len(values.unique())} categories, such as {', '.join(shown)}"
        said = source.columns.get(name, "")
        out[name] = f"{said} ({fact})" if said else fact
    return out


def published(marks: frozenset[str], settings: Settings) -> bool:
    """Whether most of the table's columns are in evaluation databases."""
    return bool(marks) and len(marks & settings.published) >= 0.6 * len(marks)


async def build_table(source: Source, settings: Settings, pool: Pool, room: int) -> Built:
    """Up to `room` class and reg databases of one table; never raises for what a table is."""
    built = Built(source.name)
    seed = derive_seed(settings.seed, source.name)
    try:
        raw = source.load()
        looked = clean(raw, seed)
    except Exception as error:  # a table of a package may be anything
        built.refused.append(f"unreadable: {type(error).__name__}: {error}"[:200])
        return built
    if looked is None:
        built.refused.append("fewer than 4 usable columns or 120 different rows")
        return built
    built.marks = fingerprints(raw)
    if published(built.marks, settings):
        built.refused.append("the table of a published evaluation database")
        return built
    rng = random.Random(seed)
    groups = {"class": class_targets(looked), "reg": number_targets(looked)}
    for names in groups.values():
        rng.shuffle(names)
    turns = [(i, family, t) for family, names in groups.items() for i, t in enumerate(names)]
    plans = [(family, t) for _, family, t in sorted(turns)]  # families in turn
    if not plans:
        built.refused.append("no column can be a target")
    for number, (family, target) in enumerate(plans[: 3 * room]):
        if len(built.rows) >= room:
            break
        own = random.Random(derive_seed(seed, number, family, target))
        try:
            why = await _database(source, looked, family, target, settings, pool, own, built)
        except Exception as error:  # one odd table must not end a build of hundreds; it is counted
            why = f"broke: {type(error).__name__}: {error}"[:200]
        if why:
            built.refused.append(f"{family} {target}: {why}")
    return built


async def _database(
    source: Source,
    looked: Looked,
    family: str,
    target: str,
    settings: Settings,
    pool: Pool,
    rng: random.Random,
    built: Built,
) -> str:
    """Build and write one tabular database; "" or why it was refused."""
    from data_gen.dare.baseline import tabular_baseline

    told = giveaways(looked, target)
    bare = [f for f in looked.frame.columns if f not in told]
    narrowed = Looked(looked.frame[bare], {f: looked.kinds[f] for f in bare})
    made = draft(narrowed, family, [target], rng, settings.mini)
    if made is None:
        return "too few rows or features"
    if not settings.mini and (why := tabular_baseline(made)):
        return why
    try:
        proof, why = await prove(pool, made, rng)
    except TaskError as error:
        return str(error)
    if proof is None:
        return why
    made = finished(proof)
    name = database_name(source, target, family)
    text = metadata_text(source.title, source.about, column_lines(source, narrowed))
    about = {
        "title": source.title,
        "licence": source.licence,
        "source": source.name,
        "table_sha256": table_hash(looked.frame),
        "domain": domain_of(source),
    }
    files = files_of(made, text, rng) | {
        "verify/all_metadata.json": metadata_json(made, name, about),
        "verify/simulated_pred_local.csv": proof.answer.encode(),
        "verify/made_with.json": json_bytes(proof.versions),
    }
    write_database(settings.out, name, files)
    recipe, ext = made.recipe, made.recipe["save_file_type"]
    ask = mini_question if settings.mini else if_question
    built.rows.append(
        {
            "file_path": name,
            "task": KIND[family],
            "question_v1": ask(recipe, rng),
            "question_v2": "" if settings.mini else mm_question(recipe, rng),
            "available_tools": ["python_executor"],
            "needed_files_v1": [f"train_v1.{ext}", f"val_v1.{ext}"]
            + ([] if settings.mini else ["metadata.txt"]),
            "needed_files_v2": [f"train_v2.{ext}", f"val_v2.{ext}", "metadata.txt"],
            "usability_rating": source.usability,
            "lastUpdated": source.updated,
            "domain": about["domain"],
            "licence": source.licence,
            "source": source.name,
            "table_sha256": about["table_sha256"],
        }
    )
    return ""


# --- many tables --------------------------------------------------------------------------------

_work: tuple[list[Source], Settings, Pool] | None = None


def _start(specs: Sequence[str], settings: Settings) -> None:
    global _work
    _work = (list(sources(specs)), settings, Pool(Config(workers=1)))


def _tables(jobs: Sequence[tuple[int, int]]) -> list[Built]:
    """Class and reg databases of one process's share, pairs (table, how many at most)."""
    assert _work is not None
    listed, settings, pool = _work

    async def go() -> list[Built]:
        return [await build_table(listed[i], settings, pool, room) for i, room in jobs]

    return run_now(go())


def _series(jobs: Sequence[tuple[int, int]]) -> list[Built]:
    """Time-series databases of one process's share."""
    from data_gen.dare.series import build_series

    assert _work is not None
    listed, settings, _ = _work
    out: list[Built] = []
    for i, room in jobs:
        built = Built(listed[i].name)
        try:
            build_series(listed[i], settings, built, room)
        except Exception as error:  # as in build_table
            built.refused.append(f"series broke: {type(error).__name__}: {error}"[:200])
        out.append(built)
    return out


def without_copies(built: Built, seen: dict[str, frozenset[str]]) -> Built:
    """The same, or nothing where an earlier source gave a copy of the table; notes it in `seen`."""
    for other, marks in seen.items():
        if built.rows and other != built.source and same_table(built.marks, marks):
            return Built(built.source, [], built.marks, [*built.refused, f"a copy of {other}"])
    if built.rows:
        seen[built.source] = built.marks
    return built


def run_tables(specs: Sequence[str], settings: Settings, workers: int, wanted: int) -> list[Built]:
    """Tables in a seeded order until `wanted` databases are there: first a third of them time
    series, which few tables give, then class and reg, at most `per_table` in all from a table."""
    from tqdm import tqdm

    count = len(list(sources(specs)))
    order = list(range(count))
    random.Random(derive_seed(settings.seed, "tables")).shuffle(order)
    found: list[Built] = []
    seen: dict[str, frozenset[str]] = {}
    context = multiprocessing.get_context("spawn")
    with (
        context.Pool(workers, _start, (list(specs), settings)) as pool,
        tqdm(total=wanted, desc="databases", unit="db") as bar,
    ):

        def through(step: Any, jobs: Sequence[tuple[int, int]], most: int) -> list[Built]:
            """In the order of `jobs`, whoever is done first."""
            made: list[Built] = []
            for part in pool.imap(step, [jobs[i : i + 4] for i in range(0, len(jobs), 4)]):
                made += [without_copies(built, seen) for built in part]
                bar.update(sum(len(b.rows) for b in made[-len(part) :]))
                if sum(len(b.rows) for b in made) >= most:
                    break
            return made

        room = dict.fromkeys(order, settings.per_table)
        if not settings.mini:
            found = through(_series, list(room.items()), wanted // 3)
            for index, built in zip(order, found, strict=False):
                room[index] -= len(built.rows)
        done = sum(len(built.rows) for built in found)
        return found + through(_tables, [(i, r) for i, r in room.items() if r > 0], wanted - done)


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
    tasks = asyncio.run(_tasks(args.out, rows))
    for name in ("train", "heldout"):
        write_jsonl(args.out / f"{name}.jsonl", (t.to_json() for t in tasks if t.split == name))
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


def split_of(group: str) -> str:
    """One table in seven is held out, with everything made from it and from its copies."""
    return "heldout" if int(group[-8:], 16) % 7 == 0 else "train"


async def _tasks(out: Path, rows: Sequence[dict[str, Any]]) -> list[Task]:
    by_name = {str(row["file_path"]): row for row in rows}
    tasks: list[Task] = []
    for entry in read_entries(out):
        row = by_name[entry.name]
        meta = {k: row[k] for k in ("domain", "licence", "source", "table_sha256", "table_group")}
        split = split_of(row["table_group"])
        tasks += await tasks_of(entry, out, split, pool=None, meta=meta)
    for task in tasks:
        gold = read_gold(task.gold)
        if score_table(gold, gold.truth_csv.encode(), trusted=True).outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold does not score 1; nothing was written")
    return tasks
