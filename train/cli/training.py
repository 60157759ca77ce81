"""`assay demo`, `assay sft` and `assay grpo`: flags and `key=value` end as the same settings, and a
run folder comes out. torch is imported when a run begins: `--help` has to be quick."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from assay.console import (
    DONE,
    STATUSES,
    Parser,
    add_config,
    add_family,
    add_filter,
    add_json,
    parser,
    task_filter,
)
from configs.loader import ConfigError, dotted_docs, settings_help
from configs.schema import DEMO_SIZES, DemoConfig, GrpoRunConfig, SftRunConfig, load_run
from train.run.log import read_metrics

DEFAULT_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"

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
    family: list[str] = field(default_factory=list[str])
    backend: str = "embedded"
    dry_run: bool = False
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
    named: dict[str, Any] = {f.name: args[f.name] for f in fields(Given) if f.name in args}
    named["settings"] = [*args["settings"], *flags]
    return Given(**named)


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


def demo(argv: list[str]) -> int:
    """`assay demo`: exit status 0. Errors are raised, `Stopped` where the run was asked to stop."""
    parser = parser_of(
        "demo",
        "The main job, end to end: tasks, SFT, Dr.GRPO, evaluation and report. Defaults are those "
        "of configs/demo.yaml where --config names no other file.",
        DemoConfig,
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="sizes that take about N minutes here, measured first and recorded as settings: "
        + ", ".join(DEMO_SIZES),
    )
    asked = given(parser, argv)
    with machine_output(asked.json) as done:
        config = load_run(DemoConfig, asked.config or DEFAULT_CONFIG, asked.settings)
        from train.demo import in_minutes, run_demo

        speeds = None
        if asked.minutes is not None:
            refuse_both(asked.minutes, asked.settings)
            config, speeds = in_minutes(config, asked.minutes)
        run_demo(config, speeds)
        done(config.out)
    return DONE


def refuse_both(minutes: float, settings: Sequence[str]) -> None:
    """Raise `ConfigError` for a time that is none, or beside sizes that it decides."""
    if not 0 < minutes < 10_000:
        raise ConfigError(f"--minutes {minutes:g}: give minutes, more than 0")
    both = [text for text in settings if text.partition("=")[0] in DEMO_SIZES]
    if both:
        raise ConfigError(f"{both[0]}: --minutes decides it; leave one of them out")


def sft(argv: list[str]) -> int:
    """`assay sft`: as `demo`."""
    parser = parser_of(
        "sft",
        "Fine-tune on gold answers of tasks, on chats, or on kept rollouts.",
        SftRunConfig,
        ("embedded", "deepspeed"),
        argv,
    )
    asked = given(parser, argv)
    with machine_output(asked.json) as done:
        config = load_run(SftRunConfig, asked.config, asked.settings, asked.family)
        from train import sft

        if asked.dry_run:
            sft.dry_run(config, asked.backend)
        elif asked.backend == "deepspeed":
            from train.backends.deepspeed import on_devices

            return on_devices(config)
        else:
            sft.run(config)
            done(config.out)
    return DONE


def grpo(argv: list[str]) -> int:
    """`assay grpo`: as `demo`."""
    parser = parser_of(
        "grpo",
        "Dr.GRPO on tasks with gold, on this machine or on many GPUs.",
        GrpoRunConfig,
        ("embedded", "verl"),
        argv,
    )
    asked = given(parser, argv)
    with machine_output(asked.json) as done:
        config = load_run(GrpoRunConfig, asked.config, asked.settings, asked.family)
        from train import grpo

        if asked.dry_run:
            grpo.dry_run(config, asked.backend)
        elif asked.backend == "verl":
            return grpo.on_devices(config)
        else:
            grpo.run(config)
            done(config.out)
    return DONE
