"""`assay export verifiers|trl|inspect|gym`: tasks in words, and the one file that a tool loads."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay import console
from assay.family import all_families
from assay.files import atomic_write_set
from assay.task import RIGHT, Task, TaskError, json_text, write_jsonl
from data_gen.exports import forms
from data_gen.exports.episodes import own_tools
from rewards.adapters.words import SETTINGS, TASKS, Words, in_words, score_text, settings_of
from rollouts.environments import EnvironmentFactory
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


def adapt(form: str, tasks: Sequence[tuple[Task, Path]], out: Path, env: Sequence[str] = ()) -> int:
    """Write the adapter, the tasks with the files that their tools read, and `refused.jsonl`.
    Each task comes with the folder of its tasks file; `env` are environments of one's own, by whole
    paths. Exit status 3 when some were left out. Raises `TaskError` when none is left."""
    taken: list[_Taken] = []
    refused: list[dict[str, str]] = []
    offered: dict[str, Tool] = {}
    for task, root in tasks:
        try:
            made = _checked(form, task, root, env)
            _refuse_names(form, task, made.tools, offered)
            taken.append(made)
        except TaskError as error:
            refused.append({"id": task.id, "why": str(error)})
    if not taken:
        raise TaskError(refused[0]["why"] if refused else "there are no tasks")
    ids = [one.task.id for one in taken]
    if len(set(ids)) < len(ids):
        raise TaskError("two tasks have one id; export their files one by one")
    name, use = FORMS[form]
    origins = sorted({f.origin for f in all_families().values() if f.origin})
    with atomic_write_set(out) as new:
        copied: dict[Path, str] = {}
        write_jsonl(new / TASKS, [_with_files(one, new, copied).to_json() for one in taken])
        (new / SETTINGS).write_bytes(json_text(settings_of(origins, env), indent=1))
        source = Path(forms.__file__).with_name(name)
        (new / name).write_bytes(source.read_bytes())
        if form == "gym":
            write_jsonl(new / "gym.jsonl", (gym_row(one.words, one.tools) for one in taken))
            (new / "assay.yaml").write_text(_GYM, encoding="utf-8")
        write_jsonl(new / "refused.jsonl", refused)
    print(f"{out}: {len(taken)} tasks; {use.format(out=out)}", file=sys.stderr)
    if refused:
        print(f"{len(refused)} left out; {out / 'refused.jsonl'} says why", file=sys.stderr)
    return console.UNSCORED if refused else console.DONE


def _checked(form: str, task: Task, root: Path, env: Sequence[str]) -> _Taken:
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
        asked["tools"] = [_response_tool(tool) for tool in tools]
    return {"responses_create_params": asked, "assay_id": words.task.id}


def _response_tool(tool: Tool) -> Mapping[str, Any]:
    return {"type": "function", **tool.spec.schema()["function"], "strict": tool.spec.strict}
