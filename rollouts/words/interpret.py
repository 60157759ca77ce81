"""Reading the words that a program makes, without running it.

A release makes its prompts with code: constants, f-strings, conditions, loops over examples. Here
the few forms of Python that such code needs are evaluated over its syntax tree: nothing is imported
and nothing of the program is executed; files and prints are left out. What a task gives is a
*mark*, `<:name:>`, and where marks stand in the text that comes out are the places of a template.
A form that is not known is refused with its file and line.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from configs.loader import ConfigError
from rollouts.words.templates import escaped, filled, parts

_MARK = re.compile(r"<:(\w+):>")
_MOST = 200_000  # steps of one reading
_DEEPEST = 60
_TYPES: dict[str, type] = {"str": str, "list": list, "dict": dict, "tuple": tuple, "int": int}
_TEXT = ("strip", "lstrip", "rstrip", "upper", "lower", "capitalize", "startswith", "endswith")
_BINARY: dict[type, Callable[[Any, Any], Any]] = {ast.Add: operator.add, ast.Mult: operator.mul}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def mark(name: str) -> str:
    """What stands for a value of a task."""
    return f"<:{name}:>"


def template(text: str) -> str:
    """A text with marks as a template with places."""
    return _MARK.sub(r"{\1}", escaped(text))


@dataclass(frozen=True)
class Bag:
    """An object of the program: the members that reading it needs. `get` reads members too."""

    members: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Page:
    """A file that the program opens: reading it gives its name as a mark; writing does nothing."""

    name: str


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


Env = dict[str, Any]
Call = Callable[..., Any]


def _range(*given: int) -> list[int]:
    found = range(*given)
    if len(found) > _MOST:
        raise ValueError("a loop that is too long")
    return list(found)


def _numbered(values: Sequence[Any], start: int = 0) -> list[list[Any]]:
    return [[number, value] for number, value in enumerate(values, start)]


_PLAIN: dict[str, Call] = {
    **{"str": str, "len": len, "list": list, "dict": dict, "tuple": tuple},
    **{"range": _range, "isinstance": isinstance, "enumerate": _numbered},
}


@dataclass
class Program:
    """A file of Python. `calls` answer functions that it has from elsewhere, `known` are values of
    names that it imports."""

    path: Path
    calls: Mapping[str, Call] = field(default_factory=dict[str, Call])
    known: dict[str, Any] = field(default_factory=dict[str, Any])
    _steps: int = 0
    _depth: int = 0

    @cached_property
    def source(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8").replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path}: cannot be read ({error})") from None

    @cached_property
    def tree(self) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a text's escapes
                return ast.parse(self.source)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path}: not Python that can be read ({error})") from None

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)}

    def function(self, name: str) -> ast.FunctionDef:
        """Raises `ConfigError` where there is none."""
        if name not in self.functions:
            raise ConfigError(f"{self.path}: it has no function {name}; this release is not known")
        return self.functions[name]

    def code(self, name: str) -> str:
        """The source of a function, for a hash."""
        return ast.get_source_segment(self.source, self.function(name)) or ""

    def refused(self, node: ast.AST, what: str) -> ConfigError:
        line = getattr(node, "lineno", 1)
        return ConfigError(
            f"{self.path}:{line}: {what}: this form of a prompt is not read; use a release that "
            "Assay knows, or write its words into a file (docs/extend.md)"
        )

    # ---- what a program's names mean

    def constant(self, name: str) -> Any:
        """The value of a name that the module, or a class of it, assigns. Raises `ConfigError`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef):
                for statement in node.body:
                    target, value = _assigned(statement)
                    if target == name and value is not None:
                        return self.value(value, {})
        raise ConfigError(f"{self.path}: it has no {name}; this release is not known")

    def call(self, name: str, /, *given: Any, **named: Any) -> Any:
        """What a function returns."""
        made = self.function(name)
        env = self._bound(made, given, named)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.refused(made, "calls that are nested too deep")
        try:
            self._run(made.body, env)
        except _Returned as found:
            return found.value
        finally:
            self._depth -= 1
        return None

    def until(self, name: str, wanted: str, /, **env: Any) -> Any:
        """The value of the local name `wanted` of a function once it has been given one. Calls that
        stand alone before it are left out."""
        made = self.function(name)
        known: Env = dict(env)
        for statement in made.body:
            self._run([statement], known)
            if wanted in known and wanted not in env:
                return known[wanted]
        raise self.refused(made, f"{name} gives {wanted} no value")

    def _bound(self, made: ast.FunctionDef, given: Sequence[Any], named: Mapping[str, Any]) -> Env:
        names = [a.arg for a in (*made.args.posonlyargs, *made.args.args)]
        env: Env = {}
        pairs = zip(reversed(names), reversed(made.args.defaults), strict=False)
        env |= {name: self.value(node, {}) for name, node in pairs}
        for argument, default in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True):
            names.append(argument.arg)
            if default is not None:
                env[argument.arg] = self.value(default, {})
        env |= dict(zip(names, given, strict=False))
        more = {key: value for key, value in named.items() if key not in names}
        env |= {key: value for key, value in named.items() if key in names}
        if made.args.kwarg is not None:
            env[made.args.kwarg.arg] = more
        if [name for name in names if name not in env]:
            raise self.refused(made, f"a call of {made.name} without all its arguments")
        return env

    # ---- statements

    def _run(self, body: Sequence[ast.stmt], env: Env) -> None:
        for node in body:
            self._step(node)
            match node:
                case ast.Return():
                    raise _Returned(None if node.value is None else self.value(node.value, env))
                case ast.Assign(targets=[target]):
                    self._assign(target, self.value(node.value, env), env)
                case ast.AnnAssign(value=ast.expr() as value):
                    self._assign(node.target, self.value(value, env), env)
                case ast.AugAssign(op=ast.Add(), target=ast.Name(id=name)):
                    before = self.value(ast.Name(name, lineno=node.lineno), env)
                    env[name] = self._plus(node, before, self.value(node.value, env))
                case ast.If():
                    self._run(node.body if self.value(node.test, env) else node.orelse, env)
                case ast.For(orelse=[]):
                    for value in self._listed(node.iter, env):
                        self._assign(node.target, value, env)
                        self._run(node.body, env)
                case ast.With():
                    for item in node.items:
                        opened = self.value(item.context_expr, env)
                        if item.optional_vars is not None:
                            self._assign(item.optional_vars, opened, env)
                    self._run(node.body, env)
                case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append" | "extend"))):
                    self.value(node.value, env)
                case ast.Expr() | ast.Pass() | ast.Assert() | ast.Import() | ast.ImportFrom():
                    continue  # a docstring, a print, a file that is written
                case _:
                    raise self.refused(node, f"a statement {type(node).__name__}")

    def _assign(self, target: ast.expr, value: Any, env: Env) -> None:
        match target:
            case ast.Name(id=name):
                env[name] = value
            case ast.Tuple(elts=names) if isinstance(value, list | tuple):
                values = cast("list[Any]", list(value))  # pyright: ignore[reportUnknownArgumentType]
                if len(values) != len(names):
                    raise self.refused(target, "an assignment of another length")
                for one, each in zip(names, values, strict=True):
                    self._assign(one, each, env)
            case _:
                raise self.refused(target, "an assignment to this")

    def _step(self, node: ast.AST) -> None:
        self._steps += 1
        if self._steps > _MOST:
            raise self.refused(node, "too many steps")

    # ---- expressions

    def value(self, node: ast.expr, env: Env) -> Any:
        """What an expression gives. Raises `ConfigError`."""
        self._step(node)
        match node:
            case ast.Constant():
                return node.value
            case ast.JoinedStr():
                return "".join(self._piece(piece, env) for piece in node.values)
            case ast.Name():
                return self._name(node, env)
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(one, env) for one in node.elts]
            case ast.Dict():
                return self._dict(node, env)
            case ast.BoolOp():
                return self._either(node, env)
            case ast.UnaryOp(op=ast.Not()):
                return not self.value(node.operand, env)
            case ast.BinOp():
                left, right = self.value(node.left, env), self.value(node.right, env)
                if type(node.op) not in _BINARY:
                    raise self.refused(node, f"an operator {type(node.op).__name__}")
                return self._plus(node, left, right, _BINARY[type(node.op)])
            case ast.Compare(ops=[op], comparators=[other]) if type(op) in _COMPARE:
                return self._tried(
                    node, _COMPARE[type(op)], self.value(node.left, env), self.value(other, env)
                )
            case ast.IfExp():
                return self.value(node.body if self.value(node.test, env) else node.orelse, env)
            case ast.Subscript():
                found, key = self.value(node.value, env), self.value(node.slice, env)
                return self._tried(node, operator.getitem, found, key)
            case ast.ListComp(generators=[over]) | ast.GeneratorExp(generators=[over]):
                return list(self._each(node.elt, over, env))
            case ast.Attribute():
                return self._member(node, env)
            case ast.Call():
                return self._call(node, env)
            case _:
                raise self.refused(node, f"an expression {type(node).__name__}")

    def _piece(self, node: ast.expr, env: Env) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        if not isinstance(node, ast.FormattedValue) or node.format_spec or node.conversion > 0:
            raise self.refused(node, "an f-string with a format")
        value = self.value(node.value, env)
        if not isinstance(value, str | int):
            raise self.refused(node, f"an f-string with a {type(value).__name__}")
        return str(value)

    def _name(self, node: ast.Name, env: Env) -> Any:
        if node.id in env:
            return env[node.id]
        if node.id in self.known:
            return self.known[node.id]
        if node.id in _TYPES:
            return _TYPES[node.id]
        return self.constant(node.id)

    def _dict(self, node: ast.Dict, env: Env) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            made = self.value(value, env)
            if key is not None:
                found[self.value(key, env)] = made
            elif isinstance(made, dict):
                found |= made
            else:
                raise self.refused(value, "what ** unpacks")
        return found

    def _either(self, node: ast.BoolOp, env: Env) -> Any:
        found: Any = None
        for one in node.values:
            found = self.value(one, env)
            if bool(found) == isinstance(node.op, ast.Or):
                return found
        return found

    def _each(self, made: ast.expr, over: ast.comprehension, env: Env) -> Iterator[Any]:
        inner = dict(env)
        for value in self._listed(over.iter, env):
            self._assign(over.target, value, inner)
            if all(self.value(test, inner) for test in over.ifs):
                yield self.value(made, inner)

    def _listed(self, node: ast.expr, env: Env) -> list[Any]:
        found = self.value(node, env)
        if not isinstance(found, list | tuple | dict):
            raise self.refused(node, f"a loop over a {type(found).__name__}")
        return list(cast("list[Any]", found))

    def _plus(
        self, node: ast.AST, left: Any, right: Any, how: Callable[[Any, Any], Any] = operator.add
    ) -> Any:
        if isinstance(right, int) and right > _MOST:
            raise self.refused(node, "a number that is too large")
        found = self._tried(node, how, left, right)
        if isinstance(found, str | list) and len(cast("str", found)) > _MOST:
            raise self.refused(node, "a text that is too long")
        return cast("Any", found)

    def _tried(self, node: ast.AST, how: Call, *given: Any, **named: Any) -> Any:
        try:
            return how(*given, **named)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise self.refused(node, f"it gives no value here ({error})") from None

    def _member(self, node: ast.Attribute, env: Env) -> Any:
        found = self.value(node.value, env)
        if isinstance(found, Bag) and node.attr in found.members:
            return found.members[node.attr]
        raise self.refused(node, f"the member {node.attr}")

    # ---- calls

    def _call(self, node: ast.Call, env: Env) -> Any:
        given = [self.value(one, env) for one in node.args]
        named: dict[str, Any] = {}
        for word in node.keywords:
            value = self.value(word.value, env)
            if word.arg is None and not isinstance(value, dict):
                raise self.refused(node, "what ** unpacks")
            named |= {word.arg: value} if word.arg else cast("dict[str, Any]", value)
        if isinstance(node.func, ast.Name):
            return self._by_name(node, node.func.id, given, named)
        if isinstance(node.func, ast.Attribute):
            return self._by_member(node, node.func, given, named, env)
        raise self.refused(node, "a call of this")

    def _by_name(self, node: ast.Call, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        if name in self.calls:
            return self._tried(node, self.calls[name], *given, **named)
        if name in self.functions:
            return self.call(name, *given, **named)
        if name == "open" and given:
            return Page(str(given[0]))
        if name not in _PLAIN:
            raise self.refused(node, f"a call of {name}")
        return self._tried(node, _PLAIN[name], *given, **named)

    def _by_member(
        self,
        node: ast.Call,
        func: ast.Attribute,
        given: list[Any],
        named: dict[str, Any],
        env: Env,
    ) -> Any:
        whole = ast.unparse(func)
        if whole == "json.dumps":
            return _MARK.sub(r"<:\1_json:>", self._tried(node, json.dumps, *given, **named))
        if whole == "os.path.join":
            return "/".join(str(one) for one in given)
        found, name = self.value(func.value, env), func.attr
        if isinstance(found, Bag) and name == "get":
            return self._tried(node, found.members.get, *given)
        if isinstance(found, Bag) and name in self.functions and name not in found.members:
            return self.call(name, found, *given, **named)
        if isinstance(found, Page) and name in ("read", "write"):
            return mark(found.name)
        if isinstance(found, str) and name == "format" and not given:
            return self._tried(node, filled, found, named)
        if isinstance(found, str) and name == "join":
            return self._tried(node, found.join, *given)
        known = isinstance(found, str) and name in _TEXT
        known |= isinstance(found, list) and name in ("append", "extend")
        if isinstance(found, dict) and name in ("keys", "values", "items"):
            return [list(x) if name == "items" else x for x in getattr(found, name)()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if known or (isinstance(found, dict) and name == "get"):
            return self._tried(node, getattr(found, name), *given, **named)  # pyright: ignore[reportUnknownArgumentType]
        raise self.refused(node, f"a call of {whole}")


def _assigned(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case _:
            return "", None


__all__ = ["Bag", "Page", "Program", "mark", "parts", "template"]
