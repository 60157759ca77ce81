"""A Harbor task directory: what it asks for, its solution, its verifier, and a shell for a model.

The tests are put in place after the agent has ended, and what it left at their place is removed
first.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from assay.task import Task, TaskError
from rewards.harbor.family import REWARD, read_rewards
from rollouts.environment import EnvironmentFailure, EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.harbor.container import Container
from rollouts.harbor.dockerfile import DOCKERFILE, Image, chosen_python, put_image, read_image
from rollouts.sandbox.pool import Pool
from rollouts.tool_calls import ToolCall, ToolSpec
from rollouts.tools import TIME_UP, Ran, Refused, answer_calls, clip

NAME = "harbor_shell"
AGENT_S, VERIFIER_S = 1800.0, 600.0  # where task.toml says nothing
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
_NETWORK = re.compile(
    r"(?m)(?:^|[;&|]|\bsudo\s+)\s*(apt-get|apt|apk|curl|wget|uvx|uv|npm|npx|git clone)\b"
)
_TEMPLATE = re.compile(r"\$\{(\w+)\}")
# of [environment]: what the jail has none of
_NONE = ("docker_image", "mcp_servers", "gpus", "tpu", "healthcheck", "skills_dir")


class NoReward(RuntimeError):
    """The verifier left no reward that can be read: there is no outcome."""


@dataclass(frozen=True)
class HarborTask:
    """One directory, read: `config` is its task.toml. `problems`: what the jail cannot honour, each
    a code and a sentence."""

    folder: Path
    instruction: str
    config: Mapping[str, Any]
    image: Image
    problems: tuple[str, ...]

    def part(self, name: str) -> dict[str, Any]:
        """A table of task.toml."""
        return _table(self.config, name)

    def seconds(self, name: str, default: float) -> float:
        """The time limit of `agent` or `verifier`."""
        value = self.part(name).get("timeout_sec")
        return float(value) if isinstance(value, int | float) and value > 0 else default

    def env(self, name: str) -> dict[str, str]:
        """Variables of `solution` or `verifier`."""
        return {k: str(v) for k, v in _table(self.part(name), "env").items()}


def _table(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: Any = config.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def read_task(folder: Path, offline: bool = False) -> HarborTask:
    """Read a task directory. `offline`: also one that may use the network, without one. Raises
    `TaskError` for a folder that is no task directory."""
    try:
        config: dict[str, Any] = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TaskError(f"{folder}: not a task directory ({error})") from None
    context, problems = folder / "environment", _problems(config, folder, offline)
    if (context / DOCKERFILE).is_file():
        image = read_image(context)
    else:
        why = "base_image: no environment/Dockerfile; the jail pulls no images"
        image = Image(context, problems=[why])
    found = tuple(dict.fromkeys([*problems, *image.problems]))
    return HarborTask(folder, instruction, config, image, found)


def _problems(config: Mapping[str, Any], folder: Path, offline: bool) -> list[str]:
    """What of task.toml and the scripts the jail cannot honour."""
    environment, verifier = _table(config, "environment"), _table(config, "verifier")
    found = [f"environment: {name}: the jail has none" for name in _NONE if environment.get(name)]
    if config.get("steps"):
        found.append("steps: several steps; tasks of one step are read")
    public = environment.get("allow_internet") is True
    mode = "public" if public else str(environment.get("network_mode") or "")
    if mode not in ("", "no-network") and not offline:
        found.append(f"network: network_mode {mode}; --offline runs it without a network")
    if str(environment.get("os") or "linux").lower() != "linux":
        found.append(f"environment: os {environment['os']}: the jail has Linux")
    if verifier.get("environment_mode") == "separate" or verifier.get("environment"):
        found.append("verifier_image: the verifier has a container of its own; the jail has one")
    if verifier.get("collect"):
        found.append("services: commands in services before the verifier")
    found += [f"services: {p.name}" for p in (folder / "environment").glob("*compose*.y*ml")]
    for name in ("verifier", "solution"):
        if asked := _TEMPLATE.search(
            " ".join(map(str, _table(_table(config, name), "env").values()))
        ):
            found.append(f"secret: its {name} asks for ${asked[1]} of the machine")
    for script in ("tests/test.sh", "solution/solve.sh"):
        path = folder / script
        if not path.is_file():
            found.append(f"script: no {script}")
        elif said := _NETWORK.search(path.read_text(encoding="utf-8", errors="replace")):
            why = f"{script} runs {said[1]}, which needs a network or a system package"
            found.append(f"network: {why}")
    return found


def start_container(task: HarborTask, pool: Pool) -> Container:
    """A container with the image's files."""
    asked = task.part("environment")
    seconds = max(task.seconds("agent", AGENT_S), task.seconds("verifier", VERIFIER_S))
    made = Container(pool, seconds, int(asked.get("memory_mb") or 4096))
    put_image(made, task.image)
    made.cwd = str(asked.get("workdir") or made.cwd)
    return made


async def solve(task: HarborTask, container: Container) -> None:
    """Run the reference solution."""
    container.upload_tree(task.folder / "solution", "/solution")
    await container.run(
        "chmod +x /solution/solve.sh; /solution/solve.sh > /logs/agent/oracle.txt 2>&1",
        env=task.env("solution"),
        seconds=task.seconds("agent", AGENT_S),
    )


async def verify(task: HarborTask, container: Container) -> dict[str, float]:
    """The verifier's numbers by name. Raises `NoReward` where it leaves none."""
    container.clear("/tests")
    container.clear("/logs/verifier")
    container.upload_tree(task.folder / "tests", "/tests")
    ran = await container.run(
        "chmod +x /tests/test.sh; /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1",
        env=task.env("verifier"),
        seconds=task.seconds("verifier", VERIFIER_S),
    )
    left = container.files("/logs/verifier")
    try:
        if REWARD in left:
            return read_rewards(left[REWARD])
        if "reward.txt" in left:
            return read_rewards(left["reward.txt"].strip())
    except ValueError as error:
        raise NoReward(f"the verifier's reward cannot be read: {error}") from None
    said = left.get("test-stdout.txt", b"").decode("utf-8", "replace").strip()[-300:]
    raise NoReward(f"the verifier left no reward (status {ran.status}): {said or ran.why}")


class HarborShell:
    """An `Environment`: a shell in the container of one episode, and the verifier at its end."""

    def __init__(
        self, task: Task, root: Path, pool: Callable[[str], Pool], run_s: float = 200.0
    ) -> None:
        self._task, self._pool, self._run_s = task, pool, run_s
        self._folder = (root / task.files.get("environment", "")).parent
        self._open: tuple[HarborTask, Container] | None = None

    async def open(self) -> EpisodeStart:
        task = read_task(self._folder, offline=True)
        if task.problems:
            raise TaskError(f"task {self._task.id}: {'; '.join(task.problems)}")
        self._open = task, start_container(task, self._pool(chosen_python(task.image)))
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
        seconds = min(self._run_s, left)
        ran = await self._open[1].run(str(arguments["command"]), seconds=seconds)
        status = f"[exit status {ran.status}{': ' * bool(ran.why)}{ran.why}]"
        parts = [p.rstrip("\n") for p in (ran.stdout, ran.stderr, status) if p]
        return Ran(clip("\n".join(parts), SHOWN))
