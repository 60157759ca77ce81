"""`assay sft`, `assay grpo` and `assay eval`: settings in, run folder out."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from configs.loader import ConfigError, dump, to_dict
from configs.schema import EngineConfig, EvalConfig, GrpoRunConfig, SftRunConfig
from rewards.task import Task, TaskError, read_tasks, refuse_published
from train.run.checkpoint import require_disk
from train.run.errors import say_known_errors
from train.run.resume import Checkpoints
from train.run.settings import load_run, weights_of
from train.run.stop import StopFlag

if TYPE_CHECKING:
    from rollouts.prompts import ChatTokenizer
    from train.sft import Example


Config = TypeVar("Config", SftRunConfig, GrpoRunConfig)


def _options(command: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"assay {command}", description=what)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--config", help="YAML of settings; see docs/training.md")
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="FILE.py[:NAME]",
        help="a family of your own; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the resolved settings only")
    return parser


def _tasks(path: str, key: str) -> list[Task]:
    if not path:
        raise ConfigError(f"{key} is empty; give a tasks.jsonl file, as `assay tasks` writes")
    if not Path(path).is_file():
        raise ConfigError(f"{key}={path}: no such file; give a tasks.jsonl file")
    tasks = read_tasks(path)
    if not tasks:
        raise TaskError(f"{path}: no tasks in it; build some with `assay tasks`")
    return tasks


def _training_tasks(path: str) -> list[Task]:
    """Tasks to learn from; traces (parquet) bring their own texts. Published tasks are refused."""
    if path.endswith(".parquet"):
        return []
    tasks = _tasks(path, "data")
    refuse_published(tasks, path)
    return tasks


class _Run:
    """What SFT and GRPO runs set up alike."""

    def __init__(self, config: SftRunConfig | GrpoRunConfig, stage: str) -> None:
        from rollouts.prompts import ChatTokenizer
        from train.model.source import resolve_model
        from train.run.log import RunLog
        from train.run.record import write_run_record
        from train.run.setup import load_checked, prepare, seed_globals

        self.tasks = _training_tasks(config.data)
        self.out = Path(config.out)
        require_disk(self.out, 4_000_000_000, "checkpoints of this run")
        machine = prepare(config.engine)
        seed_globals(config.seed)
        source = resolve_model(config.model.path)
        calls = config.tools.calls if isinstance(config, GrpoRunConfig) else "hermes"
        self.tokenizer = ChatTokenizer(source, calls)
        self.policy = load_checked(source, config.engine, machine, True, config.model)
        self.reload = lambda: load_checked(source, config.engine, machine, train=False)
        write_run_record(self.out, config, {"data": Path(config.data), "model": source})
        self.log = RunLog(
            self.out,
            wandb=config.log.wandb,
            project=config.log.project,
            config=to_dict(config),
            keep_rollouts=config.log.rollouts,
        )
        self.checkpoints = Checkpoints(
            self.out / "checkpoints" / stage, config, config.checkpoint.keep, StopFlag().listen()
        )
        self.done = self.out / "DONE"  # tells a job script that there is nothing to go on with
        self.done.unlink(missing_ok=True)

    def finish(self) -> None:
        from train.run.setup import publish

        work = self.out / ".tmp-model"
        self.policy.save(work)
        print(f"model: {publish(work, self.out / 'model')}")
        self.log.close()
        self.done.touch()


def sft_main(argv: list[str]) -> int:
    options = _options("sft", "Fine-tune on the gold answers of tasks.")
    options.add_argument("--backend", choices=("embedded", "deepspeed"), default="embedded")
    args = options.parse_args(argv)
    with say_known_errors("assay sft") as status:
        config = load_run(SftRunConfig, args.config, args.settings, args.family)
        if args.dry_run:
            print(dump(config))
            print(_sft_estimate(config, args.backend))
        elif args.backend == "deepspeed":
            from train.backends.launch import sft_on_devices

            _training_tasks(config.data)
            from train.run.setup import settled

            config = settled(config, config.cluster.device)
            return sft_on_devices(_with_folder(config))
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


def _with_folder(config: Config) -> Config:
    """With the model's folder in place of a hub name: the other processes look for nothing."""
    from train.model.source import resolve_model

    folder = str(resolve_model(config.model.path))
    return replace(config, model=replace(config.model, path=folder))


