"""`assay eval`: score a model on tasks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from configs.schema import EngineConfig, EvalConfig
from train.run.data import read_some
from train.run.errors import say_known_errors


def main(argv: list[str]) -> int:
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

    tasks = read_some(args.tracks, "--tracks")[: args.limit or None]
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
