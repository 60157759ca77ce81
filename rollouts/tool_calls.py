"""Tools as a model sees them: schemas, and calls read out of what it wrote.

How a call is spelled belongs to the model, so formats are looked up by name: `hermes` (Qwen2.5,
Qwen3, Hermes: JSON between `<tool_call>` tags) and `qwen_xml` (Qwen3-Coder: a tag a parameter).
A call that cannot be read is still a call, with an `error`: the environment answers it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from assay.thoughts import may_think, parted


def object_schema(fields: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The schema of a call's arguments: these and no others."""
    shape = {"type": "object", "properties": dict(fields), "required": [*required]}
    return {**shape, "additionalProperties": False}


@dataclass(frozen=True)
class ToolSpec:
    """A function the model may call; `parameters` is a JSON schema of type object; `strict` says
    that calls must fit it, as OpenAI has it."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool = False

    def schema(self) -> dict[str, Any]:
        """The form that chat templates and endpoints take."""
        named = {"name": self.name, "description": self.description}
        strict = {"strict": True} if self.strict else {}
        return {"type": "function", "function": {**named, "parameters": self.parameters, **strict}}


@dataclass(frozen=True)
class ToolCall:
    """One call. With an `error` it could not be read, and name and arguments may be empty.

    `spelled`: the arguments as text, where the format does not say their types (`qwen_xml`): then
    `arguments` is a guess, and a schema decides (`fitting`).
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""
    id: str = ""
    spelled: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class CallFormat:
    """How calls are read from an answer, written into one, and explained where a chat template
    does not know about tools."""

    read: Callable[[str], list[ToolCall]]
    write: Callable[[str, Mapping[str, Any]], str]
    explain: Callable[[Sequence[ToolSpec]], str]


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MARK = re.compile(f"{_OPEN}|{_CLOSE}")
_CALL = re.compile(f"({_OPEN})((?:(?!{_OPEN}).)*?)({_CLOSE})", re.DOTALL)
MAX_CALLS = 16  # in one message; what follows is one bad call


def _read(text: str, read_body: Callable[[str], ToolCall]) -> list[ToolCall]:
    """The calls of a message's answer; those that were only thought of do not count
    (assay/thoughts.py). Inside a call that can be read a thought's mark is part of the call."""
    answer = parted(text, whole=lambda: _readable(text, read_body)).answer
    marks = [(m.start(), m.end(), m.group()) for m in _MARK.finditer(answer)]
    calls: list[ToolCall] = []
    at = 0
    while at < len(marks):
        _, begin, mark = marks[at]
        at += 1
        if mark == _CLOSE:
            continue
        while at < len(marks) and marks[at][2] == _OPEN:
            at += 1
        if at == len(marks):
            calls.append(ToolCall("", error="the tool call is not finished: no closing tag"))
            break
        calls.append(read_body(answer[begin : marks[at][0]]))
        at += 1
    if len(calls) > MAX_CALLS:
        more = ToolCall("", error=f"more than {MAX_CALLS} tool calls in one message")
        return [*calls[:MAX_CALLS], more]
    return calls


def _readable(text: str, read_body: Callable[[str], ToolCall]) -> list[tuple[int, int]]:
    """Where calls stand that hold what may be a thought's mark, and can be read."""
    return [
        m.span()
        for m in _CALL.finditer(text)
        if may_think(m.group(2)) and not read_body(m.group(2)).error
    ]


DEEPEST = 64  # lists and objects in one another that anything of a model's may hold


def too_deep(value: Any) -> bool:
    """Whether lists and objects stand in one another more than `DEEPEST` deep: what walks over
    such a value by recursion would fail."""
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        lists = [cast("list[Any]", one) for one in level if isinstance(one, list)]
        lists += [[*cast("dict[str, Any]", one).values()] for one in level if isinstance(one, dict)]
        if not lists:
            return False
        level = [inner for one in lists for inner in one]
    return True


