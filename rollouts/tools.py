"""Tools: a typed Python function as something a model can call, and the answering of calls.

    @tool
    def lookup(name: str, limit: int = 5) -> list[str]:
        \"\"\"Find people by name.

        Args:
            name: Start of the family name.
            limit: Most results.
        \"\"\"

The schema comes from the annotations and the docstring. A parameter annotated `Context` is not
shown to the model: through it the tool sees its task and the sandbox, and leaves files to score.
`answer_calls` answers the calls of a message, for every environment.
"""

from __future__ import annotations

import inspect
import json
import re
import tempfile
import textwrap
import time
import types
import typing
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from assay.task import Task, TaskError, derive_seed
from rollouts.environment import EnvironmentFailure, ModelTurn, Reply
from rollouts.tool_calls import NULL, ToolCall, ToolSpec, fitting, object_schema

if TYPE_CHECKING:  # the sandbox is loaded by whoever runs something in it
    from rollouts.sandbox.model import Limits, Result
    from rollouts.sandbox.pool import Pool


@dataclass
class Context:
    """One episode as its tools see it.

    `task` with its gold, `sample` and `seed` of the episode; `root` is the folder of the tasks
    file. `files` is what the episode leaves to be scored, name to text or bytes (`Answer.files`).
    """

    task: Task
    sample: int
    seed: int
    root: Path
    pool: Callable[[], Pool]
    run_s: float = 200.0
    files: dict[str, bytes | str] = field(default_factory=dict[str, bytes | str])
    finished: bool = False
    level: str = ""  # of the sandbox, once it ran
    _runs: int = 0
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def folder(self) -> Path:
        """A scratch folder of this episode, made when first asked for, gone at its end."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(
                prefix="assay-tools-", ignore_cleanup_errors=True
            )
        return Path(self._scratch.name)

    def path(self, name: str) -> Path:
        """Where the task's file of that name lies. Raises `TaskError` if the task has none."""
        if name not in self.task.files:
            known = ", ".join(self.task.files) or "none"
            raise TaskError(f"task {self.task.id} has no file {name!r}; it has {known}")
        return self.root / self.task.files[name]

    def finish(self) -> None:
        """End the episode after this call: the model has handed its answer in."""
        self.finished = True

    async def run_python(
        self,
        code: str,
        files: Mapping[str, bytes | str] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """Run Python in the sandbox: `files` lie beside the script, `fetch` names what comes back
        in `Result.files`. Without `limits` it has the run's seconds (`tools.run_s`).

        Raises `EnvironmentFailure` when the sandbox broke, and ValueError for names of files that
        could never work; what the code does wrong is in the result's status.
        """
        from rollouts.sandbox.model import Limits

        self._runs += 1
        result = await self.pool().run(
            code,
            files,
            fetch=list(fetch),
            limits=limits or Limits(wall_s=self.run_s),
            seed=derive_seed(self.seed, "run_python", self._runs) % (1 << 32),
        )
        self.level = str(result.layers.get("level") or self.level)
        if result.status == "sandbox_error":
            raise EnvironmentFailure(f"sandbox: {result.why}")
        return result

    def close(self) -> dict[str, bytes]:
        """Remove the scratch folder; returns the files that were left, as bytes."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None
        return {
            str(name): body if isinstance(body, bytes) else str(body).encode("utf-8", "replace")
            for name, body in self.files.items()
        }


@dataclass(frozen=True)
class Tool:
    """A function with its schema; calling it calls the function.

    `kinds` are the schemas of the arguments, with null where an annotation allows None; `context`
    is the name of the parameter that takes the `Context`, "" if there is none.
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
    told, helps = described(str(inspect.getdoc(function)))
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
        try:
            kinds[name] = schema_of(hints[name])
        except TypeError as error:
            raise TaskError(f"{where}: {name!r} {error}") from None
        about = helps.get(name) or help_of(hints[name])
        fields[name] = _field(kinds[name], about, parameter.default)
        if parameter.default is parameter.empty:
            required.append(name)
    spec = ToolSpec(function.__name__, told, object_schema(fields, required))
    return Tool(function, spec, kinds, context)


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


def _field(kind: Mapping[str, Any], about: str, default: Any) -> dict[str, Any]:
    """What the model is shown of an argument: its type, its help and its default."""
    made = _without_null(kind)
    if about:
        made["description"] = about
    optional = default is None and NULL in kind.get("anyOf", ())
    if default is not inspect.Parameter.empty and not optional:
        with suppress(TypeError, ValueError):
            json.dumps(default, allow_nan=False)
            made["default"] = default
    return made


# --- what a docstring says ------------------------------------------------------------------------

_TAKES = "Args|Arguments|Parameters|Params"
_NAMED = rf"(?P<name>{_TAKES}|Returns?|Yields?|Raises|Examples?|Notes?)[ \t]*"
_RULED = rf"{_NAMED.replace('?P<name>', '?:')}:?[ \t]*\n[ \t]*---+[ \t]*\n"
_DEEPER = r"(?:[ \t]+.*\n|[ \t]*\n)*"
# of a habit: a section with its body, and an argument in the body of one that has arguments
_HABITS = {
    "numpy": (
        rf"^{_NAMED}:?[ \t]*\n[ \t]*---+[ \t]*\n(?P<body>(?:(?!{_RULED}).*\n)*)",
        rf"^(\w+)[ \t]*(?::.*)?\n({_DEEPER})",
    ),
    "google": (
        rf"^{_NAMED}:[ \t]*\n(?P<body>{_DEEPER})",
        rf"^\*{{0,2}}(\w+)[ \t]*(?:\([^)\n]*\))?[ \t]*:(.*\n{_DEEPER})",
    ),
    "sphinx": (
        r"(?P<body>^:(?:(?P<name>param)\b|\w+)[^:\n]*:.*\n(?:[ \t]+\S.*\n)*)",
        r"^:param[ \t]+(?:[^:\n]*[ \t])?(\w+)[ \t]*:((?:.*\n)*)",
    ),
}


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """(description, help by argument) of a docstring whose indentation is cleaned.

    Reads `Args:` sections (Google), underlined `Parameters` (NumPy) and `:param x:` (Sphinx);
    other sections are left out.
    """
    about, helps = f"{docstring}\n", dict[str, str]()
    for section, argument in _HABITS.values():
        for found in re.finditer(section, about, re.MULTILINE):
            if found["name"] in (*_TAKES.split("|"), "param"):
                body = textwrap.dedent(found["body"])
                for name, said in re.findall(argument, body, re.MULTILINE):
                    helps[name] = " ".join(filter(None, map(str.strip, said.splitlines())))
        about = re.sub(section, "", about, flags=re.MULTILINE)
    return about.strip(), helps


# --- annotations as JSON schemas -----------------------------------------------------------------

_NAMES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NAMES[type(None)] = "null"
_KNOWN = "str, int, float, bool, list, dict, Literal, Optional or a union of them"


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of an annotation. Raises `TypeError` for one that JSON cannot give."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return schema_of(inner[0])
    if kind is Any:
        return {}
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if kind is list or origin in (list, Sequence):
        return {"type": "array", "items": schema_of(inner[0])} if inner else {"type": "array"}
    if kind is dict or origin in (dict, Mapping):
        if inner and inner[0] is not str:
            raise TypeError(f"has keys of type {_said(inner[0])}; keys of a JSON object are str")
        values = schema_of(inner[1]) if inner else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if origin is Literal:
        kinds = {_NAMES.get(type(v), "") for v in inner} - {"null"}
        if "" in kinds:
            raise TypeError("is a Literal of values that are no text or number; use str or int")
        alike = len(kinds) == 1 and None not in inner
        return {**({"type": kinds.pop()} if alike else {}), "enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(k) for k in inner]}
    raise TypeError(f"is of type {_said(kind)}, which a model cannot give; use {_KNOWN}")


def _without_null(rule: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as the model sees it: what may be null may be left out."""
    if "anyOf" in rule:
        choices = [_without_null(choice) for choice in rule["anyOf"] if choice != NULL]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    inner = {k: rule[k] for k in ("items", "additionalProperties") if k in rule}
    return {**rule, **{k: _without_null(v) for k, v in inner.items()}}


def help_of(kind: Any) -> str:
    """The first text of an `Annotated` type."""
    if typing.get_origin(kind) is Annotated:
        return next((m for m in typing.get_args(kind)[1:] if isinstance(m, str)), "")
    return ""


def _said(kind: Any) -> str:
    return str(getattr(kind, "__name__", None) or kind)


# --- calls ---------------------------------------------------------------------------------------

TIME_UP = "the time for tools is used up"


class Refused(Exception):
    """A call that is not run, and costs no time. `kind` is what it is counted as, the text tells
    the model why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(frozen=True)
class Ran:
    """A call that was run: the text that the model sees, and `ok` or what went wrong. `seconds`
    count against the episode's (None: as measured); `report` stands in the record alone."""

    text: str
    kind: str = "ok"
    seconds: float | None = None
    report: Mapping[str, Any] = field(default_factory=dict[str, Any])


async def answer_calls(
    turn: ModelTurn,
    tools: Mapping[str, Tool | ToolSpec],
    run: Callable[[ToolCall, dict[str, Any], float], Awaitable[Ran]],
    refuse: Callable[[str], str] = "error: {}".format,
    known: Sequence[str] = (),
    over: Callable[[], bool] = bool,
) -> Reply:
    """Answer the calls of a message in order, until `over` says that the episode is.

    `run(call, arguments, seconds left)` is given the calls that can be read, name one of `tools`
    and have arguments that fit. The others are told why not, in the words of `refuse`, as
    `bad_call`, `unknown_tool` or `bad_arguments`; so is what `run` refuses itself (`Refused`), such
    as `time_up`. `known` are the names that an unknown one is answered with.
    """
    messages: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    errors: Counter[str] = Counter()
    spent = 0.0
    for call in turn.calls:
        started = time.perf_counter()
        try:
            arguments = _checked(call, tools, known or tuple(tools))
            ran = await run(call, arguments, turn.seconds - spent)
        except Refused as error:
            ran = Ran(refuse(str(error)), error.kind, seconds=0.0)
        took = time.perf_counter() - started if ran.seconds is None else ran.seconds
        spent += took
        if ran.kind != "ok":
            errors[ran.kind] += 1
        messages.append({"role": "tool", "name": call.name or "unknown", "content": ran.text})
        row = {"name": call.name, "arguments": call.arguments, "answer": ran.text, "kind": ran.kind}
        records.append({**row, "seconds": round(took, 6), **ran.report})
        if over():
            break
    return Reply(messages, over(), records, errors, spent)


def _checked(
    call: ToolCall, tools: Mapping[str, Tool | ToolSpec], known: Sequence[str]
) -> dict[str, Any]:
    """The arguments of a call. Raises `Refused`."""
    if call.error:
        raise Refused("bad_call", call.error)
    tool = tools.get(call.name)
    if tool is None:
        why = f"there is no tool {call.name!r}; use {', '.join(known)}"
        raise Refused("unknown_tool", why)
    spec, kinds = (tool.spec, tool.kinds) if isinstance(tool, Tool) else (tool, None)
    arguments, problem = fitting(spec, call, kinds)
    if problem:
        raise Refused("bad_arguments", problem)
    return arguments


def clip(text: str, most: int) -> str:
    """The start and the end of a long text, with a line that says how much is missing."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
