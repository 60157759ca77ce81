"""From a task's tools to its environment: what a user writes, and what the loop calls.

A list of `@tool` functions or a factory is a `UserEnvironment`; the calls of its tools are answered
by a `ToolEnvironment`. `EnvironmentFactory` makes the environment of each episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import math
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from assay.family import all_families, family_of
from assay.plugins import load_object
from assay.scorer_timeout import interrupt_thread
from assay.task import Task, TaskError
from configs.schema import ToolsConfig
from rollouts.environment import (
    Budget,
    Environment,
    EnvironmentFailure,
    EpisodeEnd,
    EpisodeStart,
    ExecutorSettings,
    LakeSettings,
    ModelTurn,
    Reply,
)
from rollouts.sandbox.model import SandboxError
from rollouts.tool_calls import ToolCall
from rollouts.tools import TIME_UP, Context, Ran, Refused, Tool, answer_calls
from rollouts.words.prompts import Places, Prompts, prompts_of

if TYPE_CHECKING:  # environments and the sandbox are loaded where a task needs them
    from rollouts.krama.agents.notebook import Notebook
    from rollouts.sandbox.pool import Pool


TOOL_CALLS = "tool_calls.json"  # among the files to score: every call and what it returned
_REPORT = 8_000  # characters of a traceback that are kept, its end


class ToolEnvironment:
    """An `Environment` over tools of one's own, and over a built-in one `beside` them, which then
    says how the conversation starts and answers the calls of its own tools.

    Calls of a message run in order. What a tool returns is the answer: text as it is, anything
    else as JSON. What it raises is an error to the model and a bug report in the record, never the
    end of the episode; only a broken sandbox is.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        context: Context,
        output_kb: int = 64,
        beside: Environment | None = None,
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self._context, self._most = context, output_kb * 1024
        self._beside = beside
        self._known = list(self.tools)
        self._calls: list[dict[str, Any]] = []

    async def open(self) -> EpisodeStart:
        specs = [tool.spec for tool in self.tools.values()]
        if self._beside is None:
            return EpisodeStart(self._context.task.prompt, specs)
        start = await self._beside.open()
        if twice := [spec.name for spec in start.tools if spec.name in self.tools]:
            raise TaskError(f"two tools have the name {twice[0]!r}; rename your own")
        self._known = [spec.name for spec in (*start.tools, *specs)]
        return EpisodeStart(start.messages, [*start.tools, *specs])

    async def reply(self, said: ModelTurn) -> Reply:
        """Answer every call of the message, until the tools' seconds are used up."""
        if self._beside is None:
            return await self._answer(said)
        found = Reply()
        for call in said.calls:
            one = replace(said, calls=[call], seconds=said.seconds - found.seconds)
            theirs = not call.error and call.name in self._known and call.name not in self.tools
            found = found.then(await (self._beside.reply(one) if theirs else self._answer(one)))
            if found.done:
                break
        return found

    async def close(self) -> EpisodeEnd:
        """The files that tools left, and every call as JSON."""
        theirs = EpisodeEnd()
        try:
            if self._beside is not None:
                theirs = await self._beside.close()
        finally:
            files = await asyncio.to_thread(self._context.close)
        if self._calls:
            said = json.dumps(self._calls, ensure_ascii=False)
            files.setdefault(TOOL_CALLS, said.encode("utf-8", "surrogatepass"))
        notes = {"sandbox": self._context.level} if self._context.level else {}
        return EpisodeEnd({**files, **theirs.files}, {**notes, **theirs.notes})

    async def _answer(self, turn: ModelTurn) -> Reply:
        found = await answer_calls(
            turn,
            self.tools,
            self._run,
            known=self._known,
            over=lambda: self._context.finished,
        )
        kept = ("name", "arguments", "answer", "kind")
        nobodys = ("bad_call", "unknown_tool") if self._beside is not None else ()
        self._calls += [
            {name: row[name] for name in kept}
            for row in found.records
            if row["kind"] not in nobodys
        ]
        return found

    async def _run(self, call: ToolCall, arguments: dict[str, Any], left: float) -> Ran:
        if left <= 0:
            raise Refused("time_up", TIME_UP)
        tool = self.tools[call.name]
        if tool.context:
            arguments[tool.context] = self._context
        seconds = min(self._context.run_s, left)
        try:
            return Ran(self._clip(_worded(await _result(tool, arguments, seconds))))
        except (EnvironmentFailure, SandboxError):
            raise
        except _Late:
            return Ran(f"error: {tool.name} did not end within {seconds:g} s", "timeout")
        except (Exception, SystemExit) as error:
            report = "".join(traceback.format_exception(error))[-_REPORT:]
            said = self._clip(f"error: {type(error).__name__}: {error}")
            return Ran(said, "tool_error", report={"bug": report})

    def _clip(self, text: str) -> str:
        if len(text) <= self._most:
            return text
        return f"{text[: self._most]}\n… {len(text) - self._most} characters left out"