def json_value(text: str, other: Any = None) -> Any:
    """The value of JSON that a model wrote; `other` where it is none, or nested beyond reading."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return other


def _hermes_body(body: str) -> ToolCall:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        say = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        return ToolCall("", error=f"the tool call is not valid JSON ({say})")
    if not isinstance(value, dict):
        return ToolCall("", error="the tool call is not a JSON object with name and arguments")
    row = cast("dict[str, Any]", value)
    return make_call(row.get("name"), row.get("arguments"))


def make_call(name: Any, arguments: Any, call_id: str = "") -> ToolCall:
    """A call from untrusted parts; `arguments` may be an object or JSON text of one."""
    if not isinstance(name, str) or not name:
        return ToolCall("", error="the tool call names no tool", id=call_id)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ToolCall(name, error="the tool call's arguments are not valid JSON", id=call_id)
    if not isinstance(arguments, dict):
        return ToolCall(name, error="the tool call's arguments are not an object", id=call_id)
    if too_deep(arguments):
        why = f"the tool call's arguments are nested more than {DEEPEST} deep"
        return ToolCall(name, error=why, id=call_id)
    return ToolCall(name, cast("dict[str, Any]", arguments), id=call_id)


def _hermes_write(name: str, arguments: Mapping[str, Any]) -> str:
    body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    return f"{_OPEN}\n{body}\n{_CLOSE}"


def _hermes_explain(tools: Sequence[ToolSpec]) -> str:
    listed = "\n".join(json.dumps(tool.schema(), ensure_ascii=False) for tool in tools)
    return (
        "You may call functions to help with the task. Their signatures:\n"
        f"<tools>\n{listed}\n</tools>\n"
        "To call one, answer with a JSON object inside tool_call tags:\n"
        f'{_OPEN}\n{{"name": NAME, "arguments": {{…}}}}\n{_CLOSE}'
    )


_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?")
_PARAMETER_END = "</parameter>"


def _xml_body(body: str) -> ToolCall:
    match = _FUNCTION.fullmatch(body)
    if match is None:
        return ToolCall("", error="the tool call holds no <function=NAME>…</function>")
    arguments: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, text in _parameters(match.group(2)):
        arguments[name] = spelled[name] = text
        if text.lstrip()[:1] in ("[", "{"):  # lists and objects are written as JSON
            arguments[name] = json_value(text, text)
    return replace(make_call(match.group(1), arguments), spelled=spelled)


def _parameters(body: str) -> Iterator[tuple[str, str]]:
    """(name, text) of every parameter, to its first closing tag, less a newline at either end. In
    linear time: where one is not closed, none after it is."""
    at = 0
    while opening := _PARAMETER.search(body, at):
        end = body.find(_PARAMETER_END, opening.end())
        if end < 0:
            return
        yield opening.group(1), body[opening.end() : end].removesuffix("\n")
        at = end + len(_PARAMETER_END)


def _xml_write(name: str, arguments: Mapping[str, Any]) -> str:
    lines = [_OPEN, f"<function={name}>"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [f"<parameter={key}>", text, "</parameter>"]
    return "\n".join([*lines, "</function>", _CLOSE])


def _xml_explain(tools: Sequence[ToolSpec]) -> str:
    head = _hermes_explain(tools).partition("To call one")[0]
    return (
        f"{head}To call one, answer in this form:\n{_OPEN}\n<function=NAME>\n<parameter=KEY>\n"
        f"VALUE\n</parameter>\n</function>\n{_CLOSE}"
    )


def _brief_explain(tools: Sequence[ToolSpec]) -> str:
    listed = "; ".join(f"{t.name}({', '.join(t.parameters.get('properties', {}))})" for t in tools)
    return f'Tools: {listed}. Call: {_OPEN}\n{{"name": …, "arguments": {{…}}}}\n{_CLOSE}'


FORMATS: dict[str, CallFormat] = {
    # for small models whose template knows no tools: the same calls, told in a line
    "hermes_brief": CallFormat(lambda t: _read(t, _hermes_body), _hermes_write, _brief_explain),
    "hermes": CallFormat(lambda t: _read(t, _hermes_body), _hermes_write, _hermes_explain),
    "qwen_xml": CallFormat(lambda t: _read(t, _xml_body), _xml_write, _xml_explain),
}


def spelled_calls(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Where the tags of a text's calls stand, after `start`: of those that some format can read."""
    places: list[tuple[int, int]] = []
    for match in _CALL.finditer(text, start):
        read = (form.read(match.group()) for form in FORMATS.values())
        if any(len(calls) == 1 and not calls[0].error for calls in read):
            places += [match.span(1), match.span(3)]
    return places


def call_format(name: str) -> CallFormat:
    """Raises ValueError naming the formats there are."""
    if name not in FORMATS:
        raise ValueError(f"call format {name!r}: wanted one of {', '.join(FORMATS)}")
    return FORMATS[name]


# --- arguments against the schema ---------------------------------------------------------------


class Misfit(Exception):
    """A value that does not fit; the message follows the name of the argument."""


