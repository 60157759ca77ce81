"""`assay demo`: settings in, run folder and report out."""

from __future__ import annotations

from pathlib import Path

from configs.schema import DemoConfig
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
    asked = given(parser, argv)
    with say_known_errors("assay demo") as status, machine_output(asked.json) as done:
        config = load_run(DemoConfig, asked.config or DEFAULT_CONFIG, asked.settings)
        from train.demo import run_demo  # imports torch

        run_demo(config)
        done(config.out)
    return status.code
