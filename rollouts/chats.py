# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Chats as people store them, read into one form: what is said, by whom, and what is learned of it.

Two forms are read: `messages` as OpenAI writes them (`tool_calls`, or the older `function_call`;
contents as text or as parts), and ShareGPT's `conversations` (`from` and `value`). What would
change what a model learns is obeyed or refused by name; what only tells about a row (ids, sources,
times) is left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.task import TaskError
from rollouts.tool_calls import FORMATS, ToolCall, ToolSpec, fitting, make_call

FIELDS = ("messages", "conversations", "conversation")
ROLES = {
    **{name: name for name in ("system", "user", "assistant", "tool")},
    **{"developer": "system", "human": "user"},
    **dict.fromkeys(("gpt", "model", "bot", "chatgpt", "bing", "bard"), "assistant"),
    **dict.fromkeys(("function", "observation", "function_response", "ipython"), "tool"),
    "function_call": "assistant",
}
LEARNED = ("weight", "train", "training", "trainable", "loss", "loss_mask")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_TEXTS = ("text", "input_text", "output_text")  # types of content parts
_KNOWN = {
    *("role", "from", "content", "value", "tool_calls", "function_call", "tool_call_id", "name"),
    *LEARNED,
    *THOUGHTS,
}
# words in the name of a field that may change what is learned
_CHANGES = {
    *("weight", "weights", "loss", "train", "trained", "training", "trainable", "mask", "masked"),
    *("reasoning", "think", "thinking", "thought", "thoughts", "prefix", "partial", "refusal"),
    *("tool", "tools", "function", "functions", "call", "calls", "channel", "recipient"),
    *("image", "images", "video", "videos", "audio", "audios", "document", "documents"),
}
# fields beside the chat; a row has many more, about itself
_ROW_CHANGES = (
    *("weight", "weights", "sample_weight", "loss_weight", "loss_weights", "train", "training"),
    *("trainable", "loss", "mask", "image", "images", "video", "videos", "audio", "audios"),
    *("documents", "chosen", "rejected", "kto_tag", "chat_template"),
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SPELLED = re.compile(r"<tool_call>.*?</tool_call>", re.DOTALL)
_ANSWERED = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)


@dataclass(frozen=True)
class Turn:
    """One message. `calls` and `thought` are an assistant's; `learned`: whether it carries loss."""

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""
    learned: bool = False
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    """`name` and `tool_call_id`, where they are there: some templates write them."""

    @property
    def says(self) -> bool:
        """Whether an assistant writes anything here but the end of its turn."""
        return bool(self.content.strip() or self.calls or self.thought.strip())

    def message(self) -> dict[str, Any]:
        """As chat templates take a message of anyone but the assistant."""
        return {"role": self.role, "content": self.content, **self.more}


@dataclass(frozen=True)
class Chat:
    """A conversation, the tools that the model is shown, and arguments of its chat template."""

    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict[str, Any])


def is_chat(row: Mapping[str, Any]) -> bool:
    """Whether a row holds a conversation."""
    return any(row.get(name) for name in FIELDS)


def chat_of(row: Mapping[str, Any], where: str) -> Chat:
    """The conversation of a row. Raises `TaskError` naming the field that cannot be used."""
    _refuse_fields(row, where)
    named = [name for name in FIELDS if row.get(name)]
    if len(named) > 1:
        raise TaskError(f"{where}: it has `{named[0]}` and `{named[1]}`; leave one of them")
    messages = row[named[0]]
    if not isinstance(messages, list | tuple):
        raise TaskError(f"{where}: `{named[0]}` is {type(messages).__name__}; wanted a list")
    turns = [turn for message in messages for turn in turns_of(message, where)]
    if system := row.get("system"):
        if not isinstance(system, str) or turns[0].role == "system":
            raise TaskError(f"{where}: `system` is no text, or a message says the same; leave one")
        turns.insert(0, Turn("system", system))
    tools = row.get("tools") or row.get("functions")
    return Chat(tuple(turns), tuple(tools_of(tools, where)), _template(row, where))


