"""`assay rollout`: sample answers to tasks, score them, write them as JSONL.

Answers come from a model folder, from an endpoint (`--model http://…`), or without a model from
`--solver`: gold, empty, cheat:NAME of any family, or a scripted agent. Resumable: tasks whose
samples are in the output file, under the same settings, are skipped; a killed run loses the tasks
it was in and no more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rewards import console
from rewards.chosen import add_chosen, chosen
from rewards.families import require_families, use_families
from rewards.file_sets import alone
from rewards.task import Task, TaskError, read_tasks
from rollouts.engines.server.opening import EMBEDDED, add_engine, served
from rollouts.resume import (
    begun_settings,
    check_settings,
    finished,
    in_order,
    whole_chunks,
    write_settings,
)
from rollouts.trajectory import Sampling
from rollouts.writer import Stopped, Writer

GIVE_UP = 20  # tasks in a row without an answer, after which an endpoint is taken for dead
RECORDED = (
    "model",
    "endpoint_model",
    "engine",
    "solver",
    "env",
    "n",
    "temperature",
    "top_p",
    "top_k",
    "max_new_tokens",
    "seed",
    "turns",
    "run_s",
    "max_length",
    "calls",
    "brief",
    "snippet_tokens",
)


def parser() -> console.Parser:
    made = console.parser("rollout", __doc__)
    add = made.add_argument
    add("--tasks", required=True, type=Path, help="tasks.jsonl")
    add("--out", required=True, type=Path, help="rollouts.jsonl")
    add("--model", help="Hugging Face folder, or URL of an OpenAI-compatible endpoint (up to /v1)")
    add("--endpoint-model", metavar="NAME", help="the model's name at the endpoint")
    add(
        "--solver",
        help="instead of a model: gold, empty, cheat:NAME, or a scripted agent such as reference; "
        "with --model as well its tokenizer gives the rows token ids",
    )
    console.add_family(made)
    add("--env", action="append", default=[], metavar="FILE.py:NAME", help="tools to add")
    add_chosen(made)
    console.add_limit(made)
    add("--n", type=int, default=None, help="samples a task (default: 8; 1 for gold and cheats)")
    _add_sampling(made)
    _add_episode(made)
    _add_machine(made)
    return made


def _add_sampling(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--temperature", type=float, default=1.0, help="0: greedy")
    add("--top-p", type=float, default=1.0, help="1: off")
    add("--top-k", type=int, default=0, help="0: off")
    add(
        "--max-new-tokens",
        type=int,
        default=0,
        metavar="N",
        help="of one message (0: 96, or 4096 where tasks have tools and at an endpoint)",
    )
    console.add_seed(made)


def _add_episode(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--turns", type=int, default=5, help="model messages of an episode")
    add("--run-s", type=float, default=200.0, help="seconds of one tool run")
    add("--max-length", type=int, default=0, help="tokens of an episode; 0: any")
    add("--calls", default="hermes", help="how the model spells tool calls")
    add(
        "--snippet-tokens",
        type=int,
        default=8000,
        help="of a lake's description in the first message",
    )
    add("--brief", action="store_true", help="a short description of the tool")


def _add_machine(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add_engine(made)
    add("--tokenizer", metavar="FOLDER", help="of a model behind a URL, with --engine")
    add("--slots", type=int, default=64, help="answers decoded side by side")
    add("--in-flight", type=int, default=16, help="requests side by side")
    add("--timeout", type=float, default=600.0, metavar="S", help="seconds one try may take")
    add("--patience", type=float, default=600.0, metavar="S", help="seconds to retry a request for")
    add(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="auto: the GPU where torch sees one, else the CPU",
    )
    add(
        "--dtype",
        default="auto",
        choices=("auto", "bfloat16", "float32"),
        help="auto: bfloat16 on a GPU and on a CPU that is fast with it, else "
        "float32; a run that goes on keeps its own",
    )
    add("--threads", type=int, default=0, help="0: all cores")


def main(argv: list[str]) -> int:
    """Exit status 0 done, 1 stopped, 2 tasks or model cannot be used, 3 done but some rollouts
    have no outcome."""
    args = parser().parse_args(argv)
    try:
        return _sample(args)
    except Stopped as error:
        print(f"assay rollout: {error}", file=sys.stderr)
        return 1
    except (TaskError, OSError) as error:
        return int(console.status_of(error, "assay rollout", (TaskError,)) or 1)


def _at_endpoint(args: argparse.Namespace) -> bool:
    return not args.solver and str(args.model).startswith(("http://", "https://"))


def _by_server(args: argparse.Namespace) -> bool:
    return not args.solver and args.engine != EMBEDDED


def _alone(args: argparse.Namespace) -> bool:
    """Whether each episode is asked for by itself, from a server or an endpoint."""
    return _at_endpoint(args) or _by_server(args)


def _settled(args: argparse.Namespace) -> list[Task]:
    """The tasks; what `args` left open is filled in. Raises `TaskError`."""
    from rollouts.solvers import is_answer

    if not args.model and not args.solver:
        raise TaskError("give --model DIR_OR_URL, or --solver gold for answers without a model")
    if _at_endpoint(args) and not args.endpoint_model:
        raise TaskError(f"{args.model} is an endpoint: name its model with --endpoint-model")
    for name, least in (("n", 1), ("slots", 1), ("in_flight", 1), ("turns", 1), ("limit", 0)):
        if getattr(args, name) is not None and getattr(args, name) < least:
            raise TaskError(
                f"--{name.replace('_', '-')} {getattr(args, name)}: give {least} or more"
            )
    use_families(args.family)
    tasks = chosen(args).of(read_tasks(args.tasks), str(args.tasks))[: args.limit or None]
    require_families(tasks)
    args.n = args.n or (1 if args.solver and is_answer(args.solver) else 8)
    return tasks


def _sample(args: argparse.Namespace) -> int:
    from rollouts.environment import Budget
    from rollouts.krama.folder import LakeSettings
    from rollouts.python_executor import ExecutorSettings
    from rollouts.ways import Draw
    from rollouts.workshop import ToolSettings, Workshop

    tasks = _settled(args)
    budget = Budget(args.turns, args.turns * args.run_s, args.max_length)
    executor = ExecutorSettings(run_s=args.run_s, uses=args.turns, brief=args.brief)
    lake = LakeSettings(snippet_tokens=args.snippet_tokens, run_s=args.run_s)
    shop = Workshop(args.tasks.parent, ToolSettings(budget, executor, lake), args.env or None)
    tasks = [shop.equip(task) for task in tasks]
    shop.check(tasks)
    long = _at_endpoint(args) or any(t.tools for t in tasks)
    args.max_new_tokens = args.max_new_tokens or (4096 if long else 96)
    sampling = Sampling(args.max_new_tokens, args.temperature, args.top_k, args.top_p, args.seed)
    with alone(args.out):
        return _fill(args, tasks, Draw(sampling, args.n, args.seed, shop, budget))


def _fill(args: argparse.Namespace, tasks: list[Task], draw: Any) -> int:
    """Sample what the output does not hold yet; the exit status."""
    from rollouts.now import run_now

    settings = _choose(args) | {k: getattr(args, k) for k in RECORDED}
    check_settings(args.out, settings)
    done = finished(args.out, args.n)
    chunk = max(1, args.slots // args.n)
    if not args.solver and not _alone(args):
        done = whole_chunks(args.out, tasks, done, chunk)
    todo = [task for task in tasks if task.id not in done]
    if done:
        print(f"{len(done)} tasks are done already; {len(todo)} to go")
    way = _opened(args, tasks, draw, chunk)
    write_settings(args.out, settings)
    give_up = GIVE_UP if _alone(args) else 0
    with (
        way as asked,
        Writer(args.out, args.seed, len(todo), give_up, args.tasks.parent) as writer,
    ):
        run_now(asked(todo, writer.add))
    in_order(args.out, tasks)
    return writer.report()


@contextmanager
def _opened(
    args: argparse.Namespace, tasks: Sequence[Task], draw: Any, chunk: int
) -> Generator[Any]:
    """How answers come about, with the servers that this needs."""
    if not _by_server(args):
        yield _way(args, tasks, draw, chunk)
        return
    from rollouts import ways

    folder = None if _at_endpoint(args) else Path(args.model)
    with served(args, folder, args.out.parent / f"{args.out.name}.servers") as found:
        engine = found.engine(args.in_flight, "OPENAI_API_KEY")
        yield ways.by_server(engine, found.tokenizer, draw, args.in_flight)


def _way(args: argparse.Namespace, tasks: Sequence[Task], draw: Any, chunk: int) -> Any:
    """How answers come about (rollouts/ways.py)."""
    from rollouts import ways
    from rollouts.prompts import ChatTokenizer
    from rollouts.solvers import is_answer, script

    if _at_endpoint(args):
        from rollouts.engines.http_engine import OpenAIEngine

        engine = OpenAIEngine(
            args.model,
            args.endpoint_model,
            in_flight=args.in_flight,
            patience_s=args.patience,
            timeout_s=args.timeout,
            calls=args.calls,
        )
        return ways.by_chat(engine, draw, args.in_flight)
    tokenizer = ChatTokenizer(Path(args.model), args.calls) if args.model else None
    if args.solver and is_answer(args.solver):
        return ways.by_answer(args.solver, tokenizer, draw)
    if tokenizer is None:
        from rollouts.engines.scripted import ScriptedChat
        from rollouts.tools import call_format

        said = script(args.solver, tasks, call_format(args.calls))
        return ways.by_chat(ScriptedChat(said, args.calls), draw, args.in_flight)
    engine = _engine(args, Path(args.model), tokenizer, list(tasks))
    return ways.by_engine(engine, tokenizer, draw, chunk)


def _engine(args: argparse.Namespace, folder: Path, tokenizer: Any, tasks: list[Task]) -> Any:
    """The model, or a script in its place."""
    if args.solver:
        from rollouts.engines.scripted import ScriptedEngine
        from rollouts.solvers import script

        return ScriptedEngine(script(args.solver, tasks, tokenizer.calls), tokenizer)
    from rollouts.engines.torch.engine import load_engine

    return load_engine(folder, tokenizer.stop_ids, args.slots, args.dtype, args.device)


def _choose(args: argparse.Namespace) -> dict[str, Any]:
    """Replace "auto" in `args` by the device and dtype to use; returns what of it is recorded.

    Raises `ModelError` for a GPU that is not there.
    """
    if args.solver or _alone(args):  # nothing is computed here
        return {}
    from rollouts.engines.torch.device import choose_device, choose_dtype
    from rollouts.engines.torch.engine import set_threads

    set_threads(args.threads or "auto")
    args.device = choose_device(args.device)
    if args.dtype == "auto":
        args.dtype = begun_settings(args.out).get("dtype") or choose_dtype("auto", args.device)
    return {"dtype": args.dtype}
