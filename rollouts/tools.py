"""`@tool`: a typed, documented Python function as something a model can call.

    @tool
    def lookup(name: str, limit: int = 5) -> list[str]:
        \"\"\"Find people by name.

        Args:
            name: Start of the family name.
            limit: Most results.
        \"\"\"

The schema comes from the annotations and the docstring. A parameter annotated `Context` is not
shown to the model: through it the tool sees its task and the sandbox, and leaves files to score.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.task import TaskError
from rollouts.arguments import Misfit, converted, help_of, is_optional, schema_of
from rollouts.context import Context
from rollouts.docstring import described
from rollouts.tool_calls import ToolSpec

__all__ = ["Context", "Tool", "tool"]


@dataclass(frozen=True)
class Tool:
    """A function with its schema; calling it calls the function.

    `kinds` are the annotations of the arguments a model gives, `context` the name of the parameter
    that takes the `Context`, "" if there is none.
    """

    function: Callable[..., Any]
    spec: ToolSpec
    kinds: Mapping[str, Any]
    context: str = ""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    @property
    def name(self) -> str:
        return self.spec.name

    def fitted(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """(arguments as the function wants them, ""), or why they do not fit, for the model."""
        for name in self.spec.parameters["required"]:
            if name not in arguments:
                return {}, f"argument {name!r} is missing"
        made: dict[str, Any] = {}
        for name, value in arguments.items():
            if name not in self.kinds:
                known = ", ".join(self.kinds) or "none"
                return {}, f"there is no argument {name!r}; the arguments are {known}"
            try:
                made[name] = converted(value, self.kinds[name])
            except Misfit as error:
                return {}, f"argument {name!r}{error}"
        return made, ""


def tool(function: Callable[..., Any]) -> Tool:
    """Make a tool of a function, plain or `async`.

    Arguments are str, int, float, bool, list, dict, Literal, Optional, or unions of them; the
    docstring's first part is what the model is told, its `Args:` the help of each argument. A plain
    function runs in a thread of its own, beside those of other episodes. Raises `TaskError` naming
    the function that lacks a docstring or a type.
    """
    where = _where(function)
    if not inspect.getdoc(function):
        raise TaskError(f"{where}: it has no docstring; say there what it does: the model reads it")
    about, helps = described(str(inspect.getdoc(function)))
    hints = _hints(function, where)
    kinds: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    required: list[str] = []
    context = ""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TaskError(f"{where}: {parameter} takes any argument; name and type each one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TaskError(f"{where}: argument {name!r} is positional only; remove the '/'")
        if name not in hints:
            raise TaskError(
                f"{where}: argument {name!r} has no type; annotate it, as in {name}: str"
            )
        if hints[name] is Context:
            context = name
            continue
        kinds[name] = hints[name]
        fields[name] = _field(hints[name], helps.get(name, ""), parameter, f"{where}: {name!r}")
        if parameter.default is parameter.empty:
            required.append(name)
    schema = {
        "type": "object",
        "properties": fields,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(function, ToolSpec(function.__name__, about, schema), kinds, context)


def _where(function: Callable[..., Any]) -> str:
    """How messages name the function. Raises `TaskError` for what is no function."""
    if not inspect.isfunction(function):
        raise TaskError(f"@tool: {function!r} is no function; put @tool above a `def`")
    code = function.__code__
    return f"tool {function.__name__} ({code.co_filename} line {code.co_firstlineno})"


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        found = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a name that is only there for a type checker, a bad expression
        raise TaskError(
            f"{where}: its types cannot be read ({error}); import what they name"
        ) from None
    return {name: kind for name, kind in found.items() if name != "return"}


def _field(kind: Any, said: str, parameter: inspect.Parameter, where: str) -> dict[str, Any]:
    """The schema of one argument, with its help and its default."""
    try:
        made = schema_of(kind)
    except TypeError as error:
        raise TaskError(f"{where} {error}") from None
    if about := said or help_of(kind):
        made["description"] = about
    default = parameter.default
    if default is not parameter.empty and not (default is None and is_optional(kind)):
        try:
            json.dumps(default, allow_nan=False)
        except (TypeError, ValueError):
            return made
        made["default"] = default
    return made
