"""A dataset, a reward function and an environment with tools for TRL's GRPOTrainer.

from assay_trl import Workbench, dataset, reward

GRPOTrainer(model, reward_funcs=reward, train_dataset=dataset(), args=…)
GRPOTrainer(model, environment_factory=Workbench, train_dataset=dataset(), args=…)
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from assay.task import Task
from rewards.adapters.trl import trl_reward
from rewards.adapters.words import bare, load, score_text

HERE = Path(__file__).resolve().parent


def rows() -> list[dict[str, Any]]:
    """A row for each task: `prompt`, the chat; `task`, its JSON; `gold`, the text that scores 1."""
    return [
        {"prompt": w.messages, "task": json.dumps(bare(w.task)), "gold": w.gold} for w in load(HERE)
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
    """An environment of one episode: Python in Assay's sandbox, and a place to hand the answer in.

    Every public method is a tool. The reward is that of the answer handed in last.
    """

    def __init__(self) -> None:
        self._task: Task | None = None
        self._answer = ""

    def reset(self, task: str = "", **row: Any) -> str:
        del row
        self._task, self._answer = Task.from_json(json.loads(task)), ""
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
        from rollouts.event_loop import asyncio_run
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
        return score_text(self._task, self._answer).reward
