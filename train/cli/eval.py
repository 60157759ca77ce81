"""`assay eval`: score a model on tasks of any families."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay import console
from assay.console import add_filter
from train.cli.model_options import add_episodes, add_model, add_sampling, add_words
from train.evaluation.benchmarks import BENCHMARKS

DESCRIPTION = """Score a model on tasks of any families, mixed, and write results.json, rows.jsonl
and report.html. A killed evaluation goes on when the same command is run again."""


def parser() -> argparse.ArgumentParser:
    """Every option, with its default in the help."""
    made = console.parser("eval", DESCRIPTION)
    names = ", ".join(f"{name}:DIR" for name in BENCHMARKS)
    add_words(made)
    made.add_argument(
        "--model",
        required=True,
        help="gold, empty, cheat:NAME, solver:NAME, a model or adapter folder, a hub name, an "
        "OpenAI-compatible URL (up to /v1), or canned:FILE.jsonl",
    )
    made.add_argument(
        "--tasks",
        "--tracks",
        required=True,
        nargs="+",
        action="extend",
        metavar="TASKS",
        help=f"files, folders, {names}; several and mixed",
    )
    made.add_argument("--out", required=True, type=Path, help="folder for results and report")
    console.add_family(made)
    made.add_argument("--name", default="", help="the model's name in tables and files")
    made.add_argument(
        "--json", action="store_true", help="print meta, tables and baselines as JSON"
    )
    group = made.add_argument_group("what is asked")
    add_sampling(group, "default: 1", temperature=0.0)
    _asked(group)
    add_model(made.add_argument_group("who answers"))
    add_episodes(made.add_argument_group("episodes with tools"))
    for benchmark in BENCHMARKS.values():
        benchmark.options(made)
    return made


def _asked(group: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    add = group.add_argument
    add_filter(group)
    add("--limit", type=int, default=0, metavar="N", help="an even draw of N tasks over tracks")
    add("--part", default="", metavar="I/N", help="every N-th task, from the I-th on (0 to N-1)")
    add(
        "--gather",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="put the finished parts of these folders together, and ask nothing",
    )
    add("--reading", default="", help="how a scorer reads answers, where it has two")
    add(
        "--include-trained",
        action="store_true",
        help="also rows that the model's record (trained_on.bin) says it was trained on",
    )
    add(
        "--strict",
        action="store_true",
        help="refuse a benchmark's copy that lacks parts, rather than ask what is there",
    )
    add("--no-baselines", action="store_true", help="leave gold and cheats out of the tables")


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some answers have no outcome. Errors are raised."""
    args = parser().parse_intermixed_args(argv)
    from train.evaluation.program import run  # imports much: only where it is needed

    return run(args)
