"""A Harbor task as an environment of ours: a shell in the box, and the verifier at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.task import Task, TaskError
from rewards.harbor.family import REWARD
from rollouts.environment import EnvironmentFailure, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.harbor.box import Box
from rollouts.harbor.trial import HarborTask, NoReward, chosen, read_task, started, verify
from rollouts.sandbox.pool import Pool
from rollouts.tool_calls import ToolCall, ToolSpec
from rollouts.tools import TIME_UP, Ran, Refused, answer_calls

NAME = "harbor_shell"
SHOWN = 16_000  # characters of a command's output that a model reads, from start and end
SPEC = ToolSpec(
    NAME,
    "Run a shell command. Files stay from one command to the next; processes do not.",
    {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
)


class HarborShell:
    """An `Environment`: the box of one episode."""

    def __init__(
        self, task: Task, root: Path, pool: Callable[[str], Pool], run_s: float = 200.0
    ) -> None:
        self._task, self._pool, self._run_s = task, pool, run_s
        self._folder = (root / task.files.get("environment", "")).parent
        self._box: Box | None = None
        self._read: HarborTask | None = None

    async def open(self) -> EpisodeStart:
        task = read_task(self._folder, offline=True)
        if task.problems:
            raise TaskError(f"task {self._task.id}: {'; '.join(task.problems)}")
        self._read = task
        self._box = await started(task, self._pool(chosen(task.image)))
        return EpisodeStart(self._task.prompt, [SPEC])

    async def reply(self, said: ModelTurn) -> Reply:
        """Run every call of the message in order; a message without calls ends the episode.

        Commands do not count against the episode's tool time (`Budget.seconds`): a task's own time
        limit may be larger (1800 s where task.toml names none, the budget's default is 1000 s).
        """
        run = partial(self._run, said.seconds)
        found = await answer_calls(said, {NAME: SPEC}, run, refuse="Error: {}".format)
        messages = [{**m, "name": NAME} for m in found.messages]
        return replace(found, messages=messages, seconds=0.0)

    async def close(self) -> EpisodeEnd:
        """Run the verifier on what the agent left."""
        box, task = self._box, self._read
        self._box = None
        if box is None or task is None:
            return EpisodeEnd()
        try:
            numbers = await verify(task, box, lambda image: self._pool(chosen(image)))
        except NoReward as error:
            raise EnvironmentFailure(str(error)) from None
        return EpisodeEnd({REWARD: json.dumps(numbers).encode()})

    async def _run(self, left: float, call: ToolCall, arguments: dict[str, Any], _: float) -> Ran:
        if left <= 0:
            raise Refused("time_up", TIME_UP)
        assert self._box is not None
        ran = await self._box.run(str(arguments["command"]), seconds=min(self._run_s, left))
        parts = [
            ran.stdout,
            ran.stderr,
            f"[exit status {ran.status}{': ' * bool(ran.why)}{ran.why}]",
        ]
        return Ran(shortened("\n".join(p.rstrip("\n") for p in parts if p)))


def shortened(text: str, most: int = SHOWN) -> str:
    """A text with its middle left out, where it is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
