"""Calls of pandas that can be made and printed: what is printed is what is called."""

# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

# suffix of a packed file → the module whose `open` unpacks it
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma", ".zst": "zstandard"}
Spans = tuple[tuple[int, int], ...]


class Node:
    """An expression of Python, with its value and its spelling."""

    def value(self, names: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def code(self) -> str:
        raise NotImplementedError

    def parts(self) -> Iterator[Any]:
        """What the expression is made of."""
        yield from vars(self).values()

    def call(self, method: str, *args: Any, **options: Any) -> Call:
        return Call(self, method, args, options)


@dataclass(frozen=True)
class Name(Node):
    name: str

    def value(self, names: Mapping[str, Any]) -> Any:
        return names[self.name]

    def code(self) -> str:
        return self.name


@dataclass(frozen=True)
class Attribute(Node):
    of: Node
    name: str

    def value(self, names: Mapping[str, Any]) -> Any:
        return getattr(self.of.value(names), self.name)

    def code(self) -> str:
        return f"{self.of.code()}.{self.name}"


@dataclass(frozen=True)
class Item(Node):
    of: Node
    key: Any

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.of.value(names)[made(self.key, names)]

    def code(self) -> str:
        return f"{self.of.code()}[{spelled(self.key)}]"


@dataclass(frozen=True)
class Call(Node):
    of: Node
    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def value(self, names: Mapping[str, Any]) -> Any:
        args = [made(one, names) for one in self.args]
        options = {k: made(v, names) for k, v in self.options.items()}
        return getattr(self.of.value(names), self.method)(*args, **options)

    def code(self) -> str:
        listed = [spelled(one) for one in self.args]
        listed += [f"{k}={spelled(v)}" for k, v in self.options.items()]
        return f"{self.of.code()}.{self.method}({', '.join(listed)})"


@dataclass(frozen=True)
class Equal(Node):
    left: Node
    right: Any

    def value(self, names: Mapping[str, Any]) -> Any:
        return self.left.value(names) == made(self.right, names)

    def code(self) -> str:
        return f"{self.left.code()} == {spelled(self.right)}"


@dataclass(frozen=True)
class Not(Node):
    of: Node

    def value(self, names: Mapping[str, Any]) -> Any:
        return ~self.of.value(names)

    def code(self) -> str:
        return f"~{self.of.code()}"


@dataclass(frozen=True)
class Opened(Node):
    """A file of text, unpacked by its suffix; of an archive, one member."""

    place: str
    encoding: str
    member: str = ""

    @property
    def module(self) -> str:
        return next((m for s, m in PACKED.items() if self.place.lower().endswith(s)), "")

    def value(self, names: Mapping[str, Any]) -> Any:
        if self.member:
            packed = member_of(self.place, self.member).value(names)
            return names["io"].TextIOWrapper(packed, encoding=self.encoding, newline="")
        opener = names[self.module].open if self.module else open
        return opener(self.place, "rt", encoding=self.encoding, newline="")

    def code(self) -> str:
        if self.member:
            packed = member_of(self.place, self.member).code()
            return f"io.TextIOWrapper({packed}, encoding={self.encoding!r}, newline='')"
        opener = f"{self.module}.open" if self.module else "open"
        return f"{opener}({self.place!r}, 'rt', encoding={self.encoding!r}, newline='')"

    def parts(self) -> Iterator[Any]:
        yield from (Name("zipfile"), Name("io")) if self.member else (Name(self.module),)


def member_of(place: str, member: str) -> Call:
    """What opens a member of a zip archive, as bytes."""
    return Call(Call(Name("zipfile"), "ZipFile", (place,)), "open", (member,))


@dataclass(frozen=True)
class Lines(Node):
    """The text of a file without some of its lines, as a file."""

    file: Opened
    dropped: Spans

    def value(self, names: Mapping[str, Any]) -> Any:
        with self.file.value(names) as file:
            return names["io"].StringIO("".join(kept_lines(file, self.dropped)))

    def code(self) -> str:
        kept = f"not any(a <= n <= b for a, b in {list(self.dropped)!r})"
        return (
            f"io.StringIO(''.join(line for n, line in enumerate({self.file.code()}, 1) if {kept}))"
        )

    def parts(self) -> Iterator[Any]:
        yield from (self.file, Name("io"))


@dataclass(frozen=True)
class Fields(Node):
    """The values of one field of a JSON file, none of them changed."""

    file: Opened
    key: str
    lines: bool

    def value(self, names: Mapping[str, Any]) -> Any:
        with self.file.value(names) as file:
            rows = [json.loads(x) for x in file if x.strip()] if self.lines else json.load(file)
        return [row.get(self.key) for row in rows]

    def code(self) -> str:
        opened = self.file.code()
        rows = f"(json.loads(x) for x in {opened} if x.strip())"
        return f"[r.get({self.key!r}) for r in {rows if self.lines else f'json.load({opened})'}]"

    def parts(self) -> Iterator[Any]:
        yield from (self.file, Name("json"))


@dataclass(frozen=True)
class Statement:
    """`TARGET = expression`: of the frame, or of one of its columns."""

    target: Name | Item
    of: Node

    def run(self, names: dict[str, Any]) -> None:
        found = self.of.value(names)
        if isinstance(self.target, Item):
            self.target.of.value(names)[self.target.key] = found
        else:
            names[self.target.name] = found

    def code(self) -> str:
        return f"{self.target.code()} = {self.of.code()}"


MODULES = ("duckdb", "io", "json", "sqlite3", "zipfile", *PACKED.values())


def namespace() -> dict[str, Any]:
    """The modules that expressions name. Those that a file may lack are looked up when used."""
    return _Modules(pd=importlib.import_module("pandas"), str=str, object=object)


class _Modules(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        if name not in MODULES:
            raise KeyError(name)
        return importlib.import_module(name)


def modules_of(*nodes: Node) -> list[str]:
    """The modules, pandas apart, that expressions name."""
    return sorted({name for node in nodes for name in _names(node)} & set(MODULES))


def _names(part: Any) -> Iterator[str]:
    if isinstance(part, Name):
        yield part.name
    elif isinstance(part, Node):
        for one in part.parts():
            yield from _names(one)
    elif isinstance(part, Mapping):
        yield from (n for v in cast("Mapping[Any, Any]", part).values() for n in _names(v))
    elif isinstance(part, list | tuple):
        yield from (n for v in cast("list[Any]", part) for n in _names(v))


def made(value: Any, names: Mapping[str, Any]) -> Any:
    """A literal with the values of the expressions inside it."""
    if isinstance(value, Node):
        return value.value(names)
    if isinstance(value, dict):
        return {k: made(v, names) for k, v in cast("dict[Any, Any]", value).items()}
    return value


def spelled(value: Any) -> str:
    """A literal as Python spells it."""
    if isinstance(value, Node):
        return value.code()
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return f"{{{', '.join(f'{k!r}: {spelled(v)}' for k, v in pairs)}}}"
    return repr(value)


def kept_lines(lines: Any, dropped: Spans) -> Iterator[str]:
    """Lines but those with these numbers, the first of which is 1."""
    for number, line in enumerate(lines, 1):
        if not any(first <= number <= last for first, last in dropped):
            yield line
