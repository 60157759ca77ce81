"""The lake of a task as its agent has it: an index to read, and a read-only mount to run in."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

from assay.task import Task, TaskError
from rollouts.environment import EnvironmentFailure, EpisodeEnd, shared_name
from rollouts.krama.index import LakeIndex, index_lake
from rollouts.sandbox.model import MIB, Limits, Result

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

KEY = "lake"  # of Task.files: the lake's folder
# a pipeline prints every step's result, and one gold list has 77,760 elements
OUTPUT_KB = 8192
ANSWER, PIPELINE = "answer.json", "pipeline.py"  # what an episode leaves to be scored


class LakeFolder:
    """One task's lake: indexed on opening, mounted as `data/` in every run, never copied.

    It keeps what an agent leaves: its `response`, what the `published` system would have answered
    (None: the same), the `values` that were printed, and the `code` that was run.
    """

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        if KEY not in task.files:
            raise TaskError(f"task {task.id}: files has no {KEY!r}; build it with `assay tasks`")
        self.path = shop.root / task.files[KEY]
        if not self.path.is_dir():
            raise TaskError(
                f"task {task.id}: lake {self.path} is not there; build the tasks again, or move "
                "the lake back"
            )
        self._seed, self._pool, self.settings = seed, shop.pool, shop.settings
        self._name = shared_name(self.path)
        self.index: LakeIndex = {}
        self.run_s = 0.0
        self.runs = 0
        self.level: str | None = None  # of the sandbox
        self.response: dict[str, Any] = {}
        self.published: dict[str, Any] | None = None
        self.values: list[Any] = []
        self.code: list[str] = []

    @property
    def shared(self) -> dict[str, str]:
        """What a run is given: the folder it sees → the sandbox's name of the lake."""
        return {"data": self._name}

    async def open(self, indexed: bool = True) -> None:
        """Announce the lake to the sandbox, and index it for an agent that is told of its files."""
        if indexed:
            rows = self.settings.snippet_rows
            self.index = await asyncio.to_thread(index_lake, self.path, rows=rows)
        try:
            self._pool().share(self._name, str(self.path.resolve()))
        except ValueError as error:
            raise EnvironmentFailure(str(error)) from None

    async def run(self, code: str, left: float = math.inf) -> Result:
        """Run Python beside the lake, for `left` seconds at most. Raises `EnvironmentFailure` when
        the sandbox broke."""
        limits = Limits(output_kb=OUTPUT_KB, wall_s=min(self.settings.lake_run_s, left))
        result = await self._pool().run(
            code, limits=limits, seed=self._seed % (1 << 32), shared=self.shared
        )
        self.runs += 1
        self.run_s += result.wall_s
        self.level = result.layers.get("level") or self.level
        if result.status == "sandbox_error":
            raise EnvironmentFailure(result.why)
        return result

    def close(self, **notes: Any) -> EpisodeEnd:
        """What an agent leaves: the response, the printed values, the pipeline, and its cost."""
        published = self.response if self.published is None else self.published
        row = {"response": self.response, "published": published, "values": self.values}
        data = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(data) > 64 * MIB:
            data = json.dumps({"response": {}, "published": {}, "values": []}).encode()
        cost = {"runs": self.runs, "run_s": round(self.run_s, 3), "sandbox": self.level}
        code = "\n\n".join(self.code).encode("utf-8", "surrogatepass")
        return EpisodeEnd({ANSWER: data, PIPELINE: code}, {**cost, **notes})
