"""A builder's keyword arguments as settings: read from `key=value` words, checked by type."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import Any, Union, cast

from assay.family import Family
from assay.task import TaskError
from configs.loader import ConfigError, load

_MADE_FROM: dict[Any, Callable[[Any], Any]] = {  # a setting's type: how it is made from a tuple
    list: list,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Iterable: list,
}


def read_settings(family: Family, words: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments for the family's `build`: its defaults, then `key=value` words.

    Raises `ConfigError` for an unknown key (naming the nearest), a value of another type, and a
    setting without default that is not given.
    """
    parameters = _parameters(family, [word.partition("=")[0].strip() for word in words])
    kinds = _kinds(family, parameters)
    given = [word.partition("=")[0].strip() for word in words]
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise ConfigError(
                f"build of family {family.name}: setting {name} has no default; give {name}=VALUE"
            )
    if not parameters and words:
        raise ConfigError(
            f"command line: {words[0]!r}: build of family {family.name} has no settings"
        )
    read = _read({name: kind for name, (kind, _) in kinds.items()}, words)
    settings = {name: parameter.default for name, parameter in parameters.items()}
    for name, value in read.items():
        settings[name] = None if value is None else kinds[name][1](value)
    return settings


def given_values(cls: type, words: Sequence[str]) -> dict[str, Any]:
    """The settings of a dataclass that `key=value` words name, each of its field's type.

    The dataclass's own rules are not asked: they hold for the whole, defaults included.
    """
    hints = typing.get_type_hints(cls)
    return _read({f.name: hints[f.name] for f in fields(cast(Any, cls))}, words)


def _read(kinds: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The values that are given, by the loader's own rules."""
    made = make_dataclass("Settings", [(n, kind, field(default=None)) for n, kind in kinds.items()])
    read = load(cast("type[Any]", made), None, words)
    given = dict.fromkeys(word.partition("=")[0].strip() for word in words)
    return {name: getattr(read, name) for name in given}


def _parameters(family: Family, given: Sequence[str]) -> dict[str, inspect.Parameter]:
    """The builder's arguments after the seed; one that takes `**settings` takes any."""
    if family.build is None:
        return {}
    signature = inspect.signature(family.build)
    listed = list(signature.parameters.values())
    if not listed or listed[0].kind in (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ):
        raise TaskError(
            f"family {family.name}: build{signature} takes no seed; write build(seed, **settings)"
        )
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = {p.name: p for p in listed[1:] if p.kind in named}
    if listed[-1].kind is inspect.Parameter.VAR_KEYWORD:
        other = [name for name in given if name.isidentifier() and name not in found]
        found |= {n: inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in other}
    return found


def _kinds(
    family: Family, parameters: Mapping[str, inspect.Parameter]
) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """(type that the loader reads, function from what it read to the argument) of each setting."""
    try:
        hints = typing.get_type_hints(family.build)
    except Exception:  # names that only a type checker knows
        hints = {}
    found: dict[str, tuple[Any, Callable[[Any], Any]]] = {}
    for name, parameter in parameters.items():
        kind = hints.get(name)
        if kind is None:
            kind = _kind_of(parameter.default)
        found[name] = _readable(kind)
    return found


def _kind_of(default: Any) -> Any:
    """A type for an argument without annotation, from its default."""
    if default is None or default is inspect.Parameter.empty:
        return object
    if isinstance(default, list | tuple):
        kinds: set[Any] = {type(item) for item in cast("Sequence[Any]", default)}
        inner: Any = kinds.pop() if len(kinds) == 1 else object
        return list[inner] if isinstance(default, list) else tuple[inner, ...]
    return cast(Any, type(default))


def _same(value: Any) -> Any:
    return value


def _readable(kind: Any) -> tuple[Any, Callable[[Any], Any]]:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (Union, types.UnionType):
        rest = [k for k in inner if k is not type(None)]
        if len(rest) != 1:
            return object, _same
        one, back = _readable(rest[0])
        return one | None, back
    if origin is Path:
        return str, Path
    if origin in _MADE_FROM:
        item = _readable(inner[0])[0] if inner else object
        return tuple[item, ...], _MADE_FROM[origin]
    if origin is tuple:
        return (kind if inner else tuple[object, ...]), _same
    if origin is typing.Literal or kind in (int, float, bool, str):
        return kind, _same
    if origin in (dict, Mapping):
        return dict, _same
    return object, _same
