"""`assay rollout`: sample answers to tasks, score them, write them as JSONL."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay import console
from assay.console import task_filter
from configs.answers import RolloutConfig
from configs.loader import ConfigError
from train.cli import model_options

DESCRIPTION = """Sample answers to tasks, score them, and write them as JSONL. Answers come from a
model, or without one from --solver: gold, empty, cheat:NAME of any family, or a scripted agent. A
killed command goes on when it is run again."""
N = 8  # answers a task, where nobody says it


def parser() -> console.Parser:
    """Every option and setting, with its default in the help."""
    made = model_options.parser("rollout", DESCRIPTION, RolloutConfig)
    add = made.add_argument
    add("--tasks", required=True, type=Path, help="tasks.jsonl")
    add("--out", required=True, type=Path, help="rollouts.jsonl")
    add(
        "--model",
        default="",
        help="a model or adapter folder, a hub name, or an OpenAI-compatible URL (up to /v1)",
    )
    add(
        "--solver",
        default="",
        help="instead of a model: gold, empty, cheat:NAME, or a scripted agent such as reference; "
        "with --model as well its tokenizer gives the rows token ids",
    )
    console.add_family(made)
    add("--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own")
    console.add_seed(made)
    console.add_filter(made)
    console.add_limit(made)
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some rollouts have no outcome. Errors are raised."""
    args = parser().parse_intermixed_args(argv)
    _settle(args)
    return run(args)


def _settle(args: Any) -> None:
    """`--solver` and `--model` as one name of who answers. Raises `ConfigError`."""
    from rollouts.scripted_agents import OWN
    from train.evaluation.answering import is_reference

    if not args.model and not args.solver:
        raise ConfigError("give --model DIR_OR_URL, or --solver gold for answers without a model")
    start = args.model
    if args.solver:
        args.model = args.solver if is_reference(args.solver) else f"solver:{args.solver}"
    model_options.settle(args, RolloutConfig, answers=False, temperature=1.0)
    if args.solver:
        args.tokenizer = start or args.tokenizer
    scripted = is_reference(args.model) or args.solver == OWN
    alike = scripted or args.temperature == 0
    args.n = args.n or (1 if alike else N)


def run(args: Any) -> int:
    """Sample what the output does not hold yet; the exit status."""
    from assay.family import require_families, score_answer, use_families
    from assay.marks import marks_of
    from assay.task import Task, read_tasks, with_absolute_files
    from configs.schema import weights_of
    from rollouts.scripted_agents import answer_by
    from rollouts.trajectory import Trajectory
    from train.evaluation.answering import Job, answer_all, environment_factory, say_end
    from train.evaluation.benchmarks import plan_of
    from train.evaluation.rows import thought_of

    use_families(args.family)
    given = task_filter(args).select(read_tasks(args.tasks), str(args.tasks))[: args.limit or None]
    require_families(given)
    root = args.tasks.resolve().parent
    shop = environment_factory(args, root)
    equipped = [shop.equip(with_absolute_files(task, root)) for task in given]
    tasks = args.asked_in.asked(equipped)
    shop.check(tasks)
    weights = weights_of(args.rewards, "command line")
    by_id = {task.id: task for task in tasks}

    @lru_cache(1024)
    def marks(name: str) -> list[int]:
        return marks_of(by_id[name]).flat()

    def row(task: Task, run: Trajectory) -> dict[str, Any]:
        score = score_answer(task, run.answer(), weights)
        thought = thought_of(run, task)
        kept = {"thought": thought} if thought else {}
        more = {"run_seed": args.seed, "marks": marks(task.id)}
        return run.to_json(score, task) | kept | more

    record = args.out.with_name(f"{args.out.name}.settings.json")
    job = Job(
        tasks,
        shop,
        plan_of,
        row,
        args.out,
        record,
        args.out.with_name(f"{args.out.name}.servers"),
        "rollouts",
        answer_by,
        others=True,
    )
    found = answer_all(args, job)
    rows = found.ordered(tasks)
    outcomes = [row["outcome"] for row in rows if row["outcome"] is not None]
    mean = sum(outcomes) / len(outcomes) if outcomes else float("nan")
    print(f"{args.out}: {len(outcomes)} scored rollouts, mean outcome {mean:.3f}")
    sys.stdout.flush()
    return say_end("assay rollout", rows, found)
