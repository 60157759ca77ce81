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
import math
import re
import tempfile
import time
import types
import typing
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rollouts.environment import EnvironmentFailure, ModelTurn, Reply
from rollouts.tool_calls import ToolCall, ToolSpec, fitting

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


# --- what a docstring says ------------------------------------------------------------------------

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?)\s*:?\s*$"
)
_TAKES = ("Args", "Arguments", "Parameters", "Params")
_HEADS = {  # of an argument, by the habit
    "google": re.compile(r"^(\s*)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$"),
    "numpy": re.compile(r"^()(\w+)\s*(?::\s*\S.*)?$"),
    "sphinx": re.compile(r"^()(?::param\s+(?:[^:]*\s)?(\w+)|:\w+[^:]*)\s*:\s*(.*)$"),
}


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """(description, help by argument) of a docstring whose indentation is cleaned.

    Reads `Args:` sections (Google), underlined `Parameters` (NumPy) and `:param x:` (Sphinx);
    other sections are left out.
    """
    about: list[str] = []
    helps: dict[str, str] = {}
    style = name = ""
    wanted, margin = False, 0
    lines = docstring.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        section, ruled = _SECTION.match(line.rstrip()), set(below.strip()) == {"-"}
        if section and (line.rstrip().endswith(":") or (ruled and len(below) > 2)):
            style, name = "numpy" if ruled else "google", ""
            wanted = section[1] in _TAKES
            continue
        outside = bool(line.strip()) and not line[0].isspace()
        if (style == "google" and outside) or (style == "sphinx" and (outside or not line.strip())):
            style = ""
        if not style and (head := _HEADS["sphinx"].match(line)):
            style, name, wanted = "sphinx", head[2] or "", bool(head[2])
            helps |= {name: head[3]} if wanted else {}
        elif not style:
            about.append(line.rstrip())
        elif head := _head(style, line, name, margin):
            margin, name = len(head[1]), head[2]
            helps |= {name: "" if style == "numpy" else head[3]} if wanted else {}
        elif wanted and name and line.strip():
            helps[name] = f"{helps[name]} {line.strip()}".strip()
    return "\n".join(about).strip(), helps


def _head(style: str, line: str, name: str, margin: int) -> re.Match[str] | None:
    """The line as the head of an argument; one that stands deeper goes on with the last one."""
    found = None if style == "sphinx" else _HEADS[style].match(line)
    return found if found and (not name or len(found[1]) <= margin) else None


# --- annotations as JSON schemas, and a model's values converted to them -------------------------

_NAMES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_KNOWN = "str, int, float, bool, list, dict, Literal, Optional or a union of them"
_NONE = type(None)


