"""From a task's tools to its environment: what a user writes, and what the loop calls.

Tools of one's own are answered by a `ToolEnvironment`, built-in ones by the environment that
`ENVIRONMENTS` names. `EnvironmentFactory` makes the environment of each episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
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

from assay.family import family_of, interrupt_thread, load_object
from assay.task import Task, TaskError
from configs.machine import ToolsConfig
from rollouts.environment import (
    Budget,
    Environment,
    EnvironmentFailure,
    EpisodeEnd,
    EpisodeStart,
    ModelTurn,
    Reply,
    shared_name,
)
from rollouts.sandbox.model import Config, Limits, SandboxError, worker_count
from rollouts.tool_calls import ToolCall
from rollouts.tools import TIME_UP, Context, Ran, Refused, Tool, answer_calls
from rollouts.words.templates import Place, Places, Prompts, Words, prompts_of

if TYPE_CHECKING:  # the sandbox is loaded by whoever runs something in it
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
            turn, self.tools, self._run, known=self._known, over=lambda: self._context.finished
        )
        kept = ("name", "arguments", "answer", "kind")
        nobodys = ("bad_call", "unknown_tool") if self._beside is not None else ()
        rows = [row for row in found.records if row["kind"] not in nobodys]
        self._calls += [{name: row[name] for name in kept} for row in rows]
        return found

    async def _run(self, call: ToolCall, arguments: dict[str, Any], left: float) -> Ran:
        if left <= 0:
            raise Refused("time_up", TIME_UP)
        tool = self.tools[call.name]
        if tool.context:
            arguments[tool.context] = self._context
        seconds = min(self._context.run_s, left)
        limit = asyncio.timeout(None if math.isinf(seconds) else seconds)
        try:
            async with limit:
                if inspect.iscoroutinefunction(tool.function):
                    result = await tool.function(**arguments)
                else:
                    result = await _in_thread(partial(tool.function, **arguments))
            return Ran(self._clip(_worded(result)))
        except (EnvironmentFailure, SandboxError):
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return Ran(f"error: {tool.name} did not end within {seconds:g} s", "timeout")
            report = "".join(traceback.format_exception(error))[-_REPORT:]
            said = self._clip(f"error: {type(error).__name__}: {error}")
            return Ran(said, "tool_error", report={"bug": report})

    def _clip(self, text: str) -> str:
        if len(text) <= self._most:
            return text
        return f"{text[: self._most]}\n… {len(text) - self._most} characters left out"


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


# --- what a user wrote ---------------------------------------------------------------------------

NAME = "TOOLS"  # what `--env FILE.py` takes where it says no name
WANTED = "a list of @tool functions, or a function (task, ctx) that makes an environment"
Factory = Callable[[Context], Environment]
Own = Mapping[str, Tool] | Factory  # tools by name, or a maker of whole environments


def read_env(env: Any, where: str = "env") -> Own:
    """What a user gave as an environment: a spec, an object, or a list of both.

    Raises `TaskError` for anything else, and for two tools of one name.
    """
    if env is None:
        return {}
    if isinstance(env, str):
        where = f"--env {env}"
        found, origin = load_object(env, NAME, "--env")
        if found is None:
            raise TaskError(f"{where}: it has no {origin.rpartition(':')[2]}; wanted {WANTED}")
        return read_env(found, where)
    if isinstance(env, Tool):
        return {env.name: env}
    if not isinstance(env, list | tuple):
        return _factory(env, where)
    tools: dict[str, Tool] = {}
    several = cast("Sequence[Any]", env)
    for one in several:
        part = read_env(one, where)
        place = f"--env {one}" if isinstance(one, str) else where
        if callable(part):
            if len(several) > 1:
                raise TaskError(f"{place}: an environment of its own stands alone; give it alone")
            return part
        for name, tool in part.items():
            if tools.setdefault(name, tool) is not tool:
                raise TaskError(f"{place}: two tools have the name {name!r}; rename one")
    if not tools:
        raise TaskError(f"{where}: the list holds no tools; wanted {WANTED}")
    return tools


def _factory(given: Any, where: str) -> Factory:
    """A user's factory, which is told of its episode by the names of its arguments."""
    if not callable(given):
        raise TaskError(f"{where}: {type(given).__name__} is no environment; wanted {WANTED}")
    try:
        first, *others = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        raise TaskError(f"{where}: {given} takes no task; its first argument is the task") from None
    if inspect.isfunction(given) and first.name not in ("task", "_task"):
        raise TaskError(f"{where}: {given.__name__} is a plain function; put @tool above it")
    names: list[str] = []
    for one in others:
        told = one.annotation in (Context, "Context") or one.name in ("ctx", "context")
        if told or one.name in ("seed", "sample"):
            names.append(one.name)
        elif one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise TaskError(
                f"{where}: argument {one.name!r} of the environment is not known; it may "
                "take task, ctx (a rollouts.tools.Context), seed and sample"
            )

    def build(context: Context) -> Environment:
        values: dict[str, Any] = {"seed": context.seed, "sample": context.sample}
        found: Any = given(context.task, **{n: values.get(n, context) for n in names})
        if isinstance(found, list | tuple):  # tools that depend on the task
            own = read_env(found, where)
            return own(context) if callable(own) else ToolEnvironment([*own.values()], context)
        for method in ("open", "reply", "close"):
            if not inspect.iscoroutinefunction(getattr(found, method, None)):
                raise TaskError(
                    f"{where}: {type(found).__name__} has no `async def {method}`; see "
                    "Environment in rollouts/environment.py"
                )
        return found

    return build


