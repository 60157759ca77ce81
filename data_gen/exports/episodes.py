"""Tools of one's own for programs that keep the conversation themselves: call by call, no messages.

`Episodes` reads a folder that `assay export` wrote and starts an episode of one of its tasks. An
episode has an environment of its own, as in `assay rollout`: the same tools, checks of arguments,
time limits and answers.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.task import Score, Task, TaskError, derive_seed, unscored
from rewards.adapters import SETTINGS, Words, load, score_text
from rollouts.environment import Budget, Environment, ModelTurn
from rollouts.environments import EnvironmentFactory, ToolEnvironment
from rollouts.tool_calls import make_call
from rollouts.tools import Context, Tool


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
