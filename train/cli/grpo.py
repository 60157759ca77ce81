"""`assay grpo`: settings in, run folder out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.task import Task
from configs.loader import dump
from configs.schema import GrpoRunConfig
from train.cli.options import given, parser_of
from train.run.data import AUTO, asked_for, training_tasks, validation_tasks, with_validation
from train.run.errors import say_known_errors
from train.run.settings import load_run, weights_of, with_folder
from train.run.summary import machine_output

if TYPE_CHECKING:
    from rollouts.environment import Budget
    from rollouts.environments import ToolSettings
    from rollouts.prompts import ChatTokenizer
    from train.run.run import Run
    from train.validation import Validation

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
    with say_known_errors("assay grpo") as status, machine_output(asked.json) as done:
        config = load_run(GrpoRunConfig, asked.config, asked.settings, asked.families)
        if asked.dry_run:
            dry_run(config, asked.backend)
        elif asked.backend == "verl":
            return on_devices(config)
        else:
            run(config)
            done(config.out)
    return status.code


def run(config: GrpoRunConfig) -> None:
    """Train here, on one device."""
    config, said = with_validation(config)
    tasks, held = training_tasks(config.data, asked=asked_for(config)), validation_tasks(config)

    from rollouts.environments import EnvironmentFactory, read_prompts, tool_settings
    from rollouts.event_loop import asyncio_run
    from rollouts.prompts import ChatTokenizer
    from train.grpo import budget_of, train_grpo
    from train.lengths import for_run
    from train.model.order import fitting
    from train.model.source import resolve_model
    from train.run.run import Run
    from train.run.setup import settled
    from train.run.task_audit import audit_tasks
    from train.run.trained_on import after_rl, trained_before
    from train.scoring import scorer

    source = resolve_model(config.model.path)
    tokenizer = ChatTokenizer(source, config.tools.calls, config.model.chat_template_kwargs)
    root = Path(config.data).parent
    prompts = read_prompts(config.prompts)
    shop = EnvironmentFactory(root, tool_settings(config.tools), config.env)
    tasks = prompts.asked(map(shop.equip, tasks))
    config, why = for_run(config, tasks, tokenizer, source, settled(config).engine)
    for line in filter(None, (said, why)):
        print(line, flush=True)
    score, budget = scorer(weights_of(config.reward)), budget_of(config.rl)
    tools = tool_settings(config.tools, budget, prompts)
    shop = EnvironmentFactory(root, tools, config.env)
    held = prompts.asked(map(shop.equip, held))
    shop.check([*tasks, *held], ids=True)
    inputs: dict[str, Path | str] = {"data": Path(config.data), "model": source}
    inputs["tokenizer"] = tokenizer.fingerprint
    inputs |= prompts.inputs()
    if config.validation:
        inputs["validation"] = Path(config.validation)
    with Run(config, inputs) as run:
        config = run.config
        tasks = fitting(tasks, tokenizer, config.rl)
        given = (config.data, tasks, tokenizer, config.rl, config.seed, root)
        run.trained = after_rl(trained_before(source), *given)
        audit_tasks(config.rl.audit, tasks, root, config.seed, weights_of(config.reward), run.out)
        policy = run.load(source, train=True, adapters=config.model)
        reference = run.load(source) if config.rl.kl_coef else None
        loop = run.loop("rl")
        if held:
            check = _validation(run, held, tokenizer, tools, budget)
            loop = replace(loop, validate=check.of(policy))
        also = (shop.maker, reference)
        train_grpo(policy, tasks, tokenizer, score, config.rl, loop, *also)
        asyncio_run(shop.close())
        print(f"model: {run.save(policy, 'model')}")
        run.finish()


def _validation(
    run: Run[GrpoRunConfig],
    held: Sequence[Task],
    tokenizer: ChatTokenizer,
    tools: ToolSettings,
    budget: Budget,
) -> Validation:
    """What evaluates the model while it trains."""
    from rollouts.environments import EnvironmentFactory
    from train.scoring import scorer
    from train.validation import Validation

    config = run.config
    return Validation(
        run,
        held,
        tokenizer,
        scorer(weights_of(config.reward)),
        config.eval,
        config.rl.max_new_tokens,
        EnvironmentFactory(Path(str(config.validation)).parent, tools, config.env).maker,
        budget,
    )


def _fitted_elsewhere(config: GrpoRunConfig, here: bool = False) -> tuple[GrpoRunConfig, str]:
    """The same before anything is loaded, as far as data and tokenizer are on this machine."""
    from rollouts.environments import EnvironmentFactory, read_prompts
    from rollouts.prompts import ChatTokenizer
    from train.lengths import for_run, unfitted
    from train.model.source import local_model
    from train.run.setup import settled

    if config.rl.max_length and config.rl.max_new_tokens:
        return config, ""
    folder = local_model(config.model.path)
    if folder is None or not Path(config.data).is_file():
        config = replace(config, rl=unfitted(config.rl, config.model.path))
        return config, "lengths: not measured, the model or the data is not on this machine"
    tokenizer = ChatTokenizer(folder, config.tools.calls, config.model.chat_template_kwargs)
    shop = EnvironmentFactory(Path(config.data).parent, env=config.env)
    found = training_tasks(config.data, asked=asked_for(config))
    tasks = read_prompts(config.prompts).asked(map(shop.equip, found))
    return for_run(config, tasks, tokenizer, folder, settled(config).engine if here else None)


def on_devices(config: GrpoRunConfig) -> int:
    """On many GPUs, by verl."""
    from train.backends.verl.compose import require_attention, require_transfer, require_verl
    from train.backends.verl.main import run
    from train.memory import grpo_report
    from train.run.lock import held

    if config.validation == AUTO:
        config = replace(config, validation=None)
    if config.validation:  # verl evaluates by itself; it keeps no best model
        cluster = replace(config.cluster, val_data=config.validation, val_every=config.eval.every)
        config = replace(config, cluster=cluster)
    require_verl()
    require_attention(config.cluster)
    require_transfer(config.cluster)
    training_tasks(config.data, asked=asked_for(config))
    config, said = _fitted_elsewhere(with_folder(config))
    print("\n".join(filter(None, (said, grpo_report(config)))), flush=True)
    with held(Path(config.out)):
        _audited(config)
        return run(config)


def _audited(config: GrpoRunConfig) -> None:
    """The audit of a run on many GPUs, on this machine and before any of them is taken."""
    from train.run.task_audit import audit_tasks

    root, weights = Path(config.data).parent, weights_of(config.reward)
    tasks = training_tasks(config.data, asked=asked_for(config))
    audit_tasks(config.rl.audit, tasks, root, config.seed, weights, Path(config.out))


def dry_run(config: GrpoRunConfig, backend: str) -> None:
    """Print the settings, the objective and what memory it will take."""
    from train.grpo import describe

    config, found = with_validation(config)
    config, said = _fitted_elsewhere(config, backend == "embedded")
    for line in filter(None, (dump(config), found, said, describe(config.rl))):
        print(line, flush=True)
    if backend == "verl":
        from train.backends.verl.dry_run import show

        show(config)
        return
    from train.memory import local_report
    from train.run.setup import settled

    print(local_report(settled(config)))
