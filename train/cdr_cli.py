"""`assay eval --tracks cdr:DIR`: the model (or a baseline) that answers, and the report."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs.loader import ConfigError
from configs.schema import EngineConfig, RewardConfig
from rewards.families import Answer, score_answer
from rewards.refinement import always_drop, copy_input
from rewards.structured import gold_response
from rewards.task import Task

Answerer = Callable[[Sequence[Task]], list[str | None]]
BASELINES: dict[str, Callable[[Any], str]] = {
    "gold": gold_response,
    "copy_input": copy_input,
    "always_drop": always_drop,
}


def answerer(model: str, max_new_tokens: int, seed: int) -> Answerer:
    """What answers tasks: `baseline:NAME`, or a model folder on the embedded engine, greedily."""
    if model.startswith("baseline:"):
        name = model.removeprefix("baseline:")
        if name not in BASELINES:
            raise ConfigError(f"--model {model}: wanted baseline:{' or '.join(BASELINES)}")
        return lambda tasks: [BASELINES[name](task.gold) for task in tasks]
    from rollouts.environments import run_now
    from rollouts.episode import rollout
    from rollouts.prompts import ChatTokenizer
    from rollouts.trajectory import Sampling
    from train.model_source import resolve_model
    from train.progress import Bar
    from train.setup import load_checked, prepare

    config = EngineConfig()
    machine = prepare(config)
    folder = resolve_model(model)
    tokenizer = ChatTokenizer(folder)
    engine = load_checked(folder, config, machine, train=False).engine(
        tokenizer.stop_ids, config.slots
    )
    greedy = Sampling(max_new_tokens, temperature=0.0)

    def answer(tasks: Sequence[Task]) -> list[str | None]:
        found: list[str | None] = []
        with Bar("answering", len(tasks)) as bar:
            for at in range(0, len(tasks), 64):
                part = tasks[at : at + 64]
                for (one,) in run_now(rollout(part, engine, tokenizer, greedy, 1, seed)):
                    given = one.answer()
                    found.append(None if given.failure is not None else given.text)
                bar.update(len(part))
        return found

    return answer


def eval_cdr(args: Namespace) -> None:
    """Answer, score and report CDR-Bench; prints the paper's metrics and where the files are."""
    from train.cdr_eval import CdrEval, evaluate_benchmark, paper_table
    from train.evaluate import baselines, reward_weights, row_of
    from train.report import write_report

    name = Path(args.model.replace("baseline:", "baseline_")).name
    config = CdrEval(args.mode, args.k, args.seed, args.limit)
    answer = answerer(args.model, args.max_new_tokens, args.seed)
    papers, asked = evaluate_benchmark(args.tracks, args.out, name, answer, config)
    reward = RewardConfig()
    plain = [(task, text) for task, text in asked if task.family == "refinement"]
    if plain:
        weights = reward_weights(reward)
        rows = [
            row_of(task, score_answer(task, Answer(text or ""), weights), text or "", 0)
            for task, text in plain
        ]
        data = {
            "rows": {**baselines([task for task, _ in plain], reward), name: rows},
            "meta": {"model": args.model, "tasks": args.tracks, "mode": args.mode,
                     "parsing": "strict in this table; release in paper_metrics.json"},
        }  # fmt: skip
        print(f"report: {write_report(args.out, data)}")
    print(paper_table(papers))
    print(f"files: {args.out / 'data' / 'evaluation'}")