# --- how environments work ------------------------------------------------------------------------


def _is_refinement(task: Task) -> bool:
    own = isinstance(task.meta.get("requirement"), str) and "input_text" in task.gold
    return own and (task.family == "structured" or "mode" in task.gold)


def _has_python_tool(task: Task) -> bool:
    return "python_executor" in task.tools


def _has_ds_guru(task: Task) -> bool:
    return any(tool.startswith("ds_guru") for tool in task.tools)


# what has words → where it is said which, and how they are read out of a release
WORDS: Places = {
    "refinement": Place("rollouts.words.cdr", _is_refinement),
    "python_executor": Place("rollouts.words.dare", _has_python_tool),
    "ds_guru": Place("rollouts.words.krama", _has_ds_guru),
}


def read_prompts(text: str, strict: bool = False) -> Prompts:
    """`prompts=TEXT`; `strict` refuses a release that is not known. Raises `ConfigError`."""
    return prompts_of(WORDS, text, strict)


@dataclass(frozen=True)
class ToolSettings(ToolsConfig):
    """How environments work: a run's `tools.*`, and what goes with them."""

    lake_run_s: float = 120.0  # in place of run_s, beside a lake
    folder_mb: int = 256  # of all files that an episode saves; its inputs come on top
    feedback: int = 6000  # characters of code, output and error that a lake agent reads (0: all)
    uses: int = 5  # of the code tool, as the model is told; turns are what is enforced
    steps: int = 20  # actions of an agent that counts its own
    words: Mapping[str, Words] = field(default_factory=dict[str, Words])  # in place of ours

    def limits(self, wall_s: float, output_kb: int = 0) -> Limits:
        """What one run may use, with `tools.output_kb` of output where nothing else is given."""
        return Limits(
            wall_s=wall_s,
            output_kb=output_kb or self.output_kb,
            file_mb=self.file_mb,
            fetch_mb=self.file_mb,
            fetch_total_mb=self.folder_mb,
            work_mb=max(1024, 8 * self.file_mb),
        )


def tool_settings(
    config: ToolsConfig, budget: Budget | None = None, prompts: Prompts | None = None
) -> ToolSettings:
    """From a run's settings."""
    turns, asked = (budget or Budget()).turns, prompts or Prompts(WORDS)
    return ToolSettings(**vars(config), lake_run_s=config.run_s, uses=turns, words=asked.words)


# tools that bring an environment of their own → its class, made as (task, seed, factory)
ENVIRONMENTS = {
    "python_executor": "rollouts.python_tool:PythonExecutor",
    "ds_guru_no_context": "rollouts.krama.dsguru:DsGuru",
    "ds_guru_one_shot": "rollouts.krama.dsguru:DsGuru",
    "ds_guru_few_shot": "rollouts.krama.dsguru:DsGuru",
    "lake_agent": "rollouts.krama.explore:LakeAgent",
    "lake_script": "rollouts.krama.script:LakeScript",
    "harbor_shell": "rollouts.harbor.task:HarborShell",
    "smolagents": "rollouts.krama.code_agent:CodeAgent",
    "datawise": "rollouts.krama.datawise:Datawise",
}
# those that write the conversation anew for every message, which leaves no ids to train on
REWRITING = ("smolagents", "datawise")
# those beside which other tools can be offered
ANSWERS_CALLS = ("python_executor", "lake_agent", "harbor_shell")