class _Late(Exception):
    """The tool's deadline passed."""


async def _result(tool: Tool, arguments: dict[str, Any], seconds: float) -> Any:
    """The tool's result. Raises what it raises, and `_Late` past the deadline."""
    bound: float | None = None if math.isinf(seconds) else seconds
    limit = asyncio.timeout(bound)
    try:
        async with limit:
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**arguments)
            return await _in_thread(partial(tool.function, **arguments))
    except TimeoutError:
        if limit.expired():
            raise _Late from None
        raise


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a plain function in a thread that neither blocks the loop nor the end of the process.

    A cancellation stops it between two bytecodes; one that waits inside C is left behind.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((result, error))

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    thread = threading.Thread(target=work, name="assay-tool", daemon=True)
    thread.start()
    try:
        result, error = await done
    except asyncio.CancelledError:
        if thread.ident is not None and thread.is_alive():
            interrupt_thread(thread.ident)
        raise
    if error is not None:
        raise error
    return result


def _worded(result: Any) -> str:
    """What the model sees of a result."""
    if isinstance(result, str):
        return result
    if result is None:
        return "done"
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)


NAME = "TOOLS"  # what `--env FILE.py` takes where it says no name
WANTED = "a list of @tool functions, or a function (task, ctx) that makes an environment"


@dataclass(frozen=True)
class UserEnvironment:
    """What a user wrote: tools by name, or a factory of whole environments. `where` is what
    messages name."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    factory: Callable[..., Any] | None = None
    where: str = "env"

    def __bool__(self) -> bool:
        return bool(self.tools) or self.factory is not None

    def build(self, context: Context) -> Environment:
        """The factory's environment for one episode. Raises `TaskError` if it is none."""
        assert self.factory is not None
        values: dict[str, Any] = {"seed": context.seed, "sample": context.sample}
        names = _factory_arguments(self.factory, self.where)
        found: Any = self.factory(context.task, **{n: values.get(n, context) for n in names})
        if isinstance(found, list | tuple):  # tools that depend on the task
            return ToolEnvironment(list(read_env(found, self.where).tools.values()), context)
        for method in ("open", "reply", "close"):
            if not inspect.iscoroutinefunction(getattr(found, method, None)):
                raise TaskError(
                    f"{self.where}: {type(found).__name__} has no `async def {method}`; see "
                    "Environment in rollouts/environment.py"
                )
        return found


