"""`assay grpo`: settings in, run folder out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from configs.loader import dump
from configs.schema import GrpoRunConfig
from train.cli.options import given, parser_of
from train.run.data import training_tasks
from train.run.errors import say_known_errors
from train.run.settings import load_run, weights_of, with_folder

# What imports torch or transformers is imported where it is used: `--help` has to be quick.


def main(argv: list[str]) -> int:
    """Exit status 0; 2 with one sentence for what cannot be used; 75 when asked to stop."""
    parser = parser_of(
        "grpo",
        "Dr.GRPO on tasks with gold, on this machine or on many GPUs.",
        GrpoRunConfig,
        ("embedded", "verl"),
    )
    asked = given(parser, argv)
    with say_known_errors("assay grpo") as status:
        config = load_run(GrpoRunConfig, asked.config, asked.settings, asked.families)
        if asked.dry_run:
            dry_run(config, asked.backend)
        elif asked.backend == "verl":
            return on_devices(config)
        else:
            run(config)
    return status.code


def run(config: GrpoRunConfig) -> None:
    """Train here, on one device."""
    tasks = training_tasks(config.data)
    held = training_tasks(config.validation, "validation") if config.validation else []

    from rollouts.now import run_now
    from rollouts.prompts import ChatTokenizer
    from rollouts.workshop import Workshop, tool_settings
    from train.grpo import budget_of, train_grpo
    from train.model.source import resolve_model
    from train.run.run import Run
    from train.scoring import scorer
    from train.validation import Validation

    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, config.tools.calls, config.model.chat_template_kwargs)
    score, budget = scorer(weights_of(config.reward)), budget_of(config.rl)
    tools = tool_settings(config.tools, budget)
    shop = Workshop(Path(config.data).parent, tools, config.env)
    tasks = [shop.equip(task) for task in tasks]
    held = [shop.equip(task) for task in held]
    shop.check([*tasks, *held])
    inputs = {"data": Path(config.data), "model": source}
    if config.validation:
        inputs["validation"] = Path(config.validation)
    with Run(config, inputs) as run:
        config = run.config
        policy = run.load(source, train=True, adapters=config.model)
        reference = run.load(source) if config.rl.kl_coef else None
        loop = run.loop("rl")
        if held:
            validation = Validation(
                run,
                held[: config.eval.tasks or None],
                tokenizer,
                score,
                config.eval,
                config.rl.max_new_tokens,
                Workshop(Path(str(config.validation)).parent, tools, config.env).maker,
                budget,
            )
            loop = run.loop("rl", validation.of(policy))
        train_grpo(policy, tasks, tokenizer, score, config.rl, loop, shop.maker, reference)
        run_now(shop.close())
        print(f"model: {run.save(policy, 'model')}")
        run.finish()


def on_devices(config: GrpoRunConfig) -> int:
    """On many GPUs, by verl."""
    from train.backends.estimate import grpo_report
    from train.backends.verl.compose import require_attention, require_verl
    from train.backends.verl.main import run
    from train.run.lock import held

    if config.validation:  # verl evaluates by itself; it keeps no best model
        cluster = replace(config.cluster, val_data=config.validation, val_every=config.eval.every)
        config = replace(config, cluster=cluster)
    require_verl()
    require_attention(config.cluster)
    training_tasks(config.data)
    config = with_folder(config)
    print(grpo_report(config), flush=True)
    with held(Path(config.out)):
        return run(config)


def dry_run(config: GrpoRunConfig, backend: str) -> None:
    """Print the settings, the objective and what memory it will take."""
    from train.grpo import describe

    print(f"{dump(config)}\n{describe(config.rl)}", flush=True)
    if backend == "verl":
        from train.backends.verl.dry_run import show

        show(config)
        return
    from train.backends.local_estimate import local_report
    from train.run.setup import settled

    print(local_report(settled(config)))
