"""`assay eval --tracks cdr:DIR`: what answers (model, endpoint, baseline), and the report."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs.loader import ConfigError
from configs.schema import EngineConfig
from rewards.cdr.refinement import always_drop, copy_input
from rewards.cdr.structured import gold_response
from rewards.families import score_answer
from rewards.task import Answer, Task, TaskError
from rollouts.cdr.prompts import MODES
from rollouts.trajectory import Sampling, Trajectory
from rollouts.workshop import run_now
from train.evaluation.cdr_eval import (
    Answerer,
    CdrEval,
    Said,
    evaluate_benchmark,
    paper_table,
    parse_tracks,
    pick_rows,
)
from train.run.progress import Bar

BASELINES: dict[str, Callable[[Any], str]] = {
    "gold": gold_response,
    "copy_input": copy_input,
    "always_drop": always_drop,
}
LOCAL_TOKENS = 4096  # longest answer of a local checkpoint, unless --max-new-tokens says otherwise
GIVE_UP = 20  # failed requests in a row after which an endpoint counts as gone


def add_options(parser: ArgumentParser) -> None:
    """What only `--tracks cdr:DIR` understands."""
    group = parser.add_argument_group("CDR-Bench (--tracks cdr:DIR)")
    group.add_argument("--mode", default="direct", choices=MODES, help="prompt mode")
    group.add_argument("--k", type=int, default=3, help="prompt variants a row; 0: all")
    group.add_argument("--endpoint-model", default="", help="model name at the endpoint --model")
    group.add_argument(
        "--key-env",
        default="OPENAI_API_KEY",
        metavar="VARIABLE",
        help="environment variable with the endpoint's key",
    )
    group.add_argument("--workers", type=int, default=16, help="requests side by side")
    group.add_argument(
        "--request",
        default="{}",
        metavar="JSON",
        help="more fields of every request; null leaves one out, for example "
        '\'{"chat_template_kwargs": {"enable_thinking": false}}\'',
    )
    group.add_argument(
        "--all-rows",
        action="store_true",
        help="of a folder `assay tasks cdr` wrote: also the rows that are not held "
        "out, training rows among them",
    )
    group.add_argument("--name", default="", help="the model's name in the result files")


def answerer(args: Namespace) -> Answerer:
    """What answers tasks: `baseline:NAME`, an endpoint's URL, or a model folder, greedily."""
    if args.model.startswith("baseline:"):
        name = args.model.removeprefix("baseline:")
        if name not in BASELINES:
            raise ConfigError(f"--model {args.model}: wanted baseline:{' or '.join(BASELINES)}")

        def baseline(tasks: Sequence[Task], keep: Callable[[Task, Said], None]) -> None:
            for task in tasks:
                keep(task, Said(BASELINES[name](task.gold)))

        return baseline
    if args.model.startswith(("http://", "https://")):
        return _endpoint(args)
    return _local(args)


def said(run: Trajectory) -> Said:
    answer = run.answer()
    return Said(None if answer.failure is not None else answer.text, answer.failure)


def _local(args: Namespace) -> Answerer:
    from rollouts.episode import rollout
    from rollouts.prompts import ChatTokenizer
    from train.model.source import resolve_model
    from train.run.setup import load_checked, prepare

    config = EngineConfig()
    machine = prepare(config)
    folder = resolve_model(args.model)
    tokenizer = ChatTokenizer(folder)
    engine = load_checked(folder, config, machine, train=False).engine(
        tokenizer.stop_ids, config.slots
    )
    greedy = Sampling(args.max_new_tokens or LOCAL_TOKENS, temperature=0.0)

    def answer(tasks: Sequence[Task], keep: Callable[[Task, Said], None]) -> None:
        with Bar("answering", len(tasks)) as bar:
            for at in range(0, len(tasks), config.slots):
                part = tasks[at : at + config.slots]
                groups = run_now(rollout(part, engine, tokenizer, greedy, 1, args.seed))
                for task, (run,) in zip(part, groups, strict=True):
                    keep(task, said(run))
                bar.update(len(part))

    return answer


def request_fields(text: str) -> dict[str, Any]:
    """`--request` as fields. Raises `ConfigError` for anything but a JSON object."""
    try:
        fields: Any = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--request {text}: not valid JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"--request {text}: wanted a JSON object, such as '{{\"top_k\": 1}}'")
    return fields


