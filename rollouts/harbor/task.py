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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.task import Task, TaskError
from rewards.harbor import REWARD, read_rewards
from rollouts.environment import EnvironmentFailure, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.harbor.container import Container, Image, read_image, refuse_lacking, tree
from rollouts.sandbox.pool import Pool
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
# fields of task.toml that ask for what the jail has none of, by table
_NONE = {
    "environment": ("docker_image", "mcp_servers", "gpus", "tpu", "healthcheck", "skills_dir"),
    "verifier": ("environment", "collect"),
}


class NoReward(RuntimeError):
    """The verifier left no reward that can be read: there is no outcome."""


@dataclass(frozen=True)
class HarborTask:
    """One directory, read: `config` is its task.toml, every table of it there."""

    folder: Path
    instruction: str
    config: Mapping[str, dict[str, Any]]
    image: Image

    def limits(self, name: str) -> dict[str, Any]:
        """How the scripts of `solution` or `verifier` are run: their variables, and seconds."""
        said = self.config["agent" if name == "solution" else name].get("timeout_sec")
        variables = {k: str(v) for k, v in self.config[name].get("env", {}).items()}
        return {"env": variables, "seconds": float(said or SECONDS[name])}

    def container(self, pool: Pool) -> Container:
        """A container with the image's files."""
        asked, image = self.config["environment"], self.image
        seconds = max(self.limits(name)["seconds"] for name in SECONDS)
        made = Container(pool, seconds, int(asked.get("memory_mb") or 4096), env=image.env)
        made.put(image.files)
        made.cwd = str(asked.get("workdir") or image.cwd)
        return made


def read_task(folder: Path, offline: bool = False) -> HarborTask:
    """Read a task directory. `offline`: also one that may use the network, without one. Raises
    `TaskError` for a folder that is no task directory, and with a code and a sentence for one that
    the jail cannot honour."""
    try:
        said = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
        config = {name: dict(said.get(name, {})) for name in TABLES}
    except (OSError, ValueError, TypeError) as error:
        raise TaskError(f"{folder}: not a task directory ({error})") from None
    for table, names in _NONE.items():
        for name in names:
            if config[table].get(name):
                raise TaskError(f"environment: {table}.{name}: the jail has none")
    if said.get("steps") or config["verifier"].get("environment_mode") == "separate":
        raise TaskError("steps: several steps, or a verifier with a container of its own")
    for path in (folder / "environment").glob("*compose*.y*ml"):
        raise TaskError(f"services: {path.name}: the jail starts none")
    public = config["environment"].get("allow_internet") is True
    mode = "public" if public else config["environment"].get("network_mode") or "no-network"
    if mode != "no-network" and not offline:
        raise TaskError(f"network: network_mode {mode}; --offline runs it without a network")
    return HarborTask(folder, instruction, config, read_image(folder / "environment"))


async def solve(task: HarborTask, container: Container) -> None:
    """Run the reference solution."""
    container.put(tree(task.folder / "solution", "/solution"))
    await container.run(
        "chmod +x /solution/solve.sh; /solution/solve.sh > /logs/agent/oracle.txt 2>&1",
        **task.limits("solution"),
    )


async def verify(task: HarborTask, container: Container) -> dict[str, float]:
    """The verifier's numbers by name. Raises `NoReward` where it leaves none."""
    container.put(tree(task.folder / "tests", "/tests"), clear=("/tests", "/logs/verifier"))
    ran = await container.run(
        "chmod +x /tests/test.sh; /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1",
        **task.limits("verifier"),
    )
    left = container.files("/logs/verifier")
    try:
        for name in (REWARD, "reward.txt"):
            if name in left:
                return read_rewards(left[name])
    except ValueError as error:
        raise NoReward(f"the verifier's reward cannot be read: {error}") from None
    said = left.get("test-stdout.txt", b"").decode("utf-8", "replace").strip()[-300:]
    raise NoReward(f"the verifier left no reward (status {ran.status}): {said or ran.why}")


class HarborShell:
    """An `Environment`: a shell in the container of one episode, and the verifier at its end."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._task, self._shop = task, shop
        self._folder = (shop.root / task.files.get("environment", "")).parent
        self._open: tuple[HarborTask, Container] | None = None

    async def open(self) -> EpisodeStart:
        task = read_task(self._folder, offline=True)
        refuse_lacking(task.image, sys.executable)
        self._open = task, task.container(self._shop.pool(container=True))
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
        try:
            numbers = await verify(*opened)
        except NoReward as error:
            raise EnvironmentFailure(str(error)) from None
        return EpisodeEnd({REWARD: json.dumps(numbers).encode()})

    async def _run(self, left: float, call: ToolCall, arguments: dict[str, Any], _: float) -> Ran:
        if left <= 0:
            raise Refused("time_up", TIME_UP)
        assert self._open is not None
        seconds = min(self._shop.settings.run_s, left)
        ran = await self._open[1].run(str(arguments["command"]), seconds=seconds)
        status = f"[exit status {ran.status}{': ' * bool(ran.why)}{ran.why}]"
        parts = [p.rstrip("\n") for p in (ran.stdout, ran.stderr, status) if p]
        return Ran(clip("\n".join(parts), SHOWN))