class EnvironmentFactory:
    """Makes environments for tasks, with one sandbox pool and one copy of every input file.

    `root` is what relative paths in `Task.files` start from: the folder of the tasks file. `env`
    adds a user's environment: `FILE.py:NAME`, a list of tools, a function that makes one.
    Raises `TaskError` for one that cannot be used.
    """

    def __init__(self, root: Path, settings: ToolSettings | None = None, env: Any = None) -> None:
        self.root, self.settings = root, settings or ToolSettings()
        self.env = read_env(env)
        self._families: dict[str, Own] = {}
        self._pools: dict[tuple[asyncio.AbstractEventLoop, bool], Pool] = {}
        self._shared: dict[str, str] = {}

    def announce(self, tasks: Iterable[Task]) -> None:
        """Name the lakes that will be needed, so that the sandbox starts once with all of them
        rather than again for each."""
        for lake in dict.fromkeys(t.files["lake"] for t in tasks if t.tools and "lake" in t.files):
            if (path := self.root / lake).is_dir():
                self._shared[shared_name(path)] = str(path.resolve())

    def pool(self, container: bool = False) -> Pool:
        """The sandbox of the running event loop, made when first asked for. Calls of the one for a
        `container` look like one."""
        from rollouts.sandbox.pool import Pool

        key = (asyncio.get_running_loop(), container)
        if key not in self._pools:
            config = Config(shared=self._shared)
            if container:
                from rollouts.harbor.container import container_config

                config = container_config()
            workers = self.settings.workers or worker_count()
            self._pools[key] = Pool(replace(config, workers=workers))
        return self._pools[key]

    async def close(self) -> None:
        """End the sandboxes."""
        pools, self._pools = self._pools, {}
        for (loop, _), pool in pools.items():
            if loop is asyncio.get_running_loop():
                await pool.close()

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
        if task.tools or not (own := self.env or self._of_family(task)):
            return task
        return replace(task, tools=("environment",) if callable(own) else tuple(own))

    def maker(self, task: Task, sample: int, seed: int) -> Environment:
        """A `Maker`. Raises `TaskError` for tools that no environment here offers, and for tools
        that cannot work together."""
        chosen = self.choose(task)
        context = Context(task, sample, seed, self.root, self.pool, self.settings.run_s)
        if callable(chosen):
            return chosen(context)
        name, tools = chosen
        built: Environment | None = None
        if name:
            module, _, made = ENVIRONMENTS[name].partition(":")
            built = getattr(importlib.import_module(module), made)(task, seed, self)
        if built is not None and not tools:
            return built
        return ToolEnvironment(tools, context, self.settings.output_kb, built)

    def check(self, tasks: Iterable[Task], ids: bool = False) -> None:
        """Raise `TaskError` for the first task whose tools cannot be had, before any work; with
        `ids` also for an agent whose conversations leave no token ids."""
        for task in tasks:
            if task.tools:
                self.choose(task)
            if ids and (rewriting := [name for name in task.tools if name in REWRITING]):
                raise TaskError(
                    f"task {task.id}: {rewriting[0]} writes its conversation anew for every "
                    "message, which cannot be trained on; evaluate with it (krama.agent)"
                )

    def choose(self, task: Task) -> Factory | tuple[str, list[Tool]]:
        """A factory, or (name of a built-in environment or "", tools of one's own)."""
        family, env = self._of_family(task), self.env
        if callable(env):
            return env
        if callable(family):
            return family
        known, names = {**family, **env}, dict.fromkeys(task.tools)
        tools = [known[n] for n in names if n in known]
        built = [n for n in names if n in ENVIRONMENTS and n not in known]
        if unknown := [n for n in names if n not in ENVIRONMENTS and n not in known]:
            there = ", ".join([*known, *ENVIRONMENTS])
            raise TaskError(
                f"task {task.id}: no environment has {', '.join(unknown)}; there is {there}; "
                "add yours with --env FILE.py:NAME"
            )
        if len(built) > 1:
            raise TaskError(
                f"task {task.id}: {built[0]} and {built[1]} do not work together; name one of them"
            )
        if tools and built and built[0] not in ANSWERS_CALLS:
            raise TaskError(
                f"task {task.id}: {built[0]} reads no tool calls, so {tools[0].name} cannot be "
                f"offered beside it; remove one of them"
            )
        return (built[0] if built else ""), tools

    def _of_family(self, task: Task) -> Own:
        family = family_of(task)
        if family.name not in self._families:
            where = f"environment of family {family.name}"
            self._families[family.name] = read_env(family.environment, where)
        return self._families[family.name]


@functools.lru_cache(maxsize=256)
def _read(path: str) -> bytes:
    return Path(path).read_bytes()