def read_env(env: Any, where: str = "env") -> UserEnvironment:
    """What a user gave as an environment: a spec, an object, or a list of both.

    Raises `TaskError` for anything else, and for two tools of one name.
    """
    if env is None:
        return UserEnvironment(where=where)
    if isinstance(env, UserEnvironment):
        return env
    if isinstance(env, str):
        found, origin = load_object(env, NAME, "--env")
        if found is None:
            raise TaskError(f"--env {env}: it has no {origin.rpartition(':')[2]}; wanted {WANTED}")
        return read_env(found, f"--env {env}")
    if isinstance(env, Tool):
        return UserEnvironment({env.name: env}, where=where)
    if isinstance(env, list | tuple):
        return _merged([read_env(e, where) for e in cast("Sequence[Any]", env)], where)
    first = [*inspect.signature(env).parameters][:1] if inspect.isfunction(env) else ["task"]
    if first not in (["task"], ["_task"]):  # what takes the task first is a factory
        raise TaskError(f"{where}: {env.__name__} is a plain function; put @tool above it")
    if callable(env):
        _factory_arguments(env, where)
        return UserEnvironment(factory=env, where=where)
    raise TaskError(f"{where}: {type(env).__name__} is no environment; wanted {WANTED}")


def _merged(parts: Sequence[UserEnvironment], where: str) -> UserEnvironment:
    tools: dict[str, Tool] = {}
    for part in parts:
        if part.factory is not None and len(parts) > 1:
            raise TaskError(f"{part.where}: an environment of its own stands alone; give it alone")
        for name, tool in part.tools.items():
            if tools.get(name, tool) is not tool:
                raise TaskError(f"{part.where}: two tools have the name {name!r}; rename one")
            tools[name] = tool
    if parts and parts[0].factory is not None:
        return parts[0]
    if not tools:
        raise TaskError(f"{where}: the list holds no tools; wanted {WANTED}")
    return UserEnvironment(tools, where=where)


