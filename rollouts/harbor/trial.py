"""One trial of a Harbor task: the image, the solution or a model's commands, the verifier.

The tests are put in place after the agent has ended, and what it left at their place is removed
first.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from assay.task import TaskError
from rewards.harbor.family import REWARD, read_rewards
from rollouts.harbor.apart import Apart, judging_box, read_apart
from rollouts.harbor.box import Box, BoxLimits
from rollouts.harbor.image import DOCKERFILE, Image, build, read_image
from rollouts.harbor.interpreter import fitting
from rollouts.sandbox.pool import Pool

PYTHONS = "ASSAY_PYTHONS"  # more interpreters that may stand in for an image's, with colons
_NETWORK = re.compile(
    r"(?m)(?:^|[;&|]|\bsudo\s+)\s*(apt-get|apt|apk|curl|wget|uvx|uv|npm|npx|git clone)\b"
)
_TEMPLATE = re.compile(r"\$\{(\w+)\}")


class NoReward(RuntimeError):
    """The verifier left no reward that can be read: there is no outcome."""


@dataclass(frozen=True)
class HarborTask:
    """One directory, read. `problems`: what the jail cannot honour, a sentence each."""

    folder: Path
    instruction: str
    image: Image
    about: Mapping[str, Any]
    agent_s: float = 1800.0
    verifier_s: float = 600.0
    memory_mb: int = 4096
    verifier_env: Mapping[str, str] = field(default_factory=dict[str, str])
    solution_env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = ""
    apart: Apart | None = None  # the verifier's own container
    problems: tuple[str, ...] = ()


def pythons(more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Interpreters that may stand in: this one, the given ones, those of `ASSAY_PYTHONS`."""
    named = [p for p in os.environ.get(PYTHONS, "").split(":") if p]
    return tuple(dict.fromkeys([sys.executable, *more, *named]))


def read_task(folder: Path, offline: bool = False) -> HarborTask:
    """Read a task directory. Raises `TaskError` for one that is none."""
    try:
        config: dict[str, Any] = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TaskError(f"{folder}: not a task directory ({error})") from None
    environment, problems = _part(config, "environment"), _problems(config, folder, offline)
    image = Image()
    if (folder / "environment" / DOCKERFILE).is_file():
        image = read_image(folder / "environment")
        problems += image.problems
    else:
        problems.append("no environment/Dockerfile; the jail pulls no images")
    apart = read_apart(config, folder, problems)
    return HarborTask(
        folder,
        instruction,
        image,
        {**_part(config, "metadata"), "name": _part(config, "task").get("name", "")},
        _seconds(_part(config, "agent"), 1800.0),
        _seconds(_part(config, "verifier"), 600.0),
        int(environment.get("memory_mb") or 4096),
        _environment(_part(config, "verifier"), "verifier", problems),
        _environment(_part(config, "solution"), "solution", problems),
        str(environment.get("workdir") or ""),
        apart,
        tuple(dict.fromkeys(problems)),
    )


def _part(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: Any = config.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _seconds(part: Mapping[str, Any], default: float) -> float:
    value = part.get("timeout_sec")
    return float(value) if isinstance(value, int | float) and value > 0 else default


def _environment(part: Mapping[str, Any], name: str, problems: list[str]) -> dict[str, str]:
    found: Any = part.get("env") or {}
    values = {str(k): str(v) for k, v in cast("dict[str, Any]", found).items()}
    asked = [m[1] for value in values.values() for m in _TEMPLATE.finditer(value)]
    if asked:
        problems.append(f"its {name} asks for ${asked[0]} of the machine")
    return values


def _problems(config: Mapping[str, Any], folder: Path, offline: bool) -> list[str]:
    """What of task.toml and the scripts the jail cannot honour."""
    environment, verifier = _part(config, "environment"), _part(config, "verifier")
    found: list[str] = []
    if config.get("steps"):
        found.append("several steps; tasks of one step are read")
    mode = str(environment.get("network_mode") or "")
    if environment.get("allow_internet") is True:
        mode = "public"
    if mode not in ("", "no-network") and not offline:
        found.append(f"network_mode {mode}; --offline runs it without a network")
    for name in ("docker_image", "mcp_servers", "gpus", "tpu", "healthcheck", "skills_dir"):
        if environment.get(name):
            found.append(f"{name}: the jail has none")
    if str(environment.get("os") or "linux").lower() != "linux":
        found.append(f"os {environment['os']}")
    if verifier.get("collect"):
        found.append("commands in services before the verifier")
    found += [f"{p.name}: services" for p in (folder / "environment").glob("*compose*.y*ml")]
    for script in ("tests/test.sh", "solution/solve.sh"):
        path = folder / script
        if not path.is_file():
            found.append(f"no {script}")
        elif said := _NETWORK.search(path.read_text(encoding="utf-8", errors="replace")):
            found.append(f"{script} runs {said[1]}, which needs a network or a system package")
    return found


def chosen(image: Image, more: tuple[str, ...] = ()) -> str:
    """The interpreter for an image. Raises `TaskError` with what the nearest one lacks."""
    python, lacks = fitting(image, pythons(more))
    if not python:
        raise TaskError("; ".join(lacks))
    return python


async def started(task: HarborTask, pool: Pool) -> Box:
    """A box with the image's files."""
    box = Box(pool, BoxLimits(max(task.agent_s, task.verifier_s), task.memory_mb))
    await build(box, task.image, task.folder / "environment")
    box.cwd = task.workdir or box.cwd
    return box


async def solve(task: HarborTask, box: Box) -> None:
    """Run the reference solution."""
    box.upload_tree(task.folder / "solution", "/solution")
    await box.run(
        "chmod +x /solution/solve.sh; /solution/solve.sh > /logs/agent/oracle.txt 2>&1",
        env=task.solution_env,
        seconds=task.agent_s,
    )


async def verify(task: HarborTask, box: Box, pool: Callable[[Image], Pool]) -> dict[str, float]:
    """The verifier's numbers. `pool`: the sandbox for an image, where the verifier has one of its
    own. Raises `NoReward` where it leaves none."""
    if task.apart is not None:
        tests = task.folder / "tests"
        box = await judging_box(task.apart, box, tests, pool(task.apart.image))
    else:
        box.clear("/tests")
        box.clear("/logs/verifier")
        box.upload_tree(task.folder / "tests", "/tests")
    ran = await box.run(
        "chmod +x /tests/test.sh; /tests/test.sh > /logs/verifier/test-stdout.txt 2>&1",
        env=task.verifier_env,
        seconds=task.verifier_s,
    )
    left = box.files("/logs/verifier")
    try:
        if REWARD in left:
            return read_rewards(left[REWARD])
        if "reward.txt" in left:
            return read_rewards(left["reward.txt"].strip())
    except ValueError as error:
        raise NoReward(f"the verifier's reward cannot be read: {error}") from None
    said = left.get("test-stdout.txt", b"").decode("utf-8", "replace").strip()[-300:]
    raise NoReward(f"the verifier left no reward (status {ran.status}): {said or ran.why}")
