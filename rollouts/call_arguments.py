"""What a call gives, checked against the schema of its tool: a flat object of JSON types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from rollouts.tool_calls import ToolCall, ToolSpec, too_deep

_KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def fitting(spec: ToolSpec, call: ToolCall) -> tuple[dict[str, Any], str]:
    """(the call's arguments, why they do not fit the schema or ""). What was only spelled is read
    as the schema says: text stays text, anything else is JSON."""
    arguments = dict(call.arguments)
    for name, text in call.spelled.items():
        rule: Mapping[str, Any] = spec.parameters.get("properties", {}).get(name, {})
        arguments[name] = text if rule.get("type") == "string" else _as_json(text)
    return arguments, argument_error(spec, arguments)


def _as_json(text: str) -> Any:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if too_deep(value) else value


def argument_error(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """Why the arguments do not fit a flat schema, in words for the model; "" when they do."""
    wanted: dict[str, Any] = spec.parameters.get("properties", {})
    for name in spec.parameters.get("required", []):
        if name not in arguments:
            return f"argument {name!r} is missing"
    if extra := [name for name in arguments if name not in wanted]:
        return f"there is no argument {extra[0]!r}; the arguments are {', '.join(wanted)}"
    for name, value in arguments.items():
        rule: dict[str, Any] = wanted[name]
        if not _is(value, rule):
            return f"argument {name!r} must be of type {_said(rule)}"
    return ""


def _is(value: Any, rule: Mapping[str, Any]) -> bool:
    if "type" not in rule:
        return True
    kind = _KINDS.get(str(rule["type"]), object)
    if not isinstance(value, kind) or (isinstance(value, bool) and rule.get("type") != "boolean"):
        return False
    items = rule.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        inner = cast("dict[str, Any]", items)
        return all(_is(v, inner) for v in cast("list[Any]", value))
    return True


def _said(rule: Mapping[str, Any]) -> str:
    items = rule.get("items")
    inner = cast("dict[str, Any]", items) if isinstance(items, dict) else None
    return f"array of {inner.get('type')}" if inner else str(rule.get("type"))