def _factory_arguments(factory: Callable[..., Any], where: str) -> list[str]:
    """Names of what the factory takes after the task: of `ctx`, `seed` and `sample`."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return []
    if not parameters:
        raise TaskError(f"{where}: {factory} takes no task; its first argument is the task")
    names: list[str] = []
    for parameter in parameters[1:]:
        context = parameter.annotation in (Context, "Context") or parameter.name in (
            "ctx",
            "context",
        )
        if context or parameter.name in ("seed", "sample"):
            names.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            raise TaskError(
                f"{where}: argument {parameter.name!r} of the environment is not known; it may "
                "take task, ctx (a rollouts.tools.Context), seed and sample"
            )
    return names


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
    "refinement": ("rollouts.cdr.prompts", "rollouts.cdr.prompts"),
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
    found = tool_settings(ToolsConfig(), prompts=prompts)
    return replace(found, lake=replace(found.lake, run_s=LakeSettings.run_s))


class EnvironmentFactory:
    """Makes environments for tasks, with one sandbox pool and one copy of every input file.

    `root` is what relative paths in `Task.files` start from: the folder of the tasks file. `env`
    adds a user's environment: `FILE.py:NAME`, a list of tools, a factory (`UserEnvironment`).
    Raises `TaskError` for one that cannot be used.
    """

    def __init__(self, root: Path, settings: ToolSettings | None = None, env: Any = None) -> None:
        self.root, self.settings = root, settings or ToolSettings()
        self.env = read_env(env)
        self._families: dict[str, UserEnvironment] = {}
        self._pools: dict[tuple[asyncio.AbstractEventLoop, bool], Pool] = {}
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
        return self._pool_of(container=False)

    def container_pool(self) -> Pool:
        """The sandbox of the running event loop whose calls look like a container."""
        return self._pool_of(container=True)

    def _pool_of(self, container: bool) -> Pool:
        from rollouts.sandbox.model import Config, worker_count
        from rollouts.sandbox.pool import Pool

        key = (asyncio.get_running_loop(), container)
        if key not in self._pools:
            config = Config(queue=100_000, shared=self._shared)
            if container:
                from rollouts.harbor.container import container_config

                config = container_config()
            workers = self.settings.workers or worker_count()
            self._pools[key] = Pool(replace(config, workers=workers))
        return self._pools[key]

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
        chosen = self.choose(task)
        context = Context(task, sample, seed, self.root, self.pool, self.settings.executor.run_s)
        if isinstance(chosen, UserEnvironment):
            return chosen.build(context)
        name, tools = chosen
        built = _built_in(name, self, task, seed) if name else None
        if built is not None and not tools:
            return built
        return ToolEnvironment(tools, context, self.settings.executor.output_kb, built)

    def check(self, tasks: Iterable[Task], ids: bool = False) -> None:
        """Raise `TaskError` for the first task whose tools cannot be had, before any work; with
        `ids` also for an agent whose conversations leave no token ids."""
        for task in tasks:
            if task.tools:
                self.choose(task)
            if ids and (rewriting := [name for name in task.tools if name in REWRITING]):
                raise TaskError(
                    f"task {task.id}: {rewriting[0]} writes its conversation anew for every "
                    "message, which cannot be trained on; evaluate with it (--agent)"
                )

    def choose(self, task: Task) -> UserEnvironment | tuple[str, list[Tool]]:
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

    def _of_family(self, task: Task) -> UserEnvironment:
        family = all_families().get(task.family) or family_of(task)
        if family.environment is None:
            return UserEnvironment()
        if family.name not in self._families:
            where = f"environment of family {family.name}"
            self._families[family.name] = read_env(family.environment, where)
        return self._families[family.name]

    async def close(self) -> None:
        """End the sandbox."""
        loop = asyncio.get_running_loop()
        for (its, _), pool in self._pools.items():
            if its is loop:
                await pool.close()
        self._pools = {}


@functools.lru_cache(maxsize=256)
def _read(path: str) -> bytes:
    return Path(path).read_bytes()


# names of tools that bring an environment of their own: one more is a name here and a case below
ENVIRONMENTS = (
    "python_executor",
    "ds_guru_no_context",
    "ds_guru_one_shot",
    "ds_guru_few_shot",
    "lake_agent",
    "lake_script",
    "harbor_shell",
    "smolagents",
    "datawise",
)
# those that write the conversation anew for every message, which leaves no ids to train on
REWRITING = ("smolagents", "datawise")
# those beside which other tools can be offered
ANSWERS_CALLS = ("python_executor", "lake_agent", "harbor_shell")


def _built_in(name: str, shop: EnvironmentFactory, task: Task, seed: int) -> Environment:
    """The built-in environment of a tool; its module is loaded when a task first needs it."""
    settings, lake = shop.settings, (task, seed, shop.root, shop.pool, shop.settings.lake)
    match name:
        case "python_executor":
            from rollouts.python_tool import PythonExecutor

            return PythonExecutor(task, seed, shop.pool, shop.files, settings.executor)
        case "ds_guru_no_context" | "ds_guru_one_shot" | "ds_guru_few_shot":
            from rollouts.krama.dsguru import DsGuru

            variant: Any = name.removeprefix("ds_guru_").replace("_", "-")
            return DsGuru(*lake, variant)
        case "lake_agent":
            from rollouts.krama.explore import LakeAgent

            return LakeAgent(*lake)
        case "lake_script":
            from rollouts.krama.script import LakeScript

            return LakeScript(*lake)
        case "harbor_shell":
            from rollouts.harbor.task import HarborShell

            return HarborShell(task, shop.root, shop.container_pool, settings.executor.run_s)
        case "smolagents":
            from rollouts.krama.agents.code_agent import CodeAgent, prelude

            return CodeAgent(_notebook(shop, task, seed, prelude()), settings.steps)
        case _:
            from rollouts.krama.agents.datawise import Datawise

            return Datawise(_notebook(shop, task, seed))


def _notebook(shop: EnvironmentFactory, task: Task, seed: int, prelude: str = "") -> Notebook:
    from rollouts.krama.agents.notebook import Notebook

    settings = shop.settings
    return Notebook(
        task, seed, shop.root, shop.pool, shop.files, settings.lake, settings.executor, prelude
    )