def fitting(
    spec: ToolSpec, call: ToolCall, kinds: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], str]:
    """(the call's arguments, why they do not fit the schema or "", for the model). What was only
    spelled is read as the schema says: text stays text, anything else is JSON.

    With `kinds`, a schema by argument, values are converted to it: it takes what models write,
    numbers and lists spelled as text, 3.0 for an integer.
    """
    wanted: Mapping[str, Any] = spec.parameters.get("properties", {})
    given = dict(call.arguments)
    for name, text in call.spelled.items():
        plain = kinds is not None or wanted.get(name, {}).get("type") == "string"
        value = text if plain else json_value(text, text)
        given[name] = text if too_deep(value) else value
    for name in spec.parameters.get("required", []):
        if name not in given:
            return given, f"argument {name!r} is missing"
    made: dict[str, Any] = {}
    for name, value in given.items():
        if name not in wanted:
            known = ", ".join(wanted) or "none"
            return given, f"there is no argument {name!r}; the arguments are {known}"
        try:
            made[name] = _exact(value, wanted[name]) if kinds is None else _fit(value, kinds[name])
        except Misfit as error:
            return given, f"argument {name!r}{error}"
    return made, ""


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


def _container(kind: type, value: Any) -> Any:
    found: Any = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, kind):
        raise ValueError
    return found


_TRUTHS = {"true": True, "false": False}
# type of JSON → (Python's, what a value must be, how one is read: raises for what it is not)
_Type = tuple[tuple[type, ...], str, Callable[[Any], Any]]
_TYPES: dict[str, _Type] = {
    "string": ((str,), "text", _text),
    "integer": ((int,), "a whole number", _integer),
    "number": ((int, float), "a number", _number),
    "boolean": ((bool,), "true or false", _truth),
    "null": ((type(None),), "null", _nothing),
    "array": ((list,), "a list", partial(_container, list)),
    "object": ((dict,), "an object", partial(_container, dict)),
}
NULL = {"type": "null"}
_ANYTHING: _Type = ((object,), "", lambda value: value)


def _type_of(rule: Mapping[str, Any]) -> _Type:
    return _TYPES.get(str(rule.get("type")), _ANYTHING)


def _has_type(value: Any, rule: Mapping[str, Any]) -> bool:
    types = _type_of(rule)[0]
    return isinstance(value, types) and not (isinstance(value, bool) and int in types)


def _exact(value: Any, rule: Mapping[str, Any]) -> Any:
    """The value, if its types are those of a flat schema. Raises `Misfit`."""
    if not _has_type(value, rule):
        raise Misfit(f" must be {_type_of(rule)[1]}; got {_shown(value)}")
    items: Any = rule.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return _each(value, cast("dict[str, Any]", items), _exact)
    return cast("Any", value)


def _fit(value: Any, rule: Mapping[str, Any]) -> Any:
    """`value` as a schema wants it. Raises `Misfit`."""
    if "anyOf" in rule:
        return _first_that_fits(value, rule["anyOf"])
    if "enum" in rule:
        return _chosen(value, rule["enum"])
    _, wanted, read = _type_of(rule)
    try:
        found = read(value)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise Misfit(f" must be {wanted}; got {_shown(value)}") from None
    inner = rule.get("items") or rule.get("additionalProperties")
    return _each(found, inner, _fit) if inner else found


def _each(value: Any, rule: Mapping[str, Any], how: Callable[[Any, Any], Any]) -> Any:
    """The members of a list or an object, each as the rule wants it."""
    named = isinstance(value, dict)
    made: dict[Any, Any] = dict(cast("dict[str, Any]", value) if named else enumerate(value))
    for key, one in made.items():
        try:
            made[key] = how(one, rule)
        except Misfit as error:
            raise Misfit(f"[{key!r}]{error}") from None
    return made if named else list(made.values())


def _chosen(value: Any, choices: Sequence[Any]) -> Any:
    same = [c for c in choices if type(c) is type(value) and c == value]
    if found := same or [c for c in choices if str(c) == str(value)]:  # 3 for "3", "3" for 3
        return found[0]
    known = ", ".join(map(repr, choices))
    raise Misfit(f" must be one of {known}; got {_shown(value)}")


def _first_that_fits(value: Any, rules: Sequence[Mapping[str, Any]]) -> Any:
    """As the rule whose type the value has; then as any that it converts to, text last."""
    if value is None and NULL in rules:
        return None

    def place(rule: Mapping[str, Any]) -> tuple[bool, bool]:
        return not ("type" in rule and _has_type(value, rule)), rule.get("type") == "string"

    why = ""
    for rule in sorted(rules, key=place):
        try:
            return _fit(value, rule)
        except Misfit as error:
            why = why if rule == NULL else str(error)
    raise Misfit(why)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
