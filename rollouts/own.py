"""A user's environment: `--env FILE.py:NAME`, `env=…`, `Family.environment`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from assay.plugins import load_object
from assay.task import TaskError
from rollouts.context import Context
from rollouts.environment import Environment
from rollouts.toolbox import Toolbox
from rollouts.tools import Tool

NAME = "TOOLS"  # what `--env FILE.py` takes where it says no name
WANTED = "a list of @tool functions, or a function (task, ctx) that makes an environment"


@dataclass(frozen=True)
class Own:
    """Tools by name, or a factory of whole environments; `where` is what messages name."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    factory: Callable[..., Any] | None = None
    where: str = "env"

    def __bool__(self) -> bool:
        return bool(self.tools) or self.factory is not None


def read_env(env: Any, where: str = "env") -> Own:
    """What a user gave as an environment: a spec, an object, or a list of both.

    Raises `TaskError` for anything else, and for two tools of one name.
    """
    if env is None:
        return Own(where=where)
    if isinstance(env, Own):
        return env
    if isinstance(env, str):
        found, origin = load_object(env, NAME, "--env")
        if found is None:
            raise TaskError(f"--env {env}: it has no {origin.rpartition(':')[2]}; wanted {WANTED}")
        return read_env(found, f"--env {env}")
    if isinstance(env, Tool):
        return Own({env.name: env}, where=where)
    if isinstance(env, list | tuple):
        return _merged([read_env(e, where) for e in cast("Sequence[Any]", env)], where)
    if inspect.isfunction(env) and _is_plain(env):
        raise TaskError(f"{where}: {env.__name__} is a plain function; put @tool above it")
    if callable(env):
        _arguments(env, where)
        return Own(factory=env, where=where)
    raise TaskError(f"{where}: {type(env).__name__} is no environment; wanted {WANTED}")


def _is_plain(function: Callable[..., Any]) -> bool:
    """Whether this looks like a tool that lacks its decorator: a factory takes the task first."""
    names = list(inspect.signature(function).parameters)
    return not names or names[0] not in ("task", "_task")


def _merged(parts: Sequence[Own], where: str) -> Own:
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
    return Own(tools, where=where)


_BY_NAME = {"ctx", "context"}


def _arguments(factory: Callable[..., Any], where: str) -> list[str]:
    """Names of what the factory takes after the task: of `ctx`, `seed` and `sample`."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return []
    if not parameters:
        raise TaskError(f"{where}: {factory} takes no task; its first argument is the task")
    names: list[str] = []
    for parameter in parameters[1:]:
        context = parameter.annotation in (Context, "Context") or parameter.name in _BY_NAME
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


def made(own: Own, context: Context) -> Environment:
    """The factory's environment for one episode. Raises `TaskError` if it is none."""
    assert own.factory is not None
    values: dict[str, Any] = {"seed": context.seed, "sample": context.sample}
    names = _arguments(own.factory, own.where)
    found: Any = own.factory(context.task, **{n: values.get(n, context) for n in names})
    if isinstance(found, list | tuple):  # tools that depend on the task
        return Toolbox(list(read_env(found, own.where).tools.values()), context)
    for method in ("open", "reply", "close"):
        if not inspect.iscoroutinefunction(getattr(found, method, None)):
            raise TaskError(
                f"{own.where}: {type(found).__name__} has no `async def {method}`; see "
                "Environment in rollouts/environment.py"
            )
    return found
