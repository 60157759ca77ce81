# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""`assay sft`: settings in, run folder out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from configs.loader import ConfigError, dump
from configs.schema import SftRunConfig
from train.cli.options import given, parser_of
from train.run.data import AUTO, Row, asked_for, training_rows, validation_tasks, with_validation
from train.run.errors import say_known_errors
from train.run.settings import load_run, weights_of, with_folder
from train.run.summary import machine_output

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
    with say_known_errors("assay sft") as status, machine_output(asked.json) as done:
        config = load_run(SftRunConfig, asked.config, asked.settings, asked.families)
        if asked.dry_run:
            dry_run(config, asked.backend)
        elif asked.backend == "deepspeed":
            return on_devices(config)
        else:
            run(config)
            done(config.out)
    return status.code


def run(config: SftRunConfig) -> None:
    """Train here, on one device."""
    rows = training_rows(config.data, asked_for(config), config.prompts)
    config, said = with_validation(config)
    held = validation_tasks(config)

    from rollouts.environments import EnvironmentFactory, ToolSettings, read_prompts
    from rollouts.prompts import ChatTokenizer
    from train.lengths import fit_sft, room_of
    from train.model.source import resolve_model
    from train.run.run import Run
    from train.run.setup import settled
    from train.run.trained_on import trained_before
    from train.scoring import scorer
    from train.sft import train_sft
    from train.validation import Validation

    prompts = read_prompts(config.prompts)
    held = prompts.asked(held)
    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, config.tools.calls, config.model.chat_template_kwargs)
    examples = _examples(config, rows, tokenizer)
    room = room_of(source, settled(config).engine, config.model)
    sft, why = fit_sft(config.sft, examples, room, config.out)
    config = replace(config, sft=sft)
    for line in filter(None, (said, why)):
        print(line, flush=True)
    inputs: dict[str, Path | str] = {"data": Path(config.data), "model": source}
    inputs["tokenizer"] = tokenizer.fingerprint
    inputs |= prompts.inputs()
    if config.validation:
        inputs["validation"] = Path(config.validation)
    with Run(config, inputs) as run:
        config = run.config
        kept = [e for e in examples if e.tokens <= sft.max_length]
        run.trained = trained_before(source).after("sft", config.data, (e.marks for e in kept))
        policy = run.load(source, train=True, adapters=config.model)
        loop = run.loop("sft")
        if held:
            validation = Validation(
                run,
                held,
                tokenizer,
                scorer(weights_of({})),
                config.eval,
                max(len(e.answer) for e in examples),
                EnvironmentFactory(
                    Path(str(config.validation)).parent, ToolSettings(words=prompts.words)
                ).maker,
            )
            loop = run.loop("sft", validation.of(policy))
        train_sft(policy, examples, config.sft, loop, config.checkpoint.sft_every)
        print(f"model: {run.save(policy, 'model')}")
        run.finish()


def _examples(config: SftRunConfig, rows: Sequence[tuple[str, Row]], tokenizer: Any) -> list[Any]:
    from train.examples import examples_of

    return examples_of(rows, tokenizer, Path(config.data).parent)


def on_devices(config: SftRunConfig) -> int:
    """One process per device, by DeepSpeed."""
    from train.backends.launch import sft_on_devices
    from train.run.lock import held
    from train.run.setup import settled

    if config.validation not in (None, AUTO):
        raise ConfigError("--backend deepspeed does not evaluate while it trains; leave validation")
    rows = training_rows(config.data, asked_for(config), config.prompts)
    config = with_folder(settled(replace(config, validation=None), config.cluster.device))
    config, said = _fitted(config, rows)
    print(said, flush=True)
    if os.environ.get("SLURM_NODEID", "0") != "0":  # the first node's process holds the folder
        return sft_on_devices(config)
    with held(Path(config.out)):
        return sft_on_devices(config)


def _fitted(
    config: SftRunConfig, rows: Sequence[tuple[str, Row]], here: bool = False
) -> tuple[SftRunConfig, str]:
    """The run with its length, and what is known of lengths in words. `here`: bounded by this
    machine's memory too."""
    from rollouts.prompts import ChatTokenizer
    from train.examples import lengths_line
    from train.lengths import Room, fit_sft, room_of, unfitted
    from train.model.source import local_model

    folder = local_model(config.model.path)
    if folder is None or not rows:
        config = replace(config, sft=unfitted(config.sft, config.model.path))
        return config, "lengths: not measured, the model or the data is not on this machine"
    tokenizer = ChatTokenizer(folder, config.tools.calls, config.model.chat_template_kwargs)
    examples = _examples(config, rows, tokenizer)
    room = room_of(folder, config.engine, config.model)
    sft, why = fit_sft(config.sft, examples, room if here else Room(room.context), config.out)
    said = lengths_line(examples, sft.max_length)
    return replace(config, sft=sft), "\n".join(filter(None, (said, why)))


def dry_run(config: SftRunConfig, backend: str) -> None:
    """Print the settings, the lengths of the data and what memory it will take."""
    from train.memory import local_report, sft_report
    from train.run.setup import settled

    config, found = with_validation(config)
    there = Path(config.data).is_file()
    rows = training_rows(config.data, asked_for(config), config.prompts) if there else []
    config, said = _fitted(settled(config), rows, backend == "embedded")
    print("\n".join(filter(None, (dump(config), found, said))))
    if backend == "deepspeed":
        print(sft_report(config, len(rows) or None))
        return
    print(local_report(config))
