"""`assay demo`: settings in, run folder and report out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay import console
from configs.loader import ConfigError
from configs.schema import DEMO_SIZES, DemoConfig, load_run
from train.cli.options import given, machine_output, parser_of

DEFAULT_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"


def main(argv: list[str]) -> int:
    """Exit status 0. Errors are raised, `Stopped` where the run was asked to stop."""
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
        from train.demo import in_minutes, run_demo  # imports torch

        speeds = None
        if asked.minutes is not None:
            refuse_both(asked.minutes, asked.settings)
            config, speeds = in_minutes(config, asked.minutes)
        run_demo(config, speeds)
        done(config.out)
    return console.DONE


def refuse_both(minutes: float, settings: Sequence[str]) -> None:
    """Raise `ConfigError` for a time that is none, or beside sizes that it decides."""
    if not 0 < minutes < 10_000:
        raise ConfigError(f"--minutes {minutes:g}: give minutes, more than 0")
    both = [text for text in settings if text.partition("=")[0] in DEMO_SIZES]
    if both:
        raise ConfigError(f"{both[0]}: --minutes decides it; leave one of them out")
