"""`assay sft`: settings in, run folder out."""

from __future__ import annotations

from assay import console
from configs.schema import SftRunConfig, load_run
from train.cli.options import given, machine_output, parser_of


def main(argv: list[str]) -> int:
    """Exit status 0. Errors are raised, `Stopped` where the run was asked to stop."""
    parser = parser_of(
        "sft",
        "Fine-tune on gold answers of tasks, on chats, or on kept rollouts.",
        SftRunConfig,
        ("embedded", "deepspeed"),
        argv,
    )
    asked = given(parser, argv)
    with machine_output(asked.json) as done:
        config = load_run(SftRunConfig, asked.config, asked.settings, asked.families)
        from train import sft  # imports torch: `--help` has to be quick
        from train.backends.launch import on_devices

        if asked.dry_run:
            sft.dry_run(config, asked.backend)
        elif asked.backend == "deepspeed":
            return on_devices(config)
        else:
            sft.run(config)
            done(config.out)
    return console.DONE
