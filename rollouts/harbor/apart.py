"""A verifier in a container of its own: its image, and what it gets of the agent's files.

The rules are Harbor's: the image is that of `tests/Dockerfile`, which holds the tests already;
without one it is the task's own image once more, and the tests are put into it. Of the agent's
files it gets `/logs/artifacts` and those that `artifacts` of task.toml names, at their paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rollouts.harbor.box import Box, BoxLimits, offered
from rollouts.harbor.image import DOCKERFILE, Image, build, read_image
from rollouts.sandbox.pool import Pool

PUBLISHED = "/logs/artifacts"
# of [verifier.environment]: what changes nothing in the jail, or only its bounds
_BOUNDS = ("cpus", "memory_mb", "storage_mb", "build_timeout_sec", "os")


@dataclass(frozen=True)
class Apart:
    """`bundled`: the tests are in the image. `artifacts`: absolute paths."""

    image: Image
    context: Path
    bundled: bool
    artifacts: tuple[str, ...]


def read_apart(config: Mapping[str, Any], folder: Path, problems: list[str]) -> Apart | None:
    """The verifier's container; None where it is the agent's. What cannot be honoured is added to
    `problems`."""
    verifier = cast("dict[str, Any]", config.get("verifier") or {})
    own: dict[str, Any] = verifier.get("environment") or {}
    if verifier.get("environment_mode") != "separate" and not own:
        return None
    problems += [f"[verifier.environment] {name}" for name in own if name not in _BOUNDS]
    problems += [f"tests/{p.name}: services" for p in (folder / "tests").glob("*compose*.y*ml")]
    bundled = (folder / "tests" / DOCKERFILE).is_file()
    context = folder / ("tests" if bundled else "environment")
    image = read_image(context) if (context / DOCKERFILE).is_file() else Image()
    problems += [f"the verifier's image: {p}" for p in image.problems] if bundled else []
    asked = cast("list[Any]", config.get("artifacts") or [])
    found = [_artifact(entry, problems) for entry in asked]
    return Apart(image, context, bundled, (PUBLISHED, *filter(None, found)))


def _artifact(entry: Any, problems: list[str]) -> str:
    """The path of an entry of `artifacts`; where it lands on the host is of no matter here."""
    made: dict[str, Any] = {"source": entry} if isinstance(entry, str) else entry
    path = str(made.get("source") or "").rstrip("/")
    if made.get("exclude") or made.get("service") not in (None, "main") or not offered(path):
        problems.append(f"the artifact {made}: only a path of the agent's container is copied")
        return ""
    return path


async def judging_box(apart: Apart, agent: Box, tests: Path, pool: Pool) -> Box:
    """The verifier's box: its image, the artifacts, and the tests."""
    box = Box(pool, BoxLimits(agent.limits.seconds, agent.limits.memory_mb))
    await build(box, apart.image, apart.context)
    if not apart.bundled:
        box.upload_tree(tests, "/tests")
    if agent.waiting:
        await agent.run("true")  # what was put in place and no command has met yet
    for path in apart.artifacts:
        left = agent.files(path)
        box.upload({f"{path}/{name}" if name else path: data for name, data in left.items()})
    box.clear("/logs/verifier")
    return box
