"""`assay export NAME --tasks FILE --out DIR`: our tasks for other trainers and harnesses.

harbor       one Harbor task directory for each task, with a scorer that needs no Assay
verifiers    an environment of verifiers that loads these tasks and scores by them
trl          a reward function, a dataset and tools for TRL's GRPOTrainer
inspect      an inspect_ai task, evaluated with `inspect eval`
gym          a resource server of NeMo Gym

trl, inspect and gym offer tools of your own (`--env`, or a family's environment), in a fresh
environment for each episode. Tasks that a form cannot run are listed in `refused.jsonl`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from assay import console
from assay.console import add_filter, task_filter
from assay.family import require_families, use_families
from assay.files import atomic_write_set
from assay.plugins import load_object
from assay.task import Task, TaskError, read_tasks, refuse_without_gold, write_jsonl
from data_gen.exports.adapt import FORMS, adapt, refused_tools
from data_gen.exports.harbor import BASE, Settings, directory, directory_name, write_directory
from rollouts.environments import ENVIRONMENTS, EnvironmentFactory
from rollouts.environments import NAME as ENV_NAME


def options() -> console.Parser:
    made = console.parser("export", __doc__)
    made.add_argument("form", choices=("harbor", *FORMS), help="what to write")
    console.add_tasks(made)
    console.add_family(made)
    made.add_argument(
        "--env", action="append", default=[], metavar="FILE.py:NAME", help="tools of your own"
    )
    console.add_out(made, "folder to write into", required=True)
    add_filter(made)
    console.add_limit(made)
    made.add_argument("--base", default=BASE, help="harbor: image to build on, pinned")
    made.add_argument(
        "--seconds", type=int, default=1800, help="harbor: time that an agent has for a task"
    )
    made.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME==VERSION",
        help="harbor: also installed in the image, for agents; may be repeated",
    )
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some tasks could not be exported. Raises `TaskError`."""
    args = options().parse_args(argv)
    use_families(args.family)
    tasks = [(task, path) for path in args.tasks for task in read_tasks(path)]
    asked = task_filter(args)
    if asked and not any(asked.accepts(task) for task, _ in tasks):
        asked.select((task for task, _ in tasks), "--tasks")
    tasks = [(task, path) for task, path in tasks if asked.accepts(task)]
    tasks = tasks[: args.limit] if args.limit else tasks
    require_families(task for task, _ in tasks)
    refuse_without_gold((task for task, _ in tasks), "--tasks")
    env = [load_object(spec, ENV_NAME, "--env")[1] for spec in args.env]
    if args.form != "harbor":
        return adapt(args.form, [(task, path.parent) for task, path in tasks], args.out, env)
    return harbor(tasks, args.out, Settings(args.base, args.seconds, tuple(args.package)), env)


def harbor(
    tasks: Sequence[tuple[Task, Path]], out: Path, settings: Settings, env: Sequence[str] = ()
) -> int:
    """Write the directories, and `refused.jsonl` with a reason for each task left out."""
    if ":" not in settings.base or settings.base.endswith(":latest"):
        raise TaskError(f"--base {settings.base}: pin it, as in {BASE}")
    for package in settings.packages:
        if "==" not in package:
            raise TaskError(f"--package {package}: pin it, as in pandas==2.2.3")
    refused: list[dict[str, str]] = []
    written = 0
    with atomic_write_set(out) as new:
        for task, path in tasks:
            name = directory_name(task)
            try:
                _refuse_own_tools(task, path.parent, env)
                write_directory(new / name, directory(task, path.parent, settings))
                written += 1
            except TaskError as error:
                shutil.rmtree(new / name, ignore_errors=True)
                refused.append({"id": task.id, "why": str(error)})
        write_jsonl(new / "refused.jsonl", refused)
        if not written:
            first = refused[0]["why"] if refused else "there are no tasks"
            raise TaskError(f"nothing to export: {first}")
    print(f"{out}: {written} task directories", file=sys.stderr)
    if refused:
        print(f"{len(refused)} left out; {out / 'refused.jsonl'} says why", file=sys.stderr)
    return console.UNSCORED if refused else console.DONE


def _refuse_own_tools(task: Task, root: Path, env: Sequence[str]) -> None:
    """An agent of Harbor has a shell; functions of a user, and the state behind them, are not in
    its container. Built-in tools stand for what a shell does as well."""
    factory = EnvironmentFactory(root, env=list(env) or None)
    task = factory.equip(task)
    own = [name for name in task.tools if name not in ENVIRONMENTS]
    if own:
        raise TaskError(refused_tools(task, own, "harbor"))
