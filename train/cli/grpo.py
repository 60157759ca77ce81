"""`assay grpo`: settings in, run folder out."""

from __future__ import annotations

from pathlib import Path

from configs.loader import dump
from configs.schema import GrpoRunConfig
from train.cli.options import options
from train.run.data import training_tasks
from train.run.errors import say_known_errors
from train.run.run import Run
from train.run.settings import load_run, weights_of, with_folder


def main(argv: list[str]) -> int:
    parser = options("grpo", "Dr.GRPO on tasks with gold, on this machine or on many GPUs.")
    parser.add_argument("--backend", choices=("embedded", "verl"), default="embedded")
    args = parser.parse_args(argv)
    with say_known_errors("assay grpo") as status:
        config = load_run(GrpoRunConfig, args.config, args.settings, args.family)
        if args.dry_run:
            from train.grpo import describe

            print(f"{dump(config)}\n{describe(config.rl)}", flush=True)
            if args.backend == "verl":
                from train.backends.verl.dry_run import show

                show(config)
            else:
                from train.backends.local_estimate import local_report
                from train.run.setup import settled

                print(local_report(settled(config)))
            return 0
        if args.backend == "verl":
            from train.backends.estimate import grpo_report
            from train.backends.verl.compose import require_attention, require_verl
            from train.backends.verl.main import run

            require_verl()
            require_attention(config.cluster)
            training_tasks(config.data)
            config = with_folder(config)
            print(grpo_report(config), flush=True)
            return run(config)
        from train.run.setup import settled

        _grpo(settled(config))
    return status.code


def _grpo(config: GrpoRunConfig) -> None:
    from rollouts.workshop import Workshop, tool_settings
    from train.evaluation.rows import scorer
    from train.grpo import train_grpo

    run = Run(config, "rl")
    weights = weights_of(config.reward)
    train_grpo(
        run.policy,
        run.tasks,
        run.tokenizer,
        scorer(weights),
        config.rl,
        seed=config.seed,
        micro_tokens=config.engine.micro_tokens,
        slots=config.engine.slots,
        log=run.log,
        checkpoints=run.checkpoints,
        reference=run.reload() if config.rl.kl_coef else None,
        maker=Workshop(Path(config.data).parent, tool_settings(config.tools)).maker,
        weights=weights,
    )
    run.finish()
