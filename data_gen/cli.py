"""`assay tasks`: build tasks and splits, and write them with the certificate of their split."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from assay.console import near_miss
from assay.family import has_family
from assay.task import TaskError
from assay.workers import Named

# name: (module:function of argv, what it does, an example). A new builder is one entry.
BUILDERS: dict[str, tuple[str, str, str]] = {
    "demo": (
        "data_gen.demo.cli:demo",
        "short refinement tasks from real prose, for a small model",
        "assay tasks demo --out tasks --seed 1 difficulty=easy",
    ),
    "cdr": (
        "data_gen.cdr.cli:main",
        "CDR-Bench tracks from your documents, by the benchmark's construction",
        "assay tasks cdr --config configs/cdr_train.yaml --corpus docs.jsonl --out tasks",
    ),
    "semantic": (
        "data_gen.cdr.semantic:main",
        "CDR-Bench's semantic extension: PII, hallucination, judged edits",
        "assay tasks semantic --help",
    ),
    "order": (
        "data_gen.demo.cli:order",
        "small order groups: one filter and one mapper in both orders",
        "assay tasks order --out tasks --seed 1 heldout=30",
    ),
    "dare": (
        "data_gen.dare.build:main",
        "modelling tasks over tables: your own, or official databases",
        "assay tasks dare --tables my_tables/ --out tasks",
    ),
    "krama": (
        "data_gen.krama.cli:main",
        "KramaBench's workloads and lakes, for evaluation",
        "assay tasks krama --workload legal.json --lakes lakes/ --out tasks",
    ),
    "lake": (
        "data_gen.queries.lake_build:main",
        "questions over your own folders of tables, with executed gold",
        "assay tasks lake --lakes my_lake/ --heldout other_lake/ --out tasks",
    ),
    "sql": (
        "data_gen.queries.sql_build:main",
        "text-to-SQL questions over your own tables and SQLite files, proved twice",
        "assay tasks sql --tables my_tables/ --out tasks",
    ),
    "harbor": (
        "data_gen.harbor:main",
        "Harbor task directories, checked in the jail",
        "assay tasks harbor directories/ --out tasks",
    ),
    "check": (
        "data_gen.check:main",
        "what a set of tasks shares with another, exactly and nearly",
        "assay tasks check train.jsonl --against heldout.jsonl",
    ),
}


def usage() -> str:
    """Every builder in a line, with an example."""
    lines = [
        f"  {name:<9} {what}\n  {'':<9} {example}" for name, (_, what, example) in BUILDERS.items()
    ]
    return (
        "usage: assay tasks NAME --out DIR [--seed S] [key=value …]\n\n"
        "Build or import tasks and their splits, with a certificate of what the splits share.\n\n"
        + "\n".join(lines)
        + "\n  NAME      a family of your own that has build(seed, **settings)\n"
        + f"  {'':<9} assay tasks NAME --family my_family.py --out tasks --seed 1 [key=value …]\n\n"
        "assay tasks NAME --help shows a builder's options and settings.\n"
    )


def _builder(name: str, words: Sequence[str]) -> Callable[[Sequence[str]], int]:
    """The command of a builder, or of a family that brings its own."""
    own = any(word.partition("=")[0] == "--family" for word in words)
    if name in BUILDERS and (name == "check" or not own):
        return Named(BUILDERS[name][0])
    if not own and not has_family(name):
        raise TaskError(
            f"no builder and no family {name!r}{near_miss(name, [*BUILDERS])}; "
            "`assay tasks --help` lists them; a family of your own needs --family FILE.py"
        )
    return partial(Named("data_gen.own:main"), name)


def main(argv: list[str]) -> int:
    """Exit status of a builder; errors that a user can mend are raised."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(), end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    return _builder(argv[0], argv[1:])(argv[1:])
