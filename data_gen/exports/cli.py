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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay import console
from assay.console import add_filter, task_filter
from assay.family import all_families, load_object, require_families, use_families
from assay.files import atomic_write_set
from assay.task import (
    RIGHT,
    Task,
    TaskError,
    json_text,
    read_tasks,
    refuse_without_gold,
    write_jsonl,
)
from data_gen.certificate import REFUSED
from data_gen.exports.episodes import own_tools
from data_gen.exports.harbor import BASE, Settings, directory, directory_name, write_directory
from rewards.adapters import SETTINGS, TASKS, Words, in_words, score_text
from rollouts.environments import ENVIRONMENTS, EnvironmentFactory
from rollouts.environments import NAME as ENV_NAME
from rollouts.tools import Tool

# form: (the adapter's file, how it is used)
FORMS = {
    "verifiers": ("assay_tasks.py", "PYTHONPATH={out} vf-validate assay-tasks"),
    "trl": ("assay_trl.py", "PYTHONPATH={out} python -c 'import assay_trl'"),
    "inspect": ("assay_inspect.py", "inspect eval {out}/assay_inspect.py"),
    "gym": ("app.py", "ng_run '+config_paths=[{out}/assay.yaml]'"),
}
OFFER_TOOLS = ("trl", "inspect", "gym")  # forms that run tools of one's own in Assay's environments
_NO_TOOLS = {
    "harbor": "an agent of Harbor has a shell alone",
    "verifiers": "verifiers starts tools in servers of their own, which this form does not write",
}
_GYM = """assay:
  resources_servers:
    assay:
      entrypoint: app.py
      domain: other
"""


# what stands beside tools: methods of TRL's Workbench, endpoints of Gym's server
_TAKEN = {
    "trl": ("reset", "get_reward", "run_python", "hand_in"),
    "gym": ("verify", "seed_session", "aggregate_metrics", "mcp"),
}


@dataclass(frozen=True)
class _Taken:
    """A task that a form takes: in words, with the tools it is offered; `root` is the folder of
    its tasks file."""

    words: Words
    tools: list[Tool]
    root: Path

    @property
    def task(self) -> Task:
        return self.words.task


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
    settings = Settings(args.base, args.seconds, tuple(args.package))
    taken: list[_Taken | Path] = []
    refused: list[dict[str, str]] = []
    offered: dict[str, Tool] = {}
    with atomic_write_set(args.out) as new:
        for task, path in tasks:
            try:
                if args.form == "harbor":
                    taken.append(_directory(task, path.parent, settings, env, new))
                else:
                    taken.append(_checked(args.form, task, path.parent, env, offered))
            except TaskError as error:
                refused.append({"id": task.id, "why": str(error)})
        if not taken:
            why = refused[0]["why"] if refused else "there are no tasks"
            raise TaskError(f"nothing to export: {why}")
        what = f"{len(taken)} task directories"
        if args.form != "harbor":
            _adapt(args.form, [one for one in taken if isinstance(one, _Taken)], env, new)
            what = f"{len(taken)} tasks; {FORMS[args.form][1].format(out=args.out)}"
        write_jsonl(new / REFUSED, refused)
    print(f"{args.out}: {what}", file=sys.stderr)
    if refused:
        print(f"{len(refused)} left out; {args.out / REFUSED} says why", file=sys.stderr)
    return console.UNSCORED if refused else console.DONE


def _directory(task: Task, root: Path, settings: Settings, env: Sequence[str], new: Path) -> Path:
    """Write one task's directory below `new`. An agent of Harbor has a shell; functions of a user,
    and the state behind them, are not in its container, so that tasks with such are refused.
    Built-in tools stand for what a shell does as well."""
    equipped = EnvironmentFactory(root, env=list(env) or None).equip(task)
    if own := [name for name in equipped.tools if name not in ENVIRONMENTS]:
        raise TaskError(refused_tools(equipped, own, "harbor"))
    target = new / directory_name(task)
    try:
        write_directory(target, directory(task, root, settings))
    except TaskError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def _adapt(form: str, taken: Sequence[_Taken], env: Sequence[str], new: Path) -> None:
    """Write the adapter, and the tasks with the files that their tools read; `env` are environments
    of one's own, by whole paths."""
    if len({one.task.id for one in taken}) < len(taken):
        raise TaskError("two tasks have one id; export their files one by one")
    origins = sorted({f.origin for f in all_families().values() if f.origin})
    copied: dict[Path, str] = {}
    write_jsonl(new / TASKS, [_with_files(one, new, copied).to_json() for one in taken])
    (new / SETTINGS).write_bytes(json_text({"families": origins, "env": [*env]}, indent=1))
    name = FORMS[form][0]
    shutil.copyfile(Path(__file__).with_name("forms") / name, new / name)
    if form == "gym":
        write_jsonl(new / "gym.jsonl", (gym_row(one.words, one.tools) for one in taken))
        (new / "assay.yaml").write_text(_GYM, encoding="utf-8")


