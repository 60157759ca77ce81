"""`assay eval`: score a model on tasks of any families."""

from __future__ import annotations

from pathlib import Path

from assay import console
from configs.answers import EvaluationConfig
from train.cli import model_options
from train.evaluation.benchmarks import FAMILIES

DESCRIPTION = """Score a model on tasks of any families, mixed, and write results.json, rows.jsonl
and report.html. A killed evaluation goes on when the same command is run again."""


def parser() -> console.Parser:
    """Every option and setting, with its default in the help."""
    made = model_options.parser("eval", DESCRIPTION, EvaluationConfig)
    add = made.add_argument
    names = ", ".join(f"{name}:DIR" for name in FAMILIES)
    add(
        "--model",
        required=True,
        help="gold, empty, cheat:NAME, solver:NAME, a model or adapter folder, a hub name, an "
        "OpenAI-compatible URL (up to /v1), or canned:FILE.jsonl",
    )
    add(
        "--tasks",
        required=True,
        nargs="+",
        action="extend",
        metavar="TASKS",
        help=f"files, folders, {names}; several and mixed",
    )
    add("--out", required=True, type=Path, help="folder for results and report")
    console.add_family(made)
    add("--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own")
    add("--name", default="", help="the model's name in tables and files")
    add("--json", action="store_true", help="print meta, tables and baselines as JSON")
    console.add_seed(made)
    console.add_filter(made)
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
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some answers have no outcome. Errors are raised."""
    args = parser().parse_intermixed_args(argv)
    from train.evaluation.run import run  # imports much: only where it is needed

    return run(args)
