# What a request holds is parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""What the sandbox runs to read a release's prompts: functions of the release's own files, called
with marks in place of a task's values (release.py). Sent as text; needs the standard library alone.

Of a file its functions, classes and constants are made. Classes have no bases and nothing has a
decorator, so that no other package is needed; what cannot be made here (clients of services) is
left out.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import io
import json
import os
import re
import sys
import traceback
from types import SimpleNamespace
from typing import Any

MARK = re.compile(r"<:(\w+):>")
_ANNOTATIONS = __future__.annotations.compiler_flag  # they are not evaluated
_MADE = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
CALLS, RESULTS = "calls.json", "results.json"


class Thing(SimpleNamespace):
    """An object with members, which `get` reads too."""

    def get(self, name: str, other: Any = None) -> Any:
        return getattr(self, name, other)


def value_of(told: Any) -> Any:
    """A value of a request: `{"": members}` stands for an object."""
    if not isinstance(told, dict):
        return told
    made = {name: value_of(inner) for name, inner in told.items()}
    return Thing(**made[""]) if "" in made else made


def dumps(*given: Any, **named: Any) -> str:
    """JSON whose marks say that they stand inside of JSON."""
    return MARK.sub(r"<:\1_json:>", json.dumps(*given, **named))


def names_of(path: str, known: dict[str, Any], function: str = "", until: str = "") -> Any:
    """What a file defines, beside `known`. Of `function` only what comes before the local name
    `until` has got its value, which it then returns."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
        if isinstance(node, ast.ClassDef):
            node.bases = []
            node.keywords = []
        if isinstance(node, ast.FunctionDef) and node.name == function and until:
            gets = [i for i, line in enumerate(node.body) if until in _assigned(line)]
            node.body[(gets or [-1])[0] + 1 :] = ast.parse(f"return {until}").body
    plain = {"os": os, "re": re, "json": Thing(dumps=dumps), "open": opened}
    names: dict[str, Any] = {**plain, **known}
    for node in tree.body:
        if isinstance(node, _MADE):
            code = compile(ast.Module([node], []), path, "exec", _ANNOTATIONS)
            try:
                exec(code, names)
            except Exception:  # of another package: said where it is used
                continue
    return names


def opened(path: str, *_: Any, **__: Any) -> io.StringIO:
    """A file that holds its own name, as a mark; what is written goes nowhere."""
    return io.StringIO(f"<:{path}:>")


def _assigned(line: ast.stmt) -> set[str]:
    stored = (n for n in ast.walk(line) if isinstance(n, ast.Name))
    return {n.id for n in stored if isinstance(n.ctx, ast.Store)}


def answer(asked: dict[str, Any], told: dict[str, Any]) -> Any:
    """What a function of a file returns. Names that the file has from elsewhere are `known`: a name
    of another file, or a function that returns a text; `told` gets how that was called."""

    def known(name: str, place: dict[str, str]) -> Any:
        if "file" in place:
            return names_of(place["file"], {})[name]

        def stand_in(*_: Any, **named: Any) -> str:
            told[name] = named
            return place["text"]

        return stand_in

    others = {name: known(name, place) for name, place in asked.get("known", {}).items()}
    function = asked["call"]
    names = names_of(asked["file"], others, function, asked.get("until", ""))
    found = names.get(function)
    for kind in [one for one in names.values() if isinstance(one, type)]:
        if found is None and hasattr(kind, function):
            owner: Any = object.__new__(kind)
            owner.__dict__.update(value_of(asked.get("self", {})))
            found = getattr(owner, function)
    if found is None:
        raise LookupError(f"{asked['file']}: it has no function {function}")
    bound = inspect.signature(found).bind_partial(
        *map(value_of, asked.get("given", [])), **value_of(asked.get("named", {}))
    )
    for name, one in inspect.signature(found).parameters.items():
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            bound.arguments.setdefault(name, None)
    return found(*bound.args, **bound.kwargs)


def main() -> None:
    with open(CALLS, encoding="utf-8") as file:
        calls: list[dict[str, Any]] = json.load(file)
    told: dict[str, Any] = {}
    try:
        results = [answer(asked, told) for asked in calls]
    except Exception as error:
        files = {asked["file"] for asked in calls}
        lines = [at for at in traceback.extract_tb(error.__traceback__) if at.filename in files]
        where = f"{lines[-1].filename}:{lines[-1].lineno}: " if lines else ""
        sys.exit(f"{where}{error if isinstance(error, LookupError) else repr(error)}")
    with open(RESULTS, "w", encoding="utf-8") as file:
        json.dump([results, told], file)


if __name__ == "__main__":
    main()
