"""`assay grpo`: settings in, run folder out."""

from __future__ import annotations

from assay import console
from configs.schema import GrpoRunConfig, load_run
from train.cli.options import given, machine_output, parser_of


def main(argv: list[str]) -> int:
    """Exit status 0. Errors are raised, `Stopped` where the run was asked to stop."""
    parser = parser_of(
        "grpo",
        "Dr.GRPO on tasks with gold, on this machine or on many GPUs.",
        GrpoRunConfig,
        ("embedded", "verl"),
        argv,
    )
    asked = given(parser, argv)
    with machine_output(asked.json) as done:
        config = load_run(GrpoRunConfig, asked.config, asked.settings, asked.families)
        from train import grpo  # imports torch: `--help` has to be quick

        if asked.dry_run:
            grpo.dry_run(config, asked.backend)
        elif asked.backend == "verl":
            return grpo.on_devices(config)
        else:
            grpo.run(config)
            done(config.out)
    return console.DONE
