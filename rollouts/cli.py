"""`assay rollout`: sample answers to tasks from a model, score them, write them as JSONL.

Resumable: tasks whose samples are already in the output file, under the same settings, are
skipped; the file grows by whole tasks, so a killed run loses the chunk it was in and no more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewards.families import score_answer
from rewards.task import Task, TaskError, json_line, read_jsonl, read_tasks, write_jsonl
from rollouts.trajectory import Sampling


def finished(out: Path, n: int) -> set[str]:
    """Ids of tasks with all `n` samples in `out`. A torn last line is cut off the file first."""
    if not out.is_file():
        return set()
    data = out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        out.write_bytes(whole)
    counts = Counter(str(row["task_id"]) for _, row in read_jsonl(out))
    torn = {task for task, count in counts.items() if count != n}
    if torn:
        write_jsonl(out, [row for _, row in read_jsonl(out) if row["task_id"] not in torn])
    return set(counts) - torn


def whole_chunks(out: Path, tasks: Sequence[Task], done: set[str], chunk: int) -> set[str]:
    """`done` without the tasks of a chunk that was only begun; their rows leave the file.

    What is decoded side by side decides the last bits of a log-probability: a run that goes on
    meets the same neighbours as one that was never stopped, and so writes the same bytes.
    """
    kept = len(done) // chunk * chunk
    begun = {task.id for task in tasks[kept : len(done)]}
    first = {task.id for task in tasks[: len(done)]}
    if not begun or len(done) == len(tasks) or done != first:
        return done
    write_jsonl(out, [row for _, row in read_jsonl(out) if row["task_id"] not in begun])
    return done - begun


def begun_settings(out: Path) -> dict[str, Any]:
    """The settings `out` was begun with, {} for a new file. Files from before the dtype was
    recorded were sampled in bfloat16."""
    beside = out.with_name(out.name + ".settings.json")
    if not (beside.is_file() and out.is_file()):
        return {}
    return {"dtype": "bfloat16"} | json.loads(beside.read_text(encoding="utf-8"))


def check_settings(out: Path, settings: dict[str, Any]) -> None:
    """Refuse to mix two samplings in one file: the settings stand beside it."""
    beside = out.with_name(out.name + ".settings.json")
    if beside.is_file() and out.is_file():
        old = begun_settings(out)
        changed = sorted(k for k in settings if old.get(k) != settings[k])
        if changed:
            raise TaskError(
                f"{out} was sampled with another {', '.join(changed)}; give another --out"
            )
    beside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="assay rollout", description=__doc__)
    made.add_argument("--tasks", required=True, type=Path, help="tasks.jsonl")
    made.add_argument("--model", required=True, help="Hugging Face folder")
    made.add_argument(
        "--solver",
        help="a scripted agent instead of the model, whose tokenizer is "
        "used all the same: reference, baseline … (rollouts/solvers.py)",
    )
    made.add_argument("--out", required=True, type=Path, help="rollouts.jsonl")
    made.add_argument("--n", type=int, default=8, help="samples a task")
    made.add_argument("--temperature", type=float, default=1.0)
    made.add_argument("--top-p", type=float, default=1.0)
    made.add_argument("--top-k", type=int, default=0)
    made.add_argument(
        "--max-new-tokens",
        type=int,
        default=0,
        metavar="N",
        help="of one message (0: 96, or 4096 where tasks have tools)",
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--slots", type=int, default=64, help="answers decoded side by side")
    made.add_argument("--turns", type=int, default=5, help="model messages of an episode")
    made.add_argument("--run-s", type=float, default=200.0, help="seconds of one tool run")
    made.add_argument("--max-length", type=int, default=0, help="tokens of an episode; 0: any")
    made.add_argument("--calls", default="hermes", help="how the model spells tool calls")
    made.add_argument(
        "--snippet-tokens",
        type=int,
        default=8000,
        help="of a lake's description in the first message",
    )
    made.add_argument("--brief", action="store_true", help="a short description of the tool")
    made.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="auto: the GPU where torch sees one, else the CPU",
    )
    made.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "bfloat16", "float32"),
        help="auto: bfloat16 on a GPU and on a CPU that is fast with it, else "
        "float32; a run that goes on keeps its own",
    )
    made.add_argument("--threads", type=int, default=0, help="0: all cores")
    return made


def main(argv: list[str]) -> int:
    """Exit status 0, or 2 with one sentence when tasks or model cannot be used."""
    args = parser().parse_args(argv)
    from rollouts.engines.torch import ModelError
    from rollouts.prompts import PromptError

    try:
        _sample(args)
    except (TaskError, PromptError, ModelError, OSError) as error:
        print(f"assay rollout: {error}", file=sys.stderr)
        return 2
    return 0


def _engine(args: argparse.Namespace, folder: Path, tokenizer: Any, tasks: list[Task]) -> Any:
    """The model, or a script in its place."""
    if args.solver:
        from rollouts.engines.scripted import ScriptedEngine
        from rollouts.solvers import script

        return ScriptedEngine(script(args.solver, tasks, tokenizer.calls), tokenizer)
    from rollouts.engines.torch import load_engine

    return load_engine(folder, tokenizer.stop_ids, args.slots, args.dtype, args.device)


def _choose(args: argparse.Namespace) -> dict[str, Any]:
    """Replace "auto" in `args` by the device and dtype to use; returns what of it is recorded.

    Raises `ModelError` for a GPU that is not there.
    """
    from rollouts.engines.torch import choose_device, choose_dtype

    if args.solver:  # no model computes anything
        return {}
    args.device = choose_device(args.device)
    if args.dtype == "auto":
        args.dtype = begun_settings(args.out).get("dtype") or choose_dtype("auto", args.device)
    return {"dtype": args.dtype}


def _sample(args: argparse.Namespace) -> None:
    from tqdm import tqdm

    from rollouts.engines.torch import set_threads
    from rollouts.environment import Budget
    from rollouts.episode import rollout, to_json
    from rollouts.krama.folder import LakeSettings
    from rollouts.prompts import ChatTokenizer
    from rollouts.python_executor import ExecutorSettings
    from rollouts.workshop import ToolSettings, Workshop, run_now

    tasks = read_tasks(args.tasks)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.max_new_tokens = args.max_new_tokens or (4096 if any(t.tools for t in tasks) else 96)
    sampling = Sampling(args.max_new_tokens, args.temperature, args.top_k, args.top_p, args.seed)
    keys = (
        "n",
        "temperature",
        "top_p",
        "top_k",
        "max_new_tokens",
        "seed",
        "solver",
        "turns",
        "run_s",
        "max_length",
        "calls",
        "brief",
        "snippet_tokens",
    )
    set_threads(args.threads or "auto")
    chosen = {"model": args.model} | _choose(args)
    check_settings(args.out, chosen | {k: getattr(args, k) for k in keys})
    chunk = max(1, args.slots // args.n)
    done = whole_chunks(args.out, tasks, finished(args.out, args.n), chunk)
    todo = [task for task in tasks if task.id not in done]
    if done:
        print(f"{len(done)} tasks are done already; {len(todo)} to go")
    folder = Path(args.model)
    tokenizer = ChatTokenizer(folder, args.calls)
    engine = _engine(args, folder, tokenizer, tasks)
    budget = Budget(args.turns, args.turns * args.run_s, args.max_length)
    executor = ExecutorSettings(run_s=args.run_s, uses=args.turns, brief=args.brief)
    lake = LakeSettings(snippet_tokens=args.snippet_tokens, run_s=args.run_s)
    shop = Workshop(args.tasks.parent, ToolSettings(budget, executor, lake))
    outcomes: list[float] = []
    with (
        open(args.out, "ab") as file,
        tqdm(total=len(todo), desc="rollouts", unit="task") as bar,
    ):
        for at in range(0, len(todo), chunk):
            part = todo[at : at + chunk]
            step = rollout(
                part,
                engine,
                tokenizer,
                sampling,
                args.n,
                args.seed,
                maker=shop.maker,
                budget=budget,
            )
            groups = run_now(step)
            for task, group in zip(part, groups, strict=True):
                scores = [score_answer(task, t.answer()) for t in group]
                outcomes += [s.outcome for s in scores if s.outcome is not None]
                rows = [to_json(t, s, task) for t, s in zip(group, scores, strict=True)]
                file.write(b"".join(map(json_line, rows)))
            file.flush()
            bar.update(len(part))
    mean = sum(outcomes) / len(outcomes) if outcomes else float("nan")
    print(f"{args.out}: {len(outcomes)} new scored rollouts, mean outcome {mean:.3f}")
