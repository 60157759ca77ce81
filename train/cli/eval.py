"""`assay eval`: score a model on tasks of any families."""

from __future__ import annotations

import argparse
from pathlib import Path

from rewards import console
from rewards.chosen import add_chosen
from rollouts.engines.server.opening import add_engine
from train.evaluation.benchmarks import BENCHMARKS

DESCRIPTION = """Score a model on tasks of any families, mixed, and write results.json, rows.jsonl
and report.html. A killed evaluation goes on when the same command is run again."""


def parser() -> argparse.ArgumentParser:
    """Every option, with its default in the help."""
    made = console.parser("eval", DESCRIPTION)
    names = ", ".join(f"{name}:DIR" for name in BENCHMARKS)
    made.add_argument(
        "settings_words",
        nargs="*",
        metavar="reward.FAMILY.SETTING=VALUE",
        help="how answers are scored; before the options",
    )
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
    made.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="FILE.py[:NAME]",
        help="a family of your own; may be repeated",
    )
    made.add_argument("--name", default="", help="the model's name in tables and files")
    made.add_argument(
        "--json", action="store_true", help="print meta, tables and baselines as JSON"
    )
    _sampling(made)
    _engine(made)
    _tools(made)
    for benchmark in BENCHMARKS.values():
        benchmark.options(made)
    return made


def _sampling(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("what is asked")
    add_chosen(group)
    group.add_argument(
        "--limit", type=int, default=0, metavar="N", help="an even draw of N tasks over tracks"
    )
    group.add_argument(
        "--part", default="", metavar="I/N", help="every N-th task, from the I-th on (0 to N-1)"
    )
    group.add_argument(
        "--gather",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="put the finished parts of these folders together, and ask nothing",
    )
    group.add_argument("--seed", type=int, default=0, help="of every draw (%(default)s)")
    group.add_argument(
        "--samples",
        "--repeats",
        type=int,
        default=1,
        metavar="K",
        help="answers a task, for avg@k and pass@k (%(default)s)",
    )
    group.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (%(default)s)")
    group.add_argument("--top-p", type=float, default=1.0, help="(%(default)s)")
    group.add_argument("--top-k", type=int, default=0, help="0: off (%(default)s)")
    group.add_argument(
        "--max-new-tokens", type=int, default=0, metavar="N", help="of one message; 0: by task"
    )
    group.add_argument("--reading", default="", help="how a scorer reads answers, where it has two")
    group.add_argument(
        "--include-trained",
        action="store_true",
        help="also rows that the model's record (trained_on.bin) says it was trained on",
    )
    group.add_argument(
        "--no-baselines", action="store_true", help="leave gold and cheats out of the tables"
    )


def _engine(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("who answers")
    add_engine(group)
    group.add_argument(
        "--endpoint-model", default="default", help="its name at the endpoint (%(default)s)"
    )
    group.add_argument(
        "--key-env",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="environment variable with the endpoint's key (%(default)s)",
    )
    group.add_argument(
        "--request", default="{}", metavar="JSON", help="more fields of a request; null drops one"
    )
    group.add_argument(
        "--workers", type=int, default=16, help="requests side by side (%(default)s)"
    )
    group.add_argument(
        "--patience", type=float, default=600.0, metavar="S", help="seconds to retry a request for"
    )
    group.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds one try may take"
    )
    group.add_argument(
        "--price", default="", metavar="IN,OUT", help="dollars a million tokens read and written"
    )
    group.add_argument(
        "--tokenizer", help="folder of the tokenizer of a solver:NAME, or of a URL with --engine"
    )
    group.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="(auto)")
    group.add_argument(
        "--dtype", default="auto", choices=("auto", "bfloat16", "float32"), help="(auto)"
    )
    group.add_argument("--threads", type=int, default=0, help="0: all cores")
    group.add_argument("--chunk", type=int, default=0, help="episodes side by side; 0: by task")
    text = (
        "answers that a folder's model decodes side by side; a GPU has room for more (%(default)s)"
    )
    group.add_argument("--slots", type=int, default=64, help=text)


def _tools(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("episodes with tools")
    group.add_argument(
        "--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own"
    )
    group.add_argument("--turns", type=int, default=0, help="messages of a model; 0: by task")
    group.add_argument(
        "--run-s", type=float, default=0.0, help="seconds of one tool run; 0: by task"
    )
    group.add_argument("--max-length", type=int, default=0, help="tokens of an episode; 0: any")
    group.add_argument("--calls", default="hermes", help="how calls are spelled (%(default)s)")
    group.add_argument("--brief", action="store_true", help="a short description of the tool")
    group.add_argument(
        "--snippet-tokens", type=int, default=8000, help="of a lake in the prompt (%(default)s)"
    )
    group.add_argument(
        "--snippet-rows",
        type=int,
        default=5,
        metavar="N",
        help="of each group of files there, as far as these tokens allow (%(default)s)",
    )


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some answers have no outcome. Errors are raised."""
    args = parser().parse_args(argv)
    from train.evaluation.program import run  # imports much: only where it is needed

    return run(args)