def _endpoint(args: Namespace) -> Answerer:
    from rollouts.engines.openai import OpenAIEngine

    if not args.endpoint_model:
        raise ConfigError(f"--model {args.model}: say which model there: --endpoint-model NAME")
    if args.workers < 1:
        raise ConfigError(f"--workers {args.workers}: set 1 or more")
    fields = request_fields(args.request)
    greedy = Sampling(args.max_new_tokens or 0, temperature=0.0)

    async def ask(tasks: Sequence[Task], keep: Callable[[Task, Said], None], bar: Bar) -> None:
        engine = OpenAIEngine(
            args.model,
            args.endpoint_model,
            key_env=args.key_env,
            in_flight=args.workers,
            extra=fields,
        )
        async with engine:
            await _ask_all(tasks, engine, greedy, args, keep, bar)

    def answer(tasks: Sequence[Task], keep: Callable[[Task, Said], None]) -> None:
        with Bar("answering", len(tasks)) as bar:
            run_now(ask(tasks, keep, bar))

    return answer


async def _ask_all(
    tasks: Sequence[Task],
    engine: Any,
    sampling: Sampling,
    args: Namespace,
    keep: Callable[[Task, Said], None],
    bar: Bar,
) -> None:
    """Every task once, `workers` side by side; each answer is handed over as it comes.

    Raises `TaskError` when so many requests fail in a row that the endpoint counts as gone.
    """
    from rollouts.chat_rollout import Plain
    from rollouts.episode import run_episode

    queue = iter(tasks)
    failed_in_a_row = 0

    async def worker() -> None:
        nonlocal failed_in_a_row
        for task in queue:  # shared: each task goes to the first worker that is free
            run = await run_episode(task, 0, Plain(task), engine, sampling, args.seed)
            keep(task, said(run))
            bar.update()
            failed_in_a_row = 0 if run.failure is None else failed_in_a_row + 1
            if failed_in_a_row >= GIVE_UP:
                raise TaskError(
                    f"--model {args.model}: {failed_in_a_row} requests in a row failed, the last "
                    f"with {run.failure}; what was answered is kept, the same command goes on"
                )

    async with asyncio.TaskGroup() as group:
        for _ in range(min(args.workers, len(tasks))):
            group.create_task(worker())


def eval_cdr(args: Namespace) -> int:
    """Answer, score and report CDR-Bench; prints the paper's metrics and where the files are.

    Returns the exit status: 3 when requests failed, which are scored nowhere.
    """
    from train.evaluation.evaluate import baselines, row_of
    from train.report.write import write_report

    config = CdrEval(args.mode, args.k, args.seed, args.limit, args.all_rows)
    picked = pick_rows(args.tracks, config)
    if picked.left_out:
        print(
            f"{picked.left_out} rows are left out: only {_asked(args.tracks)} is evaluated; "
            "--all-rows asks for every row"
        )
    name = args.name or Path(args.endpoint_model or args.model.replace(":", "_")).name
    try:
        papers, asked = evaluate_benchmark(picked, args.out, name, answerer(args), config)
    except ExceptionGroup as errors:  # of the workers at an endpoint: the first one says it
        raise errors.exceptions[0] from None
    plain = [(task, given) for task, given in asked if task.family == "refinement"]
    rows = [
        row_of(task, score_answer(task, _answer(given)), given.text or "", 0)
        for task, given in plain or asked  # JSON tracks stand in the table only by themselves
    ]
    data = {
        "rows": {**baselines([task for task, _ in plain]), name: rows} if plain else {name: rows},
        "meta": {
            "model": args.model,
            "tasks": args.tracks,
            "mode": args.mode,
            "heldout": picked.heldout,
            "rows_left_out": picked.left_out,
            "parsing": "strict in this table; release in paper_metrics.json",
        },
    }
    print(f"report: {write_report(args.out, data)}")
    print(paper_table(papers))
    print(f"files: {args.out / 'data' / 'evaluation'}")
    failed = [given.error for _, given in asked if given.text is None]
    if failed:
        print(
            f"{len(failed)} of {len(asked)} requests failed and count nowhere (the first: "
            f"{failed[0]}); the same command asks them again"
        )
    return 3 if failed else 0


def _asked(spec: str) -> str:
    """What of a build is evaluated, in words."""
    place, _ = parse_tracks(spec)
    return f"what {place} lists" if place.is_file() else f"the held-out split of {place}"


def _answer(given: Said) -> Answer:
    return Answer(given.text or "", failure=given.error if given.text is None else None)
