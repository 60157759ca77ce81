"""From a task's tools to its environment, and what environments share: sandbox and files."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.family import all_families, family_of
from assay.task import Task, TaskError
from configs.schema import ToolsConfig
from rollouts.combined import Combined
from rollouts.context import Context
from rollouts.environment import Budget, Environment, ExecutorSettings, LakeSettings
from rollouts.own import Own, made, read_env
from rollouts.toolbox import Toolbox
from rollouts.tools import Tool
from rollouts.words.prompts import Places, Prompts, prompts_of

if TYPE_CHECKING:  # environments and the sandbox are loaded where a task needs them
    from rollouts.krama.agents.notebook import Notebook
    from rollouts.krama.dsguru import Variant
    from rollouts.sandbox.pool import Pool


@dataclass(frozen=True)
class ToolSettings:
    """How episodes run: their bounds, the sandbox, the tool. `workers` 0: one a core, as far
    as the memory goes. `steps`: actions of an agent that counts its own."""

    budget: Budget = field(default_factory=Budget)
    executor: ExecutorSettings = field(default_factory=ExecutorSettings)
    lake: LakeSettings = field(default_factory=LakeSettings)
    workers: int = 0
    steps: int = 20


# what has words → where they are, and how they are read out of a release
WORDS: Places = {
    "refinement": ("rollouts.cdr.prompts", "rollouts.cdr.words"),
    "python_executor": ("rollouts.python_tool", "rollouts.dare.words"),
    "ds_guru": ("rollouts.krama.words", "rollouts.krama.words"),
}


def read_prompts(text: str, strict: bool = False) -> Prompts:
    """`prompts=TEXT`; `strict` refuses a release that is not known. Raises `ConfigError`."""
    return prompts_of(WORDS, text, strict)


def tool_settings(
    config: ToolsConfig, budget: Budget | None = None, prompts: Prompts | None = None
) -> ToolSettings:
    """From a run's settings. In a release's words an agent is told whole errors, as there."""
    words = (prompts or Prompts(WORDS)).words
    executor = ExecutorSettings(
        run_s=config.run_s,
        file_mb=config.file_mb,
        uses=(budget or Budget()).turns,
        output_kb=config.output_kb,
        brief=config.brief,
        words=words.get("python_executor"),
    )
    guru = words.get("ds_guru")
    lake = LakeSettings(
        snippet_tokens=config.snippet_tokens,
        rows=config.snippet_rows,
        tries=config.tries,
        run_s=config.run_s,
        feedback=0 if guru and guru.source == "release" else LakeSettings.feedback,
        words=guru,
    )
    return ToolSettings(budget or Budget(), executor, lake, config.workers)


def in_words(prompts: Prompts) -> ToolSettings:
    """The usual settings, in these words."""
    found, said = ToolSettings(), tool_settings(ToolsConfig(), prompts=prompts)
    executor = replace(found.executor, words=said.executor.words)
    lake = replace(found.lake, words=said.lake.words, feedback=said.lake.feedback)
    return replace(found, executor=executor, lake=lake)


class EnvironmentFactory:
    """Makes environments for tasks, with one sandbox pool and one copy of every input file.

    `root` is what relative paths in `Task.files` start from: the folder of the tasks file. `env`
    adds an environment of one's own: `FILE.py:NAME`, a list of tools, a factory (rollouts/own.py).
    Raises `TaskError` for one that cannot be used.
    """

    def __init__(self, root: Path, settings: ToolSettings | None = None, env: Any = None) -> None:
        self.root, self.settings = root, settings or ToolSettings()
        self.env = read_env(env)
        self._families: dict[str, Own] = {}
        self._pool: tuple[asyncio.AbstractEventLoop, Pool] | None = None
        self._boxes: dict[tuple[asyncio.AbstractEventLoop, str], Pool] = {}
        self._shared: dict[str, str] = {}

    def announce(self, tasks: Iterable[Task]) -> None:
        """Name the lakes that will be needed, so that the sandbox starts once with all of them
        rather than again for each."""
        acting = [task for task in tasks if task.tools and task.files]
        if not acting:
            return
        from rollouts.krama.folder import KEY, shared_name

        for task in acting:
            path = self.root / task.files.get(KEY, "")
            if KEY in task.files and path.is_dir():
                self._shared[shared_name(path)] = str(path.resolve())

    def pool(self) -> Pool:
        """The sandbox of the running event loop, made when first asked for."""
        from rollouts.sandbox.capacity import worker_count
        from rollouts.sandbox.model import Config
        from rollouts.sandbox.pool import Pool

        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool[0] is not loop:
            workers = self.settings.workers or worker_count()
            config = replace(Config(), workers=workers, queue=100_000, shared=self._shared)
            self._pool = (loop, Pool(config))
        return self._pool[1]

    def box_pool(self, python: str) -> Pool:
        """The sandbox of the running event loop whose calls look like a container with this
        interpreter."""
        from rollouts.harbor.box import box_config
        from rollouts.sandbox.capacity import worker_count
        from rollouts.sandbox.pool import Pool

        key = (asyncio.get_running_loop(), python)
        if key not in self._boxes:
            self._boxes[key] = Pool(box_config(python, self.settings.workers or worker_count()))
        return self._boxes[key]

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

    def equip(self, task: Task) -> Task:
        """The task with the tools it acts on: its own, or where it names none, all that `env` or
        its family brings. A task without either stays as it is."""
        if task.tools:
            return task
        own = self.env or self._of_family(task)
        if own.factory is not None:
            return replace(task, tools=("environment",))
        return replace(task, tools=tuple(own.tools)) if own.tools else task

    def maker(self, task: Task, sample: int, seed: int) -> Environment:
        """A `Maker`. Raises `TaskError` for tools that no environment here offers, and for tools
        that cannot work together."""
        chosen = self._choose(task)
        context = Context(task, sample, seed, self.root, self.pool, self.settings.executor.run_s)
        if isinstance(chosen, Own):
            return made(chosen, context)
        built, tools = chosen
        parts = [ENVIRONMENTS[built](self, task, sample, seed)] if built else []
        if tools:
            parts.append(Toolbox(tools, context, self.settings.executor.output_kb))
        return parts[0] if len(parts) == 1 else Combined(parts)

    def check(self, tasks: Iterable[Task], ids: bool = False) -> None:
        """Raise `TaskError` for the first task whose tools cannot be had, before any work; with
        `ids` also for an agent whose conversations leave no token ids."""
        for task in tasks:
            if task.tools:
                self._choose(task)
            if ids and (rewriting := [name for name in task.tools if name in REWRITING]):
                raise TaskError(
                    f"task {task.id}: {rewriting[0]} writes its conversation anew for every "
                    "message, which cannot be trained on; evaluate with it (--agent)"
                )

    def _choose(self, task: Task) -> Own | tuple[str, list[Tool]]:
        """A factory, or (name of a built-in environment or "", tools of one's own)."""
        family = self._of_family(task)
        for own in (self.env, family):
            if own.factory is not None:
                return own
        known = {**family.tools, **self.env.tools}
        built = list(dict.fromkeys(n for n in task.tools if n in ENVIRONMENTS and n not in known))
        unknown = [n for n in task.tools if n not in ENVIRONMENTS and n not in known]
        if unknown:
            there = ", ".join([*known, *ENVIRONMENTS])
            raise TaskError(
                f"task {task.id}: no environment has {', '.join(unknown)}; there is {there}; "
                "add yours with --env FILE.py:NAME"
            )
        if len(built) > 1:
            raise TaskError(
                f"task {task.id}: {built[0]} and {built[1]} do not work together; name one of them"
            )
        tools = [known[n] for n in dict.fromkeys(task.tools) if n in known]
        if tools and built and built[0] not in ANSWERS_CALLS:
            raise TaskError(
                f"task {task.id}: {built[0]} reads no tool calls, so {tools[0].name} cannot be "
                f"offered beside it; remove one of them"
            )
        return (built[0] if built else ""), tools

    def _of_family(self, task: Task) -> Own:
        family = all_families().get(task.family) or family_of(task)
        if family.environment is None:
            return Own()
        if family.name not in self._families:
            where = f"environment of family {family.name}"
            self._families[family.name] = read_env(family.environment, where)
        return self._families[family.name]

    async def close(self) -> None:
        """End the sandbox."""
        if self._pool is not None and self._pool[0] is asyncio.get_running_loop():
            await self._pool[1].close()
        self._pool = None
        loop = asyncio.get_running_loop()
        for pool in [p for (its, _), p in self._boxes.items() if its is loop]:
            await pool.close()
        self._boxes = {}


@functools.lru_cache(maxsize=256)
def _read(path: str) -> bytes:
    return Path(path).read_bytes()


def _python_executor(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
    from rollouts.python_tool import PythonExecutor

    del sample  # the seed holds it
    return PythonExecutor(task, seed, shop.pool, shop.files, shop.settings.executor)


def _ds_guru(variant: Variant) -> Callable[[EnvironmentFactory, Task, int, int], Environment]:
    def make(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
        from rollouts.krama.dsguru import DsGuru

        return DsGuru(task, seed, shop.root, shop.pool, shop.settings.lake, variant)

    return make


def _harbor_shell(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
    from rollouts.harbor.shell import HarborShell

    del sample, seed  # nothing is drawn
    return HarborShell(task, shop.root, shop.box_pool, shop.settings.executor.run_s)


def _lake_agent(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
    from rollouts.krama.explore import LakeAgent

    return LakeAgent(task, seed, shop.root, shop.pool, shop.settings.lake)


def _lake_script(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
    from rollouts.krama.script import LakeScript

    return LakeScript(task, seed, shop.root, shop.pool, shop.settings.lake)


def _notebook(shop: EnvironmentFactory, task: Task, seed: int, prelude: str = "") -> Notebook:
    from rollouts.krama.agents.notebook import Notebook

    settings = shop.settings
    return Notebook(
        task, seed, shop.root, shop.pool, shop.files, settings.lake, settings.executor, prelude
    )


def _smolagents(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
    from rollouts.krama.agents.code_agent import CodeAgent, prelude

    del sample  # the seed holds it
    return CodeAgent(_notebook(shop, task, seed, prelude()), shop.settings.steps)


def _datawise(shop: EnvironmentFactory, task: Task, sample: int, seed: int) -> Environment:
    from rollouts.krama.agents.datawise import Datawise

    del sample
    return Datawise(_notebook(shop, task, seed))


# tool name → environment. A kind of environment adds one function and one line.
ENVIRONMENTS: dict[str, Callable[[EnvironmentFactory, Task, int, int], Environment]] = {
    "python_executor": _python_executor,
    "ds_guru_no_context": _ds_guru("no-context"),
    "ds_guru_one_shot": _ds_guru("one-shot"),
    "ds_guru_few_shot": _ds_guru("few-shot"),
    "lake_agent": _lake_agent,
    "lake_script": _lake_script,
    "harbor_shell": _harbor_shell,
    "smolagents": _smolagents,
    "datawise": _datawise,
}
# those that write the conversation anew for every message, which leaves no ids to train on
REWRITING = ("smolagents", "datawise")
ANSWERS_CALLS = (
    "python_executor",
    "lake_agent",
    "harbor_shell",
)  # those beside which other tools can be offered