def _checked(
    form: str, task: Task, root: Path, env: Sequence[str], offered: dict[str, Tool]
) -> _Taken:
    """The task in words. Raises `TaskError` where the form cannot run it."""
    factory = EnvironmentFactory(root, env=list(env) or None)
    task = factory.equip(task)
    try:
        tools = own_tools(factory, task)
    except TaskError as error:
        raise TaskError(f"{error}; {form} cannot offer it{_instead(task)}") from None
    if tools and form not in OFFER_TOOLS:
        raise TaskError(refused_tools(task, [tool.name for tool in tools], form))
    if task.files and not tools:
        raise TaskError(
            f"task {task.id}: its files ({', '.join(task.files)}) cannot be read in {form}, which "
            "hands over texts and calls of your own tools; export it to harbor"
        )
    for name, text in task.files.items():
        if not (root / text).exists():
            raise TaskError(
                f"task {task.id}: its file {name!r} is not at {root / text}; build the tasks again"
            )
    words = in_words(task)
    made = score_text(task, words.gold, files=words.files)
    if made.outcome is None or made.outcome < RIGHT:
        raise TaskError(f"task {task.id}: its gold as a text scores {made.outcome} ({made.why})")
    _refuse_names(form, task, tools, offered)
    return _Taken(words, tools, root)


def refused_tools(task: Task, names: Sequence[str], form: str) -> str:
    """Why a form does not take a task with tools of one's own."""
    return (
        f"task {task.id}: needs the tools {', '.join(names)}, which are functions of yours; "
        f"{_NO_TOOLS[form]}; export it to {', '.join(OFFER_TOOLS)}"
    )


def _instead(task: Task) -> str:
    """Which form runs a task with built-in tools, if any does."""
    if "environment" in task.tools:
        return ""
    if "harbor_shell" in task.tools:
        return "; it came from a Harbor directory, which is that form already"
    return "; export it to harbor, whose agents have a shell"


def _refuse_names(form: str, task: Task, tools: Sequence[Tool], offered: dict[str, Tool]) -> None:
    """Refuse names that the form uses itself; in TRL tools are methods of one class for all tasks,
    so that each needs a name of its own."""
    for tool in tools:
        name = tool.name
        if name in _TAKEN.get(form, ()) or (form == "trl" and name.startswith("_")):
            raise TaskError(
                f"task {task.id}: {form} takes no tool named {name!r}, a name that it uses itself; "
                "rename the tool, or export it to inspect"
            )
        if form == "trl" and offered.setdefault(name, tool).spec != tool.spec:
            raise TaskError(
                f"task {task.id}: its tool {name!r} has other arguments than that of other tasks; "
                "rename it for trl, or export it to inspect or gym"
            )


def _with_files(one: _Taken, new: Path, copied: dict[Path, str]) -> Task:
    """The task with its files copied below `new`, each file or folder once."""
    files: dict[str, str] = {}
    for name, text in one.task.files.items():
        source = (one.root / text).resolve()
        if source not in copied:
            copied[source] = f"files/{len(copied)}/{source.name}"
            target = new / copied[source]
            target.parent.mkdir(parents=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
        files[name] = copied[source]
    return replace(one.task, files=files)


def gym_row(words: Words, tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """A row of NeMo Gym's data; tools are in the form of OpenAI's Responses."""
    asked: dict[str, Any] = {"input": words.messages}
    if tools:
        asked["tools"] = [
            {"type": "function", **tool.spec.schema()["function"], "strict": tool.spec.strict}
            for tool in tools
        ]
    return {"responses_create_params": asked, "assay_id": words.task.id}
