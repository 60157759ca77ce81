"""Sets of tasks for programs that keep the conversation themselves: written, and read again.

`write_set` writes a folder with the adapter of a form. `Episodes` reads it there and starts an
episode of one of its tasks: call by call, no messages. An episode has an environment of its own,
as in `assay rollout`: the same tools, checks of arguments, time limits and answers.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.family import all_families
from assay.task import RIGHT, Score, Task, TaskError, derive_seed, json_text, unscored, write_jsonl
from rewards.adapters import SETTINGS, TASKS, Words, in_words, load, score_text
from rollouts.environment import Budget, Environment, ModelTurn
from rollouts.environments import EnvironmentFactory, ToolEnvironment
from rollouts.tool_calls import make_call
from rollouts.tools import Context, Tool

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
class Taken:
    """A task that a form takes: in words, with the tools it is offered; `root` is the folder of
    its tasks file."""

    words: Words
    tools: list[Tool]
    root: Path


def write_set(form: str, taken: Sequence[Taken], env: Sequence[str], new: Path) -> None:
    """Write the adapter, and the tasks with the files that their tools read; `env` are environments
    of one's own, by whole paths."""
    if len({one.words.task.id for one in taken}) < len(taken):
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


def in_form(
    form: str, task: Task, root: Path, env: Sequence[str], offered: dict[str, Tool]
) -> Taken:
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
    return Taken(words, tools, root)


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
    """Refuse a tool whose name the form uses itself. In TRL the tools of all tasks are methods of
    one class, so two different tools may not share a name either."""
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


def _with_files(one: Taken, new: Path, copied: dict[Path, str]) -> Task:
    """The task with its files copied below `new`, each file or folder once."""
    files: dict[str, str] = {}
    for name, text in one.words.task.files.items():
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
    return replace(one.words.task, files=files)


def gym_row(words: Words, tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """A row of NeMo Gym's data; tools are in the form of OpenAI's Responses."""
    asked: dict[str, Any] = {"input": words.messages}
    if tools:
        asked["tools"] = [
            {"type": "function", **tool.spec.schema()["function"], "strict": tool.spec.strict}
            for tool in tools
        ]
    return {"responses_create_params": asked, "assay_id": words.task.id}


# --- episodes of a set


class ToolEpisode:
    """One episode of one task: its tools are called, then a text is scored with the files that
    they left. `failed` says why the infrastructure broke, "" if it did not."""

    def __init__(self, task: Task, environment: Environment, seconds: float) -> None:
        self.task, self.failed = task, ""
        self._environment, self._left = environment, seconds
        self._turn, self._over = 0, False
        self._files: Mapping[str, bytes] | None = None

    async def call(self, name: str, arguments: Any) -> str:
        """The answer of a tool to an object of arguments, or to JSON text of one. What the model
        did wrong is an answer as well. Raises what an `Environment` raises when the infrastructure
        broke; the episode then has no outcome."""
        if self._over or self._files is not None:
            return "error: the episode is over"
        said = ModelTurn("", [make_call(name, arguments)], False, self._turn, False, self._left)
        try:
            reply = await self._environment.reply(said)
        except Exception as error:
            self.failed, self._over = f"{type(error).__name__}: {error}", True
            raise
        self._turn, self._left, self._over = self._turn + 1, self._left - reply.seconds, reply.done
        return "\n".join(str(message["content"]) for message in reply.messages)

    async def close(self) -> Mapping[str, bytes]:
        """End the episode; the files that are scored beside the text."""
        if self._files is None:
            self._files = (await self._environment.close()).files
        return self._files

    async def score(self, text: str, truncated: bool = False) -> Score:
        """End the episode and score the text; without an outcome where an environment broke."""
        files = await self.close()
        return (
            unscored(self.failed) if self.failed else score_text(self.task, text, truncated, files)
        )


def packed(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files as JSON can hold them (base64)."""
    return {name: base64.b64encode(body).decode() for name, body in files.items()}


def unpacked(files: Mapping[str, str]) -> dict[str, bytes]:
    """What `packed` was given."""
    return {name: base64.b64decode(body) for name, body in files.items()}


def fields_of(tool: Tool) -> dict[str, dict[str, Any]]:
    """The schema of each argument, with its name as the description where it has none: TRL and
    inspect take no argument without one."""
    fields: dict[str, dict[str, Any]] = tool.spec.parameters["properties"]
    return {name: {"description": name, **field} for name, field in fields.items()}


def own_tools(factory: EnvironmentFactory, task: Task) -> list[Tool]:
    """The tools of one's own that the task acts on, which can be called one by one. Raises
    `TaskError` naming what needs more than calls: a built-in tool, or an environment that answers
    whole messages."""
    if not task.tools:
        return []
    chosen = factory.choose(task)
    if callable(chosen):
        context = Context(task, 0, 0, factory.root, factory.pool)
        made = chosen(context)
        context.close()
        if isinstance(made, ToolEnvironment):
            return list(made.tools.values())
        raise TaskError(
            f"task {task.id}: its environment {type(made).__name__} answers whole messages, "
            "which only Assay's own loop hands over; use assay rollout, eval or grpo"
        )
    if chosen[0]:
        raise TaskError(f"task {task.id}: its tool {chosen[0]} is built into Assay's own loop")
    return chosen[1]


class Episodes:
    """The tasks of an exported folder in order (`words`), and their episodes. Raises `TaskError`
    for tasks or tools that cannot be read."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        self.words = load(folder)
        self._by_id = {words.task.id: words for words in self.words}
        self._factory = EnvironmentFactory(folder, env=settings.get("env") or None)
        self._begun: Counter[str] = Counter()

    def __getitem__(self, task_id: str) -> Words:
        return self._by_id[task_id]

    def tools(self, task_id: str) -> list[Tool]:
        """The tools that the task is offered; none for a task in words alone."""
        return own_tools(self._factory, self._by_id[task_id].task)

    def all_tools(self) -> dict[str, Tool]:
        """The tools of all tasks, by name."""
        return {t.name: t for words in self.words for t in self.tools(words.task.id)}

    async def start(self, task_id: str) -> ToolEpisode:
        """A fresh episode of a task with tools."""
        task = self._by_id[task_id].task
        sample = self._begun[task_id]
        self._begun[task_id] += 1
        seed = derive_seed(0, "export", task_id, sample)
        environment = self._factory.maker(task, sample, seed)
        await environment.open()
        return ToolEpisode(task, environment, Budget().seconds)
