"""`assay demo`: settings in, run folder and report out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from configs.loader import ConfigError
from configs.schema import DEMO_SIZES, DemoConfig
from train.cli.options import given, parser_of
from train.run.errors import say_known_errors
from train.run.settings import load_run
from train.run.summary import machine_output

DEFAULT_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"


def main(argv: list[str]) -> int:
    """Exit status 0; 2 with one sentence for settings, a model or a corpus that cannot be used;
    75 when it was asked to stop and saved."""
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
    with say_known_errors("assay demo") as status, machine_output(asked.json) as done:
        config = load_run(DemoConfig, asked.config or DEFAULT_CONFIG, asked.settings)
        from train.demo import in_minutes, run_demo  # imports torch

        speeds = None
        if asked.minutes is not None:
            refuse_both(asked.minutes, asked.settings)
            config, speeds = in_minutes(config, asked.minutes)
        run_demo(config, speeds)
        done(config.out)
    return status.code


def refuse_both(minutes: float, settings: Sequence[str]) -> None:
    """Raise `ConfigError` for a time that is none, or beside sizes that it decides."""
    if not 0 < minutes < 10_000:
        raise ConfigError(f"--minutes {minutes:g}: give minutes, more than 0")
    both = [text for text in settings if text.partition("=")[0] in DEMO_SIZES]
    if both:
        raise ConfigError(f"{both[0]}: --minutes decides it; leave one of them out")