def turns_of(message: Any, where: str) -> list[Turn]:
    """One message as a turn; a ShareGPT `tool` message may hold the answers to several calls.

    Raises `TaskError` naming the field that cannot be used.
    """
    if not isinstance(message, Mapping):
        raise TaskError(f"{where}: `messages` is a list of {{role, content}}; got {message!r:.80}")
    said, value = message.get("role"), message.get("content")
    shared = said is None and isinstance(message.get("from"), str)
    if shared:
        said, value = message["from"], message.get("value")
    if not isinstance(said, str):
        raise TaskError(f"{where}: `messages` is a list of {{role, content}}; got {message!r:.80}")
    role = ROLES.get(said)
    if role is None:
        known = ", ".join(ROLES)
        raise TaskError(f"{where}: the role {said!r} of a message is not known; wanted {known}")
    _refuse_unknown(message, where)
    more = {k: message[k] for k in ("name", "tool_call_id") if isinstance(message.get(k), str)}
    learned = _learned(message, role, where)
    if role != "assistant":
        for name in ("tool_calls", "function_call", *THOUGHTS):
            if message.get(name):
                raise TaskError(f"{where}: a {role} message has `{name}`; only an assistant's may")
        text = _text(value, said, where)
        parts = _ANSWERED.findall(text) if shared and role == "tool" else []
        if parts and not _ANSWERED.sub("", text).strip():
            return [Turn(role, part, more=more) for part in parts]
        return [Turn(role, text, more=more)]
    if said == "function_call":
        return [Turn(role, "", tuple(_spelled_calls(value, where)), learned=learned)]
    calls = tuple(calls_of(message, where))
    thought = _thought(message, where)
    text = "" if not value and (calls or not shared) else _text(value, said, where)
    return [Turn(role, text, calls, thought, learned, {})]


def read_calls(turn: Turn, tools: Sequence[ToolSpec]) -> Turn:
    """An assistant's turn with the calls that its text spells, in any format, taken out of the
    text: for a model that spells calls otherwise. What cannot be read stays as it is."""
    calls: Sequence[ToolCall] = ()
    for form in FORMATS.values() if turn.role == "assistant" and not turn.calls else ():
        calls = form.read(turn.content)
        if calls and not any(call.error for call in calls):
            break
    else:
        return turn
    start = turn.content.find("<tool_call>", max(turn.content.rfind("</think>"), 0))
    if _SPELLED.sub("", turn.content[start:]).strip():
        return turn  # words between the calls or after them
    named = {spec.name: spec for spec in tools}
    made = [
        ToolCall(c.name, fitting(named[c.name], c)[0] if c.name in named else c.arguments)
        for c in calls
    ]
    return replace(turn, content=turn.content[:start].rstrip("\n"), calls=tuple(made))


def calls_of(message: Mapping[str, Any], where: str) -> list[ToolCall]:
    """The calls of an assistant's message, arguments as an object or as JSON text of one.

    Raises `TaskError` for one that cannot be read.
    """
    listed = message.get("tool_calls")
    if message.get("function_call"):
        listed = [*(listed or ()), {"function": message["function_call"]}]
    if not listed:
        return []
    if not isinstance(listed, list | tuple):
        raise TaskError(f"{where}: `tool_calls` is {type(listed).__name__}; wanted a list")
    return [_call(one, where) for one in listed]


def _call(said: Any, where: str) -> ToolCall:
    inner = said.get("function", said) if isinstance(said, Mapping) else None
    if not isinstance(inner, Mapping):
        raise TaskError(f"{where}: a tool call is no {{name, arguments}}: {said!r:.80}")
    arguments = inner.get("arguments")
    # what came by parquet is a dict already, and a tool without parameters may have none
    made = make_call(inner.get("name"), {} if arguments in (None, "") else arguments)
    if made.error:
        raise TaskError(f"{where}: `tool_calls`: {made.error}: {said!r:.200}")
    return made


def _spelled_calls(value: Any, where: str) -> list[ToolCall]:
    """ShareGPT's `function_call`: JSON of one call, or of a list."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise TaskError(f"{where}: a function_call is no JSON: {value!r:.80}") from None
    return [_call(one, where) for one in (found if isinstance(found, list) else [found])]


def _text(value: Any, role: str, where: str) -> str:
    """A text, or a list of parts that are all text, put together."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise TaskError(f"{where}: the content of a {role} message is no text")
    parts: list[str] = []
    for part in value:
        kind = part.get("type", "text") if isinstance(part, Mapping) else "text"
        text = part.get("text") if isinstance(part, Mapping) else part
        if kind not in _TEXTS or not isinstance(text, str):
            raise TaskError(
                f"{where}: a {role} message has a content part of type {kind!r}; only text is read"
            )
        parts.append(text)
    return "".join(parts)


