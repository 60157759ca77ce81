"""`assay sft`: settings in, run folder out."""

from __future__ import annotations

from pathlib import Path

from configs.loader import dump
from configs.schema import SftRunConfig
from rewards.task import read_tasks
from train.cli.options import options
from train.run.data import training_tasks
from train.run.errors import say_known_errors
from train.run.run import Run
from train.run.settings import load_run, with_folder


def main(argv: list[str]) -> int:
    parser = options("sft", "Fine-tune on the gold answers of tasks.")
    parser.add_argument("--backend", choices=("embedded", "deepspeed"), default="embedded")
    args = parser.parse_args(argv)
    with say_known_errors("assay sft") as status:
        config = load_run(SftRunConfig, args.config, args.settings, args.family)
        if args.dry_run:
            print(dump(config))
            print(_sft_estimate(config, args.backend))
        elif args.backend == "deepspeed":
            from train.backends.launch import sft_on_devices

            training_tasks(config.data)
            from train.run.setup import settled

            config = settled(config, config.cluster.device)
            return sft_on_devices(with_folder(config))
        else:
            from train.run.setup import settled

            _sft(settled(config))
    return status.code


def _sft_estimate(config: SftRunConfig, backend: str) -> str:
    from train.backends.estimate import sft_report
    from train.backends.local_estimate import local_report

    if backend == "embedded":
        from train.run.setup import settled

        return local_report(settled(config))
    there = config.data.endswith(".jsonl") and Path(config.data).is_file()
    return sft_report(config, len(read_tasks(config.data)) if there else None)


def _sft(config: SftRunConfig) -> None:
    from train.sft import read_examples, train_sft

    run = Run(config, "sft")
    train_sft(
        run.policy,
        read_examples(config, run.tokenizer),
        config.sft,
        seed=config.seed,
        micro_tokens=config.engine.micro_tokens,
        log=run.log,
        checkpoints=run.checkpoints,
        every=config.checkpoint.sft_every,
    )
    run.finish()
