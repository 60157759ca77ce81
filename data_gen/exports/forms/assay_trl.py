"""A dataset, a reward function and an environment with tools for TRL's GRPOTrainer.

from assay_trl import Workbench, dataset, reward

GRPOTrainer(model, reward_funcs=reward, train_dataset=dataset(), args=…)
GRPOTrainer(model, environment_factory=Workbench, train_dataset=dataset(), args=…)

Tasks with tools of one's own need `Workbench`, which has these tools as methods.
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from assay.task import Task
from data_gen.exports.episodes import Episodes, ToolEpisode, fields_of
from rewards.adapters import bare, score_text, trl_reward
from rollouts.event_loop import asyncio_run
from rollouts.tools import Tool

HERE = Path(__file__).resolve().parent
EPISODES = Episodes(HERE)


def rows() -> list[dict[str, Any]]:
    """A row for each task: `prompt`, the chat; `task`, its JSON; `gold`, the text that scores 1."""
    return [
        {"prompt": w.messages, "task": json.dumps(bare(w.task)), "gold": w.gold}
        for w in EPISODES.words
    ]


def dataset() -> Any:
    """The rows as a `datasets.Dataset`, without gold."""
    from datasets import Dataset

    return Dataset.from_list([{k: row[k] for k in ("prompt", "task")} for row in rows()])


def reward(completions: list[Any], task: list[str], **other: Any) -> list[float | None]:
    """Assay's reward of each completion; None where there is no outcome, which TRL leaves out."""
    return trl_reward(completions, task, **other)


@cache
def _sandbox() -> Any:
    """One for all environments of this process: to start one takes seconds."""
    from rollouts.sandbox.pool import Pool

    return Pool()


class Workbench:
    """An environment of one episode: the tools of the tasks, Python in Assay's sandbox, and a
    place to hand the answer in.

    Every public method is a tool. The reward is that of the answer handed in last, with what the
    task's own tools left; to ask for it ends the episode of these tools.
    """

    def __init__(self) -> None:
        self._task: Task | None = None
        self._answer = ""
        self._episode: ToolEpisode | None = None

    def reset(self, task: str = "", **row: Any) -> str:
        del row
        if self._episode is not None:  # one that nobody asked the reward of
            asyncio_run(self._episode.close())
        self._task, self._answer, self._episode = Task.from_json(json.loads(task)), "", None
        if EPISODES.tools(self._task.id):
            self._episode = asyncio_run(EPISODES.start(self._task.id))
        # it is put right behind the last words of the prompt
        return "\n\nCall hand_in with your answer when it is ready."

    def run_python(self, code: str) -> str:
        """
        Run a Python program in a sandbox without network and show what it prints.

        Args:
            code: The program.

        Returns:
            What it printed.
        """
        from rollouts.sandbox.model import Limits

        made = asyncio_run(_sandbox().run(str(code), limits=Limits(wall_s=30)))
        return (made.stdout + made.stderr + made.why)[:4000]

    def hand_in(self, answer: str) -> str:
        """
        Hand in the answer.

        Args:
            answer: The whole answer, in the form that the task asks for.

        Returns:
            That it was taken.
        """
        self._answer = str(answer)
        return "The answer was taken."

    def get_reward(self) -> float | None:
        assert self._task is not None
        if self._episode is None:
            return score_text(self._task, self._answer).reward
        return asyncio_run(self._episode.score(self._answer)).reward

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        if self._episode is None:
            return f"error: this task has no tool {name!r}"
        return asyncio_run(self._episode.call(name, arguments))


def _method(tool: Tool) -> Callable[..., str]:
    """The tool as a method that TRL can read: named and typed arguments, a docstring in Google's
    style with a line for each."""

    def call(self: Workbench, **arguments: Any) -> str:
        return self._call(tool.name, arguments)

    fields, hints = fields_of(tool), typing.get_type_hints(tool.function, include_extras=True)
    of = inspect.signature(tool.function).parameters
    lines = [f"    {name}: {field['description']}" for name, field in fields.items()]
    lines = ["", "Args:", *lines] if lines else []
    keyword = inspect.Parameter.KEYWORD_ONLY
    taken = [of[name].replace(kind=keyword, annotation=hints[name]) for name in fields]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = "\n".join([tool.spec.description, *lines])
    call.__annotations__ = {**{name: hints[name] for name in fields}, "return": str}
    call.__signature__ = inspect.Signature([first, *taken])  # type: ignore[attr-defined]
    return call


for _tool in EPISODES.all_tools().values():
    setattr(Workbench, _tool.name, _method(_tool))