class Misfit(Exception):
    """A value that does not fit; the message follows the name of the argument."""


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of an annotation. Raises `TypeError` for one that JSON cannot give."""
    kind = _bare(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {}
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if kind is list or origin in (list, Sequence):
        return {"type": "array", "items": schema_of(inner[0])} if inner else {"type": "array"}
    if kind is dict or origin in (dict, Mapping):
        if inner and inner[0] is not str:
            raise TypeError(f"has keys of type {_said(inner[0])}; keys of a JSON object are str")
        made: dict[str, Any] = {"type": "object"}
        if inner and (values := schema_of(inner[1])):
            made["additionalProperties"] = values
        return made
    if origin is Literal:
        return _literal(inner)
    if origin in (Union, types.UnionType):
        choices = [schema_of(k) for k in inner if k is not _NONE]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    raise TypeError(f"is of type {_said(kind)}, which a model cannot give; use {_KNOWN}")


def _literal(values: tuple[Any, ...]) -> dict[str, Any]:
    kinds = {_NAMES.get(type(v), "") for v in values if v is not None}
    if "" in kinds:
        raise TypeError("is a Literal of values that are no text or number; use str or int")
    made: dict[str, Any] = {"enum": list(values)}
    return {"type": kinds.pop(), **made} if len(kinds) == 1 and None not in values else made


def help_of(kind: Any) -> str:
    """The first text of an `Annotated` type."""
    if typing.get_origin(kind) is Annotated:
        return next((m for m in typing.get_args(kind)[1:] if isinstance(m, str)), "")
    return ""


def is_optional(kind: Any) -> bool:
    kind = _bare(kind)
    return typing.get_origin(kind) in (Union, types.UnionType) and _NONE in typing.get_args(kind)


def converted(value: Any, kind: Any) -> Any:
    """`value` as the annotation wants it. Raises `Misfit`.

    Takes what models write: numbers and lists spelled as text, 3.0 for an integer.
    """
    kind = _bare(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if kind in _SIMPLE:
        wanted, read = _SIMPLE[kind]
        try:
            return read(value)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise Misfit(f" must be {wanted}; got {_shown(value)}") from None
    if kind is list or origin in (list, Sequence):
        items = _container(value, list, "a list")
        return [_within(v, inner[0], f"[{i}]") for i, v in enumerate(items)] if inner else items
    if kind is dict or origin in (dict, Mapping):
        pairs = _container(value, dict, "an object")
        return {k: _within(v, inner[1], f"[{k!r}]") for k, v in pairs.items()} if inner else pairs
    if origin is Literal:
        return _chosen(value, inner)
    return _first_that_fits(value, inner)


def _bare(kind: Any) -> Any:
    return _bare(typing.get_args(kind)[0]) if typing.get_origin(kind) is Annotated else kind


def _said(kind: Any) -> str:
    return str(getattr(kind, "__name__", None) or kind)


def _within(value: Any, kind: Any, place: str) -> Any:
    try:
        return converted(value, kind)
    except Misfit as error:
        raise Misfit(f"{place}{error}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    return str(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value.strip() if isinstance(value, str) else value)


def _number(value: Any) -> float:
    found = float(value)
    if isinstance(value, bool) or not math.isfinite(found):
        raise ValueError
    return found


def _truth(value: Any) -> bool:
    return value if isinstance(value, bool) else _TRUTHS[str(value).strip().lower()]


def _nothing(value: Any) -> None:
    if value is not None and str(value).strip().lower() not in ("null", "none", ""):
        raise ValueError


_TRUTHS = {"true": True, "false": False}
# annotation → (what a value must be, how it is read: raises for what it is not)
_SIMPLE: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    str: ("text", _text),
    int: ("a whole number", _integer),
    float: ("a number", _number),
    bool: ("true or false", _truth),
    _NONE: ("null", _nothing),
}


def _container(value: Any, kind: type, name: str) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise Misfit(f" must be {name}; got {_shown(value)}") from None
    if not isinstance(value, kind):
        raise Misfit(f" must be {name}; got {_shown(value)}")
    return value


def _chosen(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    for choice in choices:  # 3 for "3", "3" for 3
        if str(choice) == str(value):
            return choice
    known = ", ".join(map(repr, choices))
    raise Misfit(f" must be one of {known}; got {_shown(value)}")


def _first_that_fits(value: Any, kinds: tuple[Any, ...]) -> Any:
    """None as it is; then the kind whose JSON type the value has; then any that it converts to."""
    if value is None and _NONE in kinds:
        return None
    if not isinstance(value, str) or str not in kinds:
        exact = [k for k in kinds if type(value) is (typing.get_origin(k) or k)]
    else:
        exact = [str]
    why = ""
    for kind in [*exact, *(k for k in kinds if k is not str), *(k for k in kinds if k is str)]:
        try:
            return converted(value, kind)
        except Misfit as error:
            why = why if kind is _NONE else str(error)
    raise Misfit(why)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


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
    if isinstance(tool, Tool):
        arguments, problem = tool.fitted({**call.arguments, **call.spelled})
    else:
        arguments, problem = fitting(tool, call)
    if problem:
        raise Refused("bad_arguments", problem)
    return arguments


def clip(text: str, most: int) -> str:
    """The start and the end of a long text, with a line that says how much is missing."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
