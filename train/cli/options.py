"""The command line of a run: flags and `key=value` end as the same settings."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.console import (
    STATUSES,
    Parser,
    add_config,
    add_family,
    add_filter,
    add_json,
    parser,
    task_filter,
)
from configs.loader import dotted_docs, settings_help
from train.run.log import read_metrics

# a flag and the setting that it stands for
FLAGS: dict[str, tuple[str, str]] = {
    "--tasks": ("data", "what to learn from"),
    "--model": ("model.path", "Hugging Face folder or hub name to start from"),
    "--out": ("out", "the run's folder; the same command resumes"),
    "--seed": ("seed", "of everything random"),
    "--validation": ("validation", "tasks to evaluate on while training; keeps the best model"),
    "--env": ("env", "an environment of your own for tasks with tools, FILE.py:NAME"),
}


@dataclass(frozen=True)
class Given:
    """What was asked for: a file of settings, settings beside it, families."""

    config: str | None
    settings: list[str]
    families: list[str]
    backend: str
    dry_run: bool
    json: bool = False
    minutes: float | None = None


def parser_of(
    command: str,
    what: str,
    config: type,
    backends: Sequence[str] = ("embedded",),
    argv: Sequence[str] = (),
) -> Parser:
    """A parser for a run whose settings are the dataclass `config`; its help lists them all, those
    of many devices where `argv` asks for such a backend."""
    docs = dotted_docs(config)
    made = parser(command, what, settings="any setting of the list below")
    made.epilog = f"{settings_help(config)}\n\n{STATUSES}"
    if len(backends) > 1 and backends[1] not in argv:
        more = f"  cluster.*: of --backend {backends[1]}, whose --help lists them"
        made.epilog = f"{settings_help(config, 'cluster.')}\n{more}\n\n{STATUSES}"
    add_config(made)
    add_json(made)
    for flag, (name, text) in FLAGS.items():
        if name in docs:
            same = f"{text}; the same as {name}=X (default: {docs[name][0] or 'none'})"
            made.add_argument(flag, metavar="X", dest=name, help=same)
    if "licences" in docs:
        add_filter(made, "rows of the data")
    if "families" in docs:
        add_family(made)
    if len(backends) > 1:
        made.add_argument("--backend", choices=backends, default=backends[0], help="what trains")
        made.add_argument(
            "--dry-run", action="store_true", help="print settings and estimates, and end"
        )
    return made


def given(parser: argparse.ArgumentParser, argv: Sequence[str]) -> Given:
    """The parsed command line; flags and settings may stand in any order."""
    args = vars(parser.parse_intermixed_args(list(argv)))
    if args.get("json") and args.get("backend", "embedded") != "embedded":
        parser.error("--json: only with --backend embedded; others print what their processes say")
    flags = [f"{name}={args[name]}" for name, _ in FLAGS.values() if args.get(name) is not None]
    if args.get("track") or args.get("licence"):
        asked = task_filter(argparse.Namespace(**args))
        lists = {"tracks": asked.tracks, "licences": asked.licences}
        flags += [f"{name}={json.dumps(names)}" for name, names in lists.items() if names]
    return Given(
        args["config"],
        [*args["settings"], *flags],
        args.get("family", []),
        args.get("backend", "embedded"),
        args.get("dry_run", False),
        args.get("json", False),
        args.get("minutes"),
    )


@contextlib.contextmanager
def machine_output(asked: bool) -> Generator[Callable[[str | Path], None]]:
    """`--json` of a run: what is printed goes to standard error, and the summary of the folder that
    the given function was told of to standard output."""
    if not asked:
        yield lambda folder: None
        return
    done: list[Path] = []
    with contextlib.redirect_stdout(sys.stderr):
        yield lambda folder: done.append(Path(folder))
    for folder in done:
        print(json.dumps(summary(folder), ensure_ascii=False))


def summary(folder: Path) -> dict[str, Any]:
    """A run in short: its folder, its models, the last logged numbers of each stage, its report."""
    last = {str(row.get("stage")): row for row in read_metrics(folder)}
    models = [name for name in ("sft", "rl", "model", "best") if (folder / name).is_dir()]
    report = folder / "report.html"
    return {
        "out": str(folder),
        "models": {name: str(folder / name) for name in models},
        "last": last,
        "report": str(report) if report.is_file() else None,
    }
