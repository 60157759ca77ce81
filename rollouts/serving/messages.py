"""Messages and tools of a chat request, as a chat template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from rollouts.prompts import ChatTokenizer
from rollouts.serving.refused import RequestError
from rollouts.tool_calls import ToolSpec, make_call


def messages_of(value: Any, tokenizer: ChatTokenizer) -> list[dict[str, Any]]:
    """Role and text of each, tool calls written out. Raises `RequestError` naming the message."""
    if not isinstance(value, list) or not value:
        raise RequestError("messages: wanted a list of messages", "messages")
    return [_message(m, i, tokenizer) for i, m in enumerate(cast("list[Any]", value))]


def _message(value: Any, place: int, tokenizer: ChatTokenizer) -> dict[str, Any]:
    where = f"messages[{place}]"
    if not isinstance(value, dict):
        raise RequestError(f"{where}: wanted an object", "messages")
    row = cast("dict[str, Any]", value)
    role = row.get("role")
    if role == "developer":
        role = "system"
    if role not in ("system", "user", "assistant", "tool"):
        raise RequestError(f"{where}.role: wanted system, user, assistant or tool", "messages")
    text = _content(row.get("content"), where)
    if calls := row.get("tool_calls"):
        if role != "assistant" or not isinstance(calls, list):
            raise RequestError(f"{where}.tool_calls: wanted a list, in an assistant's", "messages")
        written = _written(cast("list[Any]", calls), where, tokenizer)
        text = "\n".join([text, *written] if text else written)
    elif role != "assistant" and row.get("content") is None:
        raise RequestError(f"{where}.content: it is missing", "messages")
    return {"role": role, "content": text}


def _content(value: Any, where: str) -> str:
    """A text, or a list of parts that are all text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts: list[str] = []
    for part in cast("list[Any]", value if isinstance(value, list) else [value]):
        row = row_of(part)
        text = row.get("text")
        if row.get("type") != "text" or not isinstance(text, str):
            raise RequestError(f"{where}.content: wanted a text; only text is read", "messages")
        parts.append(text)
    return "\n".join(parts)


def _written(calls: Sequence[Any], where: str, tokenizer: ChatTokenizer) -> list[str]:
    """Earlier calls as this model spells them."""
    said: list[str] = []
    for call in calls:
        function = row_of(row_of(call).get("function"))
        made = make_call(function.get("name"), function.get("arguments"))
        if made.error:
            raise RequestError(f"{where}.tool_calls: {made.error}", "messages")
        said.append(tokenizer.calls.write(made.name, made.arguments))
    return said


def tools_of(value: Any) -> list[ToolSpec]:
    """The tools a request offers. Raises `RequestError` for what is no function."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError("tools: wanted a list", "tools")
    found: list[ToolSpec] = []
    for i, tool in enumerate(cast("list[Any]", value)):
        function = row_of(row_of(tool).get("function"))
        name, schema = function.get("name"), function.get("parameters")
        if row_of(tool).get("type") != "function" or not isinstance(name, str) or not name:
            raise RequestError(f"tools[{i}]: wanted a function with a name", "tools")
        if not isinstance(schema, dict | None):
            raise RequestError(f"tools[{i}].parameters: wanted a JSON schema", "tools")
        found.append(ToolSpec(name, str(function.get("description") or ""), row_of(schema)))
    return found


def row_of(value: Any) -> dict[str, Any]:
    """The object, or an empty one where it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
