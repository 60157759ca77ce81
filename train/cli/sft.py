# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportMissingTypeArgument=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
"""`assay sft`: settings in, run folder out."""

from __future__ import annotations

import os
from pathlib import Path

from configs.loader import ConfigError, dump
from configs.schema import SftRunConfig
from train.cli.options import given, parser_of
from train.run.data import training_rows, training_tasks
from train.run.errors import say_known_errors
from train.run.settings import load_run, weights_of, with_folder

# What imports torch or transformers is imported where it is used: `--help` has to be quick.


def main(argv: list[str]) -> int:
    """Exit status 0; 2 with one sentence for what cannot be used; 75 when asked to stop."""
    parser = parser_of(
        "sft",
        "Fine-tune on gold answers of tasks, on chats, or on kept rollouts.",
        SftRunConfig,
        ("embedded", "deepspeed"),
    )
    asked = given(parser, argv)
    with say_known_errors("assay sft") as status:
        config = load_run(SftRunConfig, asked.config, asked.settings, asked.families)
        if asked.dry_run:
            dry_run(config, asked.backend)
        elif asked.backend == "deepspeed":
            return on_devices(config)
        else:
            run(config)
    return status.code


def run(config: SftRunConfig) -> None:
    """Train here, on one device."""
    rows = training_rows(config.data)
    held = training_tasks(config.validation, "validation") if config.validation else []

    from rollouts.prompts import ChatTokenizer
    from rollouts.workshop import Workshop
    from train.examples import example_of
    from train.model.source import resolve_model
    from train.run.run import Run
    from train.scoring import scorer
    from train.sft import train_sft
    from train.validation import Validation

    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, template=config.model.chat_template_kwargs)
    examples = [example_of(row, where, tokenizer) for where, row in rows]
    inputs = {"data": Path(config.data), "model": source}
    if config.validation:
        inputs["validation"] = Path(config.validation)
    with Run(config, inputs) as run:
        config = run.config
        policy = run.load(source, train=True, adapters=config.model)
        loop = run.loop("sft")
        if held:
            validation = Validation(
                run,
                held[: config.eval.tasks or None],
                tokenizer,
                scorer(weights_of({})),
                config.eval,
                max(len(e.answer) for e in examples),
                Workshop(Path(str(config.validation)).parent).maker,
            )
            loop = run.loop("sft", validation.of(policy))
        train_sft(policy, examples, config.sft, loop, config.checkpoint.sft_every)
        print(f"model: {run.save(policy, 'model')}")
        run.finish()


def on_devices(config: SftRunConfig) -> int:
    """One process per device, by DeepSpeed."""
    from train.backends.launch import sft_on_devices
    from train.run.lock import held
    from train.run.setup import settled

    if config.validation:
        raise ConfigError("--backend deepspeed does not evaluate while it trains; leave validation")
    training_rows(config.data)
    config = with_folder(settled(config, config.cluster.device))
    if os.environ.get("SLURM_NODEID", "0") != "0":  # the first node's process holds the folder
        return sft_on_devices(config)
    with held(Path(config.out)):
        return sft_on_devices(config)


def dry_run(config: SftRunConfig, backend: str) -> None:
    """Print the settings, the lengths of the data and what memory it will take."""
    from train.backends.estimate import sft_report
    from train.backends.local_estimate import local_report

    print(dump(config))
    count = None
    if Path(config.data).is_file():
        rows = training_rows(config.data)
        count = len(rows)
        print(lengths(config, rows))
    if backend == "deepspeed":
        print(sft_report(config, count))
        return
    from train.run.setup import settled

    print(local_report(settled(config)))


def lengths(config: SftRunConfig, rows: list) -> str:
    """Quantiles of the examples' lengths, where the model's tokenizer is on this machine."""
    from rollouts.prompts import ChatTokenizer
    from train.examples import example_of, lengths_line
    from train.model.source import local_model

    folder = local_model(config.model.path)
    if folder is None:
        return "lengths: not measured, the model's tokenizer is not on this machine"
    tokenizer = ChatTokenizer(folder, template=config.model.chat_template_kwargs)
    examples = [example_of(row, where, tokenizer) for where, row in rows]
    return lengths_line(examples, config.sft.max_length)
