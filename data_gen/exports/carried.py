"""What a scorer needs where there is no Assay: its modules, and packages at their versions."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import assay
from assay.family import Family
from assay.syntax import parse_python
from assay.task import TaskError

OURS = ("assay", "rewards", "configs", "rollouts")
_HOME = ("data_gen", "train")  # what builds and trains; a scorer does without
_HEAVY = ("torch", "transformers", "vllm", "jax")
LEFT_OUT = "STAYS_HOME"  # names modules that a scoring module's default settings do without
OWN = "own_family"  # the module that a family's file becomes


@dataclass(frozen=True)
class Carried:
    """A scorer, ready to travel. `modules`: source by module name, with whether it is a package;
    `packages`: pip requirements at the versions here; entries are `module:name`."""

    modules: dict[str, tuple[bytes, bool]]
    packages: tuple[str, ...]
    family: str = ""
    score: str = ""
    trusted: str = ""
    weights: str = ""

    def place(self, name: str) -> str:
        """Where a module lies below the scorer's folder."""
        path = name.replace(".", "/")
        return f"vendor/{path}/__init__.py" if self.modules[name][1] else f"vendor/{path}.py"


def carry(family: Family) -> Carried:
    """What the family's scorer needs. Raises `TaskError` for what cannot be taken along."""
    if family.origin.partition(":")[0].endswith(".py"):
        return _of_file(family)
    quicker = family.audited.trusted
    entries = [family.score, family.weights, *([quicker] if quicker else [])]
    names = [_name_of(entry, family) for entry in entries]
    modules = [name.partition(":")[0] for name in names]
    # modules that the scoring module says its default settings do not ask for
    left_out = {n for one in modules for n in getattr(importlib.import_module(one), LEFT_OUT, ())}
    wanted = [(one, f"family {family.name}") for one in modules]
    trusted = names[2] if quicker else ""
    return Carried(*_load(family, wanted, left_out), "", names[0], trusted, names[1])


def _name_of(entry: Any, family: Family) -> str:
    name = str(getattr(entry, "__qualname__", "<"))
    if "<" in name or "." in name:
        raise TaskError(
            f"family {family.name}: {entry!r} has no name in a module, so it cannot be exported; "
            "make it a plain function of the module"
        )
    return f"{entry.__module__}:{name}"


def _of_file(family: Family) -> Carried:
    """A family of one's own: its file, whole, beside what that imports."""
    path, _, name = family.origin.rpartition(":")
    source = Path(path).read_bytes()
    wanted = [("assay.family", path), *((one, path) for one in _imports(source, path, whole=True))]
    modules, packages = _load(family, wanted)
    return Carried({**modules, OWN: (source, False)}, packages, f"{OWN}:{name}")


def _load(
    family: Family, wanted: Sequence[tuple[str, str]], left_out: Collection[str] = ()
) -> tuple[dict[str, tuple[bytes, bool]], tuple[str, ...]]:
    """(our modules, packages) of some modules, each with what says that it is wanted, and of all
    that they import. Raises `TaskError` for what cannot be taken along."""
    modules: dict[str, tuple[bytes, bool]] = {}
    packages: set[str] = set()
    waiting = [*reversed(wanted)]
    while waiting:
        name, where = waiting.pop()
        top = name.partition(".")[0]
        if name in left_out or top in sys.stdlib_module_names or top in _HOME:
            continue
        if top not in OURS:
            packages.add(_package(top, f"family {family.name}: {where}"))
        elif name not in modules and (path := _spec(name)) is not None:
            source = Path(path).read_bytes()
            modules[name] = source, Path(path).name == "__init__.py"
            waiting += [(name.rpartition(".")[0], path)] if "." in name else []
            waiting += [(one, path) for one in _imports(source, path, name not in _base())]
    return modules, tuple(sorted(packages))


def _package(top: str, where: str) -> str:
    """The pip requirement of the package that a module belongs to."""
    if top in _HEAVY:
        raise TaskError(f"{where} imports {top}, too big to travel")
    found = importlib.metadata.packages_distributions().get(top)
    if not found:
        raise TaskError(
            f"{where} imports {top}, which is neither Assay's nor an installed package; put what "
            "it needs into the family's own file"
        )
    return f"{found[0]}=={importlib.metadata.version(found[0])}"


@lru_cache(maxsize=1)
def _base() -> frozenset[str]:
    """What `assay.family` imports: what those modules import inside of functions is for building
    and auditing, not for scoring."""
    found: set[str] = set()
    waiting = ["assay", "assay.family"]
    while waiting:
        name = waiting.pop()
        path = _spec(name)
        if name in found or path is None:
            continue
        found.add(name)
        inner = _imports(Path(path).read_bytes(), path, whole=False)
        waiting += [n for n in inner if n.partition(".")[0] in OURS]
    return frozenset(found)


def _spec(name: str) -> str | None:
    """The file of one of our modules; None for a name inside of a module."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None and spec.origin else None


def _imports(source: bytes, path: str, whole: bool) -> Iterator[str]:
    """Modules that a source imports, and names that may be modules; `whole`: also those that are
    imported inside of functions."""
    for node in _statements(parse_python(source, path), whole):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level:
            raise TaskError(f"{path} line {node.lineno}: a relative import cannot travel")
        elif node.module and node.module != "__future__":
            yield node.module
            if node.module == "assay":  # whose names are loaded from where they are
                names = (alias.name for alias in node.names if alias.name in assay.PUBLIC)
                yield from (assay.PUBLIC[name].partition(":")[0] for name in names)
            if node.module.partition(".")[0] in OURS:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST, whole: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif whole or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node, whole)
