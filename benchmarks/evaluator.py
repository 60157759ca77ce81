"""What the evaluator costs beyond the episodes: 1,000 scripted rollouts, alone and evaluated.

    python benchmarks/evaluator.py --model MODEL_FOLDER [--count 1000] [--tools]

The folder's tokenizer is used, not its weights. `alone` is `rollout` and the scorer; `evaluated` is
`assay eval` from the tasks file to the page, with journal, tables, intervals and baselines. Tasks
have 5 tool calls each with --tools, else one short answer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from assay.family import score_answer
from assay.task import Task, write_jsonl
from configs.answers import EvaluationConfig
from rollouts.engines.scripted import ScriptedEngine
from rollouts.environment import Budget
from rollouts.episode import rollout
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer
from rollouts.scripted_agents import script
from rollouts.trajectory import Sampling
from train.cli.eval import parser
from train.cli.model_options import settle
from train.evaluation import answering
from train.evaluation.program import run

WORDS = "The quick mail x@a.org jumps over http://a.org/c and the lazy dog. " * 12


def make(count: int, tools: bool) -> list[Task]:
    """Refinement tasks of `count / 3` documents, all of one length."""
    tasks: list[Task] = []
    for i in range(count):
        text = f"Document {i}. {WORDS}"
        gold = {"input_text": text, "status": "KEEP", "text": text.replace("x@a.org", "")}
        prompt = [{"role": "user", "content": f"Delete the addresses.\n{text}"}]
        names = ("python_executor",) if tools else ()
        meta = {"document": f"d{i // 3}", "has_filter": i % 2 == 0, "domain": "mail"}
        track = f"track{i % 4}"
        tasks.append(Task(f"t{i}", "refinement", track, "heldout", prompt, gold, names, meta=meta))
    return tasks


def alone(tasks: list[Task], args: Any) -> float:
    """Seconds of the episodes and their scores, in the evaluator's chunks."""
    shop = answering.environment_factory(args)
    tokenizer = ChatTokenizer(Path(args.tokenizer))
    engine = ScriptedEngine(script("five_calls", tasks, tokenizer.calls), tokenizer)
    size = args.slots
    began = time.perf_counter()
    for at in range(0, len(tasks), size):
        part = tasks[at : at + size]
        sampling = Sampling(4096, 0.0)
        groups = asyncio_run(
            rollout(part, engine, tokenizer, sampling, 1, 0, maker=shop.maker, budget=Budget())
        )
        for task, (found,) in zip(part, groups, strict=True):
            score_answer(task, found.answer())
    spent = time.perf_counter() - began
    asyncio_run(shop.close())
    return spent


def evaluated(tasks: Path, folder: Path, args: Any) -> float:
    args.out = folder / "out"
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run(args) == 0
    return time.perf_counter() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", required=True, help="folder with a tokenizer")
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--tools", action="store_true")
    asked = options.parse_args()
    tasks = make(asked.count, asked.tools)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "tasks.jsonl"
        write_jsonl(path, [task.to_json() for task in tasks])
        words = ["--model", "solver:five_calls", f"server.tokenizer={asked.model}", "--out", place]
        args = parser().parse_args([*words, "--tasks", str(path), "sampling.max_new_tokens=4096"])
        settle(args, EvaluationConfig, answers=False, temperature=0.0)
        alone(tasks[:64], args)  # the sandbox, and what is loaded once
        first = alone(tasks, args)
        second = evaluated(path, Path(place), args)
        results = json.loads((Path(place) / "out" / "results.json").read_text())
    assert results["tables"]["overall"]["n"] == asked.count
    print(f"{asked.count} rollouts alone {first:.2f} s, evaluated {second:.2f} s")
    print(f"beyond the episodes: {second - first:+.2f} s, {second / first - 1:+.1%}")


if __name__ == "__main__":
    main()
