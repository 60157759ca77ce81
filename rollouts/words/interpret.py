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
from functools import partial
from pathlib import Path
from typing import Any, cast

from configs.loader import ConfigError
from rollouts.words.templates import escaped, filled

_MARK = re.compile(r"<:(\w+):>")
_MOST = 200_000  # steps of one reading, and the size of any value
_DEEPEST = 60  # calls inside one another
_WRONG = (TypeError, ValueError, LookupError, AttributeError)  # of an operation on its operands


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


class _Returned(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


Env = dict[str, Any]
Call = Callable[..., Any]


def _range(*given: int) -> list[int]:
    return list(range(*given)[: _MOST + 1])


def _numbered(values: Sequence[Any], start: int = 0) -> list[list[Any]]:
    return [[number, value] for number, value in enumerate(values, start)]


def _times(left: Any, right: Any) -> Any:
    if right > 1000:
        raise ValueError("repeated too often")
    return left * right


def _json(*given: Any, **named: Any) -> str:
    return _MARK.sub(r"<:\1_json:>", json.dumps(*given, **named))


def _open(path: Any, *how: Any, **more: Any) -> str:
    """A file's text, which is its name as a mark: `read` gives it, and writing does nothing."""
    return mark(str(path))


# what every program has: its builtins, and two functions of the standard library
_PLAIN: dict[str, Call] = {
    **{kind.__name__: kind for kind in (str, list, dict, tuple, int)},
    **{"len": len, "isinstance": isinstance, "range": _range, "enumerate": _numbered},
    **{"open": _open, "json.dumps": _json, "os.path.join": lambda *ps: "/".join(map(str, ps))},
}
_METHODS: dict[type, tuple[str, ...]] = {
    str: (
        *("strip", "lstrip", "rstrip", "upper", "lower", "capitalize"),
        *("startswith", "endswith", "join", "format", "read"),
    ),
    list: ("append", "extend"),
    dict: ("get", "keys", "values", "items"),
}
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Mult: _times,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


class Program:
    """A file of Python. `known` are the names that it has from elsewhere: values, and functions."""

    def __init__(self, path: Path, known: Mapping[str, Any] | None = None) -> None:
        self.path, self.known, self._steps, self._depth = path, dict(known or {}), 0, 0
        try:
            self.source = path.read_text(encoding="utf-8").replace("\r\n", "\n")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a text's escapes
                self.tree = ast.parse(self.source)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not Python that can be read ({error})") from None
        functions = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        self.functions = {made.name: made for made in functions}

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
            for statement in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
                match statement:
                    case (
                        ast.Assign(targets=[ast.Name(id=target)], value=value)
                        | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
                    ) if target == name:
                        return self.value(value, {})
                    case _:
                        continue
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
        """The arguments of a call by name."""
        said = made.args
        names = [argument.arg for argument in (*said.posonlyargs, *said.args)]
        defaults = {
            **dict(zip(reversed(names), reversed(said.defaults), strict=False)),
            **{a.arg: node for a, node in zip(said.kwonlyargs, said.kw_defaults, strict=True)},
        }
        env: Env = {name: self.value(node, {}) for name, node in defaults.items() if node}
        env |= zip(names, given, strict=False)
        names += [argument.arg for argument in said.kwonlyargs]
        env |= {name: value for name, value in named.items() if name in names}
        if said.kwarg is not None:
            env[said.kwarg.arg] = {n: value for n, value in named.items() if n not in names}
        if not env.keys() >= set(names):
            raise self.refused(made, f"a call of {made.name} without all its arguments")
        return env

    # ---- statements

    def _run(self, body: Sequence[ast.stmt], env: Env) -> None:
        for node in body:
            match node:
                case ast.Return():
                    raise _Returned(self.value(node.value, env) if node.value else None)
                case (
                    ast.Assign(targets=[target], value=value)
                    | ast.AnnAssign(target=target, value=ast.expr() as value)
                ):
                    self._assign(target, self.value(value, env), env)
                case ast.AugAssign(target=ast.Name(id=name) as target):
                    before = ast.Name(name, lineno=target.lineno)
                    summed = ast.BinOp(before, node.op, node.value, lineno=node.lineno)
                    env[name] = self.value(summed, env)
                case ast.If():
                    self._run(node.body if self.value(node.test, env) else node.orelse, env)
                case ast.For(orelse=[]):
                    for value in self._listed(node.iter, env):
                        self._assign(node.target, value, env)
                        self._run(node.body, env)
                case ast.With(items=[ast.withitem(opened, name)]):
                    value = self.value(opened, env)
                    if name is not None:
                        self._assign(name, value, env)
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
                values = cast("Sequence[Any]", value)
                if len(values) != len(names):
                    raise self.refused(target, "an assignment of another length")
                for one, each in zip(names, values, strict=True):
                    self._assign(one, each, env)
            case _:
                raise self.refused(target, "an assignment to this")

    # ---- expressions

    def value(self, node: ast.expr, env: Env) -> Any:
        """What an expression gives. Raises `ConfigError`."""
        self._steps += 1
        if self._steps > _MOST:
            raise self.refused(node, "too many steps")
        try:
            found = self._value(node, env)
        except ConfigError:
            raise
        except _WRONG as error:
            raise self.refused(node, f"it gives no value here ({error})") from None
        if isinstance(found, str | list) and len(cast("str", found)) > _MOST:
            raise self.refused(node, "a value that is too long")
        return cast("Any", found)

    def _value(self, node: ast.expr, env: Env) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.JoinedStr():
                return "".join(self._piece(piece, env) for piece in node.values)
            case ast.Name(id=name):
                for known in (env, self.known, _PLAIN):
                    if name in known:
                        return known[name]
                return self.constant(name)
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(one, env) for one in node.elts]
            case ast.Dict():
                made: dict[Any, Any] = {}
                for key, value in zip(node.keys, node.values, strict=True):
                    inner = self.value(value, env)
                    made |= inner if key is None else {self.value(key, env): inner}
                return made
            case ast.BoolOp():
                found: Any = None
                for one in node.values:
                    found = self.value(one, env)
                    if bool(found) == isinstance(node.op, ast.Or):
                        break
                return found
            case ast.UnaryOp(op=ast.Not()):
                return not self.value(node.operand, env)
            case (
                ast.BinOp(left=left, op=op, right=right)
                | ast.Compare(left=left, ops=[op], comparators=[right])
            ):
                if type(op) not in _OPERATORS:
                    raise self.refused(node, f"an operator {type(op).__name__}")
                return _OPERATORS[type(op)](self.value(left, env), self.value(right, env))
            case ast.IfExp():
                return self.value(node.body if self.value(node.test, env) else node.orelse, env)
            case ast.Subscript():
                return self.value(node.value, env)[self.value(node.slice, env)]
            case ast.ListComp(generators=[over]) | ast.GeneratorExp(generators=[over]):
                return list(self._each(node.elt, over, env))
            case ast.Attribute():
                return self.value(node.value, env).members[node.attr]
            case ast.Call():
                function = self._called(node.func, env)
                given = [self.value(one, env) for one in node.args]
                named: dict[str, Any] = {}
                for word in node.keywords:
                    value = self.value(word.value, env)
                    named |= {word.arg: value} if word.arg else value
                return function(*given, **named)
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

    def _called(self, node: ast.expr, env: Env) -> Call:
        """What stands for the function that a call names."""
        whole = ast.unparse(node)
        if isinstance(node, ast.Name) and whole in self.functions and whole not in self.known:
            return partial(self.call, whole)
        if found := self.known.get(whole) or _PLAIN.get(whole):
            return found
        if isinstance(node, ast.Attribute):
            owner, name = self.value(node.value, env), node.attr
            if isinstance(owner, Bag) and name == "get":
                return owner.members.get
            if isinstance(owner, Bag) and name in self.functions and name not in owner.members:
                return partial(self.call, name, owner)
            if name in _METHODS.get(cast("type", type(owner)), ()):
                return partial(_method, owner, name)
        raise self.refused(node, f"a call of {whole}")


def _method(owner: Any, name: str, *given: Any, **named: Any) -> Any:
    """What one of `_METHODS` gives."""
    if name == "read":
        return owner
    if name == "format":
        return filled(owner, named)
    found = getattr(owner, name)(*given, **named)
    if name == "items":
        return [list(pair) for pair in found]
    return list(found) if name in ("keys", "values") else found