def _thought(message: Mapping[str, Any], where: str) -> str:
    """What an assistant thought before it spoke."""
    found = {name: message[name] for name in THOUGHTS if message.get(name)}
    for name, value in found.items():
        if not isinstance(value, str):
            raise TaskError(f"{where}: `{name}` of an assistant message is no text")
    if len({*found.values()}) > 1:
        raise TaskError(f"{where}: {' and '.join(found)} of a message differ; leave one of them")
    return next(iter(found.values()), "")


def _learned(message: Mapping[str, Any], role: str, where: str) -> bool:
    """Whether a message carries loss: an assistant's, unless a field says no."""
    learned = role == "assistant"
    for name in LEARNED:
        value = message.get(name)
        if value is None:
            continue
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise TaskError(
                f"{where}: `{name}` of a message is {value!r:.60}; a whole message is learned (1, "
                "true) or is not (0, false)"
            )
        if value and role != "assistant":
            raise TaskError(
                f"{where}: `{name}` of a {role} message is {value!r}; only what an assistant says "
                "is learned: set it to 0 or leave it out"
            )
        learned = learned and bool(value)
    return learned


def _refuse_unknown(message: Mapping[str, Any], where: str) -> None:
    """Raise `TaskError` for a field of a message whose name says that it matters."""
    for name, value in message.items():
        words = {word.lower() for word in _WORD.findall(str(name))}
        if value and name not in _KNOWN and words & _CHANGES:
            raise TaskError(
                f"{where}: `{name}` of a message is not read, and may change what is learned; "
                "write it into the content, or leave it out"
            )


def _refuse_fields(row: Mapping[str, Any], where: str) -> None:
    """Raise `TaskError` for a field beside the chat that changes what is learned."""
    for name in _ROW_CHANGES:
        value = row.get(name)
        empty = value is None or (isinstance(value, list | str | Mapping) and not value)
        same = isinstance(value, bool | int | float) and value == 1
        if not (empty or same):
            raise TaskError(
                f"{where}: `{name}` of a row is not read, and would change what is learned; leave "
                "the row or the field out"
            )
    if row.get("label") is False:
        raise TaskError(f"{where}: `label` is false: an answer not to be learned; leave it out")


def _template(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Arguments of the chat template that a row asks for."""
    said = row.get("chat_template_kwargs") or {}
    try:
        found = json.loads(said) if isinstance(said, str) else said
        named = dict(found)
    except (ValueError, TypeError, RecursionError):
        raise TaskError(f"{where}: `chat_template_kwargs` is no JSON object") from None
    if row.get("enable_thinking") is not None:
        named["enable_thinking"] = row["enable_thinking"]
    return named


def tools_of(said: Any, where: str) -> list[ToolSpec]:
    """The schemas that the model is shown, nested or as JSON text. Raises `TaskError`."""
    try:
        listed = (json.loads(said) if isinstance(said, str) else said) or []
        inner = [tool.get("function") or tool for tool in listed]
        parts = ((f, f.get("description") or "", f.get("parameters") or {}) for f in inner)
        return [
            ToolSpec(f["name"], about, _schema(given), bool(f.get("strict")))
            for f, about, given in parts
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise TaskError(f"{where}: `tools` is no list of function schemas") from None


def _schema(said: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without properties that are null: Arrow gives every tool those of its neighbours."""
    found = dict(said)
    properties = found.get("properties")
    if isinstance(properties, Mapping):
        found["properties"] = {
            name: _schema(inner) if isinstance(inner, Mapping) else inner
            for name, inner in properties.items()
            if inner is not None
        }
    return found


def without_nulls(value: Any) -> Any:
    """Nested data of a parquet file without the null members of its objects: Arrow gives every
    object of a column the members of all others."""
    if isinstance(value, Mapping):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(v) for v in value] if isinstance(value, list) else value


def same_words(messages: Sequence[Any]) -> str:
    """What a conversation says, as one text that is equal for conversations that say the same:
    who says what and which calls are made, without ids."""
    turns = [turn for message in messages for turn in turns_of(message, "a rollout")]
    said = [[t.role, t.content, t.thought, [[c.name, c.arguments] for c in t.calls]] for t in turns]
    return json.dumps(said, sort_keys=True)