def read_examples(config: SftRunConfig, tokenizer: ChatTokenizer) -> list[Example]:
    """The run's tasks with their gold answers, or the traces of a parquet that `assay select`
    wrote. Raises `TaskError` for gold that is no text."""
    from train.sft import gold_examples, trace_examples

    if config.data.endswith(".parquet"):
        return trace_examples(Path(config.data))
    tasks = _tasks(config.data, "data")
    bad = next((t for t in tasks if t.family != "refinement"), None)
    if bad is not None:
        raise TaskError(
            f"{config.data}: task {bad.id} is of family {bad.family}, whose gold is no text to "
            "imitate; build its set by rejection sampling"
        )
    return gold_examples(tasks, tokenizer)


def _sft(config: SftRunConfig) -> None:
    from train.sft import train_sft

    run = _Run(config, "sft")
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


def grpo_main(argv: list[str]) -> int:
    options = _options("grpo", "Dr.GRPO on tasks with gold, on this machine or on many GPUs.")
    options.add_argument("--backend", choices=("embedded", "verl"), default="embedded")
    args = options.parse_args(argv)
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
            _training_tasks(config.data)
            config = _with_folder(config)
            print(grpo_report(config), flush=True)
            return run(config)
        from train.run.setup import settled

        _grpo(settled(config))
    return status.code


def _grpo(config: GrpoRunConfig) -> None:
    from rollouts.workshop import Workshop, tool_settings
    from train.evaluation.evaluate import scorer
    from train.grpo import train_grpo

    run = _Run(config, "rl")
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


def eval_main(argv: list[str]) -> int:
    if any(word.removeprefix("--tracks=").startswith("krama:") for word in argv):
        from train.evaluation.krama_eval import main as krama_main

        return krama_main(argv)
    if any(word.removeprefix("--tracks=").startswith("dare:") for word in argv):
        from train.evaluation.table_eval import main as dare_main

        return dare_main(argv)
    parser = argparse.ArgumentParser(prog="assay eval", description="Score a model on tasks.")
    parser.add_argument(
        "--model",
        required=True,
        help="Hugging Face folder or hub name; cdr: also the URL of an "
        "OpenAI-compatible endpoint (up to /v1), or baseline:NAME",
    )
    parser.add_argument(
        "--tracks",
        "--tasks",
        required=True,
        help="tasks.jsonl, cdr:DIR[:track,…], krama:DIR, dare:DIR",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for results and report")
    parser.add_argument("--limit", type=int, default=0, help="first N tasks (of a track) only")
    parser.add_argument(
        "--max-new-tokens",
        type=int,
        default=0,
        metavar="N",
        help=f"longest answer (0: {EvalConfig().max_new_tokens}; cdr: 4096, at an "
        "endpoint no limit)",
    )
    parser.add_argument("--pass-k", type=int, default=0, help="also pass@k over k samples")
    parser.add_argument("--seed", type=int, default=0)
    from train.evaluation.cdr_cli import add_options, eval_cdr

    add_options(parser)
    args = parser.parse_args(argv)
    with say_known_errors("assay eval") as status:
        if args.tracks.startswith("cdr:"):
            status.code = eval_cdr(args)
        else:
            _eval(args)
    return status.code


def _eval(args: Any) -> None:
    from rollouts.prompts import ChatTokenizer
    from rollouts.workshop import Workshop
    from train.evaluation.evaluate import baselines, evaluate, scorer
    from train.evaluation.results import text_table
    from train.model.source import resolve_model
    from train.report.write import write_report
    from train.run.progress import Bar
    from train.run.setup import load_checked, prepare

    tasks = _tasks(args.tracks, "--tracks")[: args.limit or None]
    engine_config = EngineConfig()
    machine = prepare(engine_config)
    folder = resolve_model(args.model)
    tokenizer = ChatTokenizer(folder)
    policy = load_checked(folder, engine_config, machine, train=False)
    engine = policy.engine(tokenizer.stop_ids, engine_config.slots)
    with Bar("evaluating", len(tasks)) as bar:
        rows = evaluate(
            tasks,
            engine,
            tokenizer,
            scorer(),
            pass_k=args.pass_k,
            seed=args.seed,
            max_new_tokens=args.max_new_tokens or EvalConfig().max_new_tokens,
            progress=bar,
            maker=Workshop(Path(args.tracks).parent).maker,
        )
    held = all(task.split == "heldout" for task in tasks)
    meta = {"model": str(args.model), "tasks": str(args.tracks), "seed": args.seed, "heldout": held}
    data = {"rows": {**baselines(tasks), Path(args.model).name: rows}, "meta": meta}
    page = write_report(args.out, data)
    print(f"{text_table(data)}\nresults: {args.out / 'results.json'}\nreport: {page}")
