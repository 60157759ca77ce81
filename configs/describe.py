"""What stands under each field of the settings, for `--help`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from typing import Any, cast

from configs.loader import section_of


def field_docs(cls: type) -> dict[str, str]:
    """Field → the text under it, on one line."""
    above = cls.__mro__[1]
    found = field_docs(above) if is_dataclass(above) else dict[str, str]()
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = cast(ast.ClassDef, tree.body[0]).body
    for field, below in pairwise(body):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            name = cast(ast.Name, cast(ast.AnnAssign, field).target).id
            found[name] = " ".join(str(below.value.value).split())
    return found


def dotted_docs(cls: type, prefix: str = "") -> dict[str, tuple[str, str]]:
    """Every setting by its full dotted name → (default as written on a command line, meaning)."""
    docs, found = field_docs(cls), dict[str, tuple[str, str]]()
    for field in fields(cast(Any, cls)):
        inner = section_of(cls, field.name)
        if inner is not None and is_dataclass(inner):
            found |= dotted_docs(inner, f"{prefix}{field.name}.")
        else:
            value = "" if field.default is MISSING else shown(field.default)
            if field.metadata.get("auto") and not field.default:
                value = "auto"
            found[prefix + field.name] = (value, docs.get(field.name, ""))
    return found


def settings_help(cls: type, without: str = "-") -> str:
    """Every setting with its default and meaning, as it stands at the end of a command's help, but
    for those whose names begin with `without`."""
    lines = [
        f"  {name}={value}\n      {doc}"
        for name, (value, doc) in dotted_docs(cls).items()
        if not name.startswith(without)
    ]
    return "\n".join(["settings, with their defaults:", *lines])


def shown(value: Any) -> str:
    """A default as one would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(v) for v in cast("tuple[Any, ...]", value)) + "]"
    return str(value)
