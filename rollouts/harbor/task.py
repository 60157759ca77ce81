"""A Harbor task directory: what it asks for, its solution, its verifier, and a shell for a model.

The tests are put in place after the agent has ended, and what it left at their place is removed
first.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.task import Task, TaskError
from rewards.harbor import REWARD, read_rewards
from rollouts.environment import EnvironmentFailure, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.harbor.container import Container, Image, read_image, refuse_lacking, tree
from rollouts.sandbox.model import Result
from rollouts.tool_calls import ToolCall, ToolSpec, object_schema
from rollouts.tools import TIME_UP, Ran, Refused, answer_calls, clip

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

NAME = "harbor_shell"
SECONDS = {"solution": 1800.0, "verifier": 600.0}  # where task.toml says nothing
TABLES = ("metadata", "task", "agent", "solution", "verifier", "environment")  # of task.toml
SHOWN = 16_000  # characters of a command's output that a model reads, from start and end
SPEC = ToolSpec(
    NAME,
    "Run a shell command. Files stay from one command to the next; processes do not.",
    object_schema({"command": {"type": "string"}}, ["command"]),
)


@dataclass(frozen=True)
class HarborTask:
    """One directory, read: `config` is its task.toml, every table of it there."""

    folder: Path
    instruction: str
    config: Mapping[str, dict[str, Any]]

    @cached_property
    def image(self) -> Image:
        """Raises `TaskError`, a code and a sentence, for one that the jail cannot stand in for."""
        return read_image(self.folder / "environment", self.config["environment"])

    async def run(self, container: Container, part: str, script: str, log: str) -> Result:
        """Run a script of `solution` or `verifier` as its table says. It prints to `log`."""
        asked = self.config["agent" if part == "solution" else part]
        variables = {k: str(v) for k, v in self.config[part].get("env", {}).items()}
        seconds = float(asked.get("timeout_sec") or SECONDS[part])
        words = f"chmod +x {script}; {script} > {log} 2>&1"
        return await container.run(words, seconds, env=variables)


def read_task(folder: Path) -> HarborTask:
    """Read a task directory. Raises `TaskError` for a folder that is none."""
    try:
        said = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
        config = said | {name: dict(said.get(name, {})) for name in TABLES}
    except (OSError, ValueError, TypeError) as error:
        raise TaskError(f"{folder}: not a task directory ({error})") from None
    return HarborTask(folder, instruction, config)


async def verify(task: HarborTask, container: Container) -> dict[str, float]:
    """The verifier's numbers by name. Raises `EnvironmentFailure` where it leaves none that can be
    read: there is no outcome."""
    container.put(tree(task.folder / "tests", "/tests"), clear=("/tests", "/logs/verifier"))
    log = "/logs/verifier/test-stdout.txt"
    ran = await task.run(container, "verifier", "/tests/test.sh", log)
    left = container.files("/logs/verifier")
    try:
        for name in (REWARD, "reward.txt"):
            if name in left:
                return read_rewards(left[name])
    except ValueError as error:
        raise EnvironmentFailure(f"the verifier's reward cannot be read: {error}") from None
    said = left.get("test-stdout.txt", b"").decode("utf-8", "replace").strip()[-300:]
    raise EnvironmentFailure(
        f"the verifier left no reward (status {ran.exit_code}): {said or ran.why}"
    )


class HarborShell:
    """An `Environment`: a shell in the container of one episode, and the verifier at its end."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._task, self._shop = task, shop
        self._folder = (shop.root / task.files.get("environment", "")).parent
        self._open: tuple[HarborTask, Container] | None = None

    async def open(self) -> EpisodeStart:
        task = read_task(self._folder)
        refuse_lacking(task.image, sys.executable)
        self._open = task, Container(self._shop.pool(container=True), task.image)
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
        opened, self._open = self._open, None
        if opened is None:
            return EpisodeEnd()
        return EpisodeEnd({REWARD: json.dumps(await verify(*opened)).encode()})

    async def _run(self, left: float, call: ToolCall, arguments: dict[str, Any], _: float) -> Ran:
        if left <= 0:
            raise Refused("time_up", TIME_UP)
        assert self._open is not None
        seconds = min(self._shop.settings.run_s, left)
        ran = await self._open[1].run(str(arguments["command"]), seconds)
        status = f"[exit status {ran.exit_code}{': ' * bool(ran.why)}{ran.why}]"
        parts = [p.rstrip("\n") for p in (ran.stdout, ran.stderr, status) if p]
        return Ran(clip("\n".join(parts), SHOWN))
