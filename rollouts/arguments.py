"""Annotations as JSON schemas, and a model's values converted to them."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}
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
    names = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
    kinds = {names.get(type(v).__name__, "") for v in values if v is not None}
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
        return _SIMPLE[kind](value)
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
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise Misfit(f" must be text; got {_shown(value)}")


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        if isinstance(value, str):
            return int(value.strip())
        if isinstance(value, float) and value.is_integer():
            return int(value)
    except ValueError:
        pass
    raise Misfit(f" must be a whole number; got {_shown(value)}")


def _number(value: Any) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found):
            return found
    raise Misfit(f" must be a number; got {_shown(value)}")


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = {"true": True, "false": False}.get(str(value).strip().lower())
    if found is None:
        raise Misfit(f" must be true or false; got {_shown(value)}")
    return found


_SIMPLE: dict[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: _truth,
    _NONE: lambda value: _nothing(value),
}


def _nothing(value: Any) -> None:
    if value is not None and str(value).strip().lower() not in ("null", "none", ""):
        raise Misfit(f" must be null; got {_shown(value)}")


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
