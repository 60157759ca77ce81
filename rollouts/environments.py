"""From a task's tools to its environment, and what environments share: sandbox and files."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from configs.schema import ToolsConfig
from rewards.task import Task, TaskError
from rollouts.environment import Budget, Environment
from rollouts.lake.dsguru import DsGuru, Variant
from rollouts.lake.explore import LakeAgent
from rollouts.lake.folder import KEY as LAKE
from rollouts.lake.folder import LakeSettings, shared_name
from rollouts.python_executor import NAME, ExecutorSettings, PythonExecutor
from rollouts.sandbox.capacity import worker_count
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import Pool

T = TypeVar("T")


@dataclass(frozen=True)
class ToolSettings:
    """How episodes run: their bounds, the sandbox, the tool. `workers` 0: one a core, as far
    as the memory goes."""

    budget: Budget = field(default_factory=Budget)
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)
    workers: int = 0


def tool_settings(config: ToolsConfig, budget: Budget | None = None) -> ToolSettings:
    """From a run's settings."""
    executor = ExecutorSettings(
        run_s=config.run_s, file_mb=config.file_mb, uses=(budget or Budget()).turns,
        output_kb=config.output_kb, brief=config.brief,
    )  # fmt: skip
    lake = LakeSettings(
        snippet_tokens=config.snippet_tokens, rows=config.snippet_rows, run_s=config.run_s
    )
    return ToolSettings(budget or Budget(), executor, lake, config.workers)


class Workshop:
    """Makes environments for tasks, with one sandbox pool and one copy of every input file.

    `root` is what relative paths in `Task.files` start from: the folder of the tasks file.
    """

    def __init__(self, root: Path, settings: ToolSettings | None = None) -> None:
        self.root, self.settings = root, settings or ToolSettings()
        self._pool: tuple[asyncio.AbstractEventLoop, Pool] | None = None
        self._shared: dict[str, str] = {}

    def announce(self, tasks: Iterable[Task]) -> None:
        """Name the lakes that will be needed, so that the sandbox starts once with all of them
        rather than again for each."""
        for task in tasks:
            path = self.root / task.files.get(LAKE, "")
            if LAKE in task.files and path.is_dir():
                self._shared[shared_name(path)] = str(path.resolve())

    def pool(self) -> Pool:
        """The sandbox of the running event loop, made when first asked for."""
        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool[0] is not loop:
            workers = self.settings.workers or worker_count()
            config = replace(Config(), workers=workers, queue=100_000, shared=self._shared)
            self._pool = (loop, Pool(config))
        return self._pool[1]

    def files(self, task: Task) -> Mapping[str, bytes]:
        """The task's files as bytes, by name. Raises `TaskError` naming what is not there."""
        found: dict[str, bytes] = {}
        for name, path in task.files.items():
            try:
                found[name] = _read(str(self.root / path))
            except OSError as error:
                raise TaskError(
                    f"task {task.id}: file {name}: {self.root / path}: {error.strerror}; build "
                    "the tasks again or give the folder they were built in"
                ) from None
        return found

    def maker(self, task: Task, sample: int, seed: int) -> Environment:
        """A `Maker`. Raises `TaskError` for tools that no environment here offers."""
        for tool in task.tools:
            if tool in ENVIRONMENTS:
                return ENVIRONMENTS[tool](self, task, sample, seed)
        known = ", ".join(ENVIRONMENTS)
        raise TaskError(f"task {task.id}: no environment has {', '.join(task.tools)}; has {known}")

    async def close(self) -> None:
        """End the sandbox."""
        if self._pool is not None and self._pool[0] is asyncio.get_running_loop():
            await self._pool[1].close()
        self._pool = None


@functools.lru_cache(maxsize=256)
def _read(path: str) -> bytes:
    return Path(path).read_bytes()


def _python_executor(shop: Workshop, task: Task, sample: int, seed: int) -> Environment:
    del sample  # the seed holds it
    return PythonExecutor(task, seed, shop.pool, shop.files, shop.settings.executor)


def _ds_guru(variant: Variant) -> Callable[[Workshop, Task, int, int], Environment]:
    def make(shop: Workshop, task: Task, sample: int, seed: int) -> Environment:
        return DsGuru(task, seed, shop.root, shop.pool, shop.settings.lake, variant)

    return make


def _lake_agent(shop: Workshop, task: Task, sample: int, seed: int) -> Environment:
    return LakeAgent(task, seed, shop.root, shop.pool, shop.settings.lake)


# tool name → environment. A kind of environment adds one function and one line.
ENVIRONMENTS: dict[str, Callable[[Workshop, Task, int, int], Environment]] = {
    NAME: _python_executor,
    "ds_guru_no_context": _ds_guru("no-context"),
    "ds_guru_one_shot": _ds_guru("one-shot"),
    "ds_guru_few_shot": _ds_guru("few-shot"),
    "lake_agent": _lake_agent,
}


_runner: asyncio.Runner | None = None


def run_now(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code, always on the same event loop: a sandbox belongs to
    the loop it was started on, and starting one costs a second."""
    global _runner
    if _runner is None:
        _runner = asyncio.Runner()
    return _runner.run(step)
