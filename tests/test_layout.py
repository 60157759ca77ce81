"""The shape of the project: its size, circles of imports, what importing costs, words that may not
stand in it. Which way imports point is in pyproject.toml (import-linter, `make check`)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

FLOORS = ("assay", "configs", "rewards", "rollouts", "data_gen", "train")
MODULES = sorted(p for top in FLOORS for p in (ROOT / top).rglob("*.py"))
MAX_LINES, MAX_FUNCTION = 600, 80
# Lines with a token of code, and files, that a part of the project may have: they only get fewer.
BUDGETS = {
    "assay rewards rollouts": (26_420, 141),
    "data_gen": (22_100, 90),
    "train configs": (14_660, 76),
    "tests": (33_756, 273),
    "benchmarks experiments": (3_220, 23),
}
# Where a floor's benchmarks stand in one dict, and what else names one outside of its own rooms.
NAMES = {
    *("assay/family.py", "rewards/score.py", "train/view/explain.py", "data_gen/cli.py"),
    *("rollouts/environments.py", "train/evaluation/benchmarks.py", "train/evaluation/rows.py"),
    *("data_gen/audit.py", "data_gen/check.py", "data_gen/demo/refinements.py"),
    "rollouts/scripted_agents.py",
}
ROOMS = {"cdr", "dare", "krama", "queries", "sql", "configs"}
# a benchmark's name as a word of an identifier or of a text: krama_main, KramaAgent, "dare:"
BENCHMARK = re.compile(
    r"(?<![A-Za-z])(?:krama|dare|cdr)(?![a-z])|(?:Krama|Dare|Cdr)(?![a-z])"
    r"|(?<![A-Z])(?:KRAMA|DARE|CDR)(?![A-Z])"
)


@dataclass
class Shape:
    """What the tests below need to know of a file. One walk over its syntax tree finds it."""

    code_lines: int = 0  # with a token of code: comments, docstrings and blank lines are free
    functions: list[tuple[str, int]] = field(default_factory=list[Any])  # name, lines
    imported: list[tuple[str, str]] = field(default_factory=list[Any])  # module, name of it or ""


@cache
def shape_of(path: Path) -> Shape:
    text, shape = path.read_text(encoding="utf-8"), Shape()
    rows = enumerate(map(str.strip, text.split("\n")), 1)
    code, free = {n for n, row in rows if row and not row.startswith("#")}, set[int]()
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else node
        if isinstance(value, ast.Constant | ast.JoinedStr):
            string = isinstance(getattr(value, "value", ""), str)
            lines = range(value.lineno, (value.end_lineno or 0) + 1) if string else ()
            (code if value is node or isinstance(value, ast.JoinedStr) else free).update(lines)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            shape.functions.append((node.name, (node.end_lineno or 0) - node.lineno + 1))
        elif isinstance(node, ast.Import):
            shape.imported += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            shape.imported += [(node.module or "", alias.name) for alias in node.names]
    shape.code_lines = len(code - free)
    return shape


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked(*tops: str) -> list[Path]:
    words = ["git", "ls-files", "-z", *tops]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / name for name in done.stdout.split("\0") if name]


@pytest.mark.parametrize("part", BUDGETS)
def test_a_part_stays_within_its_size(part: str) -> None:
    files = [p for p in tracked(*part.split()) if p.suffix == ".py" and p.is_file()]
    if not files:
        pytest.skip("not a git checkout")
    lines, most = BUDGETS[part]
    found = sum(shape_of(p).code_lines for p in files)
    assert found <= lines and len(files) <= most, f"{part}: {found} lines in {len(files)} files"


def test_files_and_functions_stay_small() -> None:
    wrong: list[str] = []
    for path in MODULES:
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_LINES:
            wrong.append(f"{name_of(path)} has {lines} lines")
        for name, length in shape_of(path).functions:
            if length > MAX_FUNCTION:
                wrong.append(f"{name_of(path)}: {name} has {length} lines")
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too: they hide a circle and do not remove it."""
    known = {name_of(p).removesuffix(".py").removesuffix("/__init__"): p for p in MODULES}
    known = {name.replace("/", "."): path for name, path in known.items()}
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        found: set[str] = set()
        for module, part in shape_of(path).imported:
            whole = f"{module}.{part}"  # `from a import b`: the module a.b, or a name of a
            found.add(whole if whole in known else module)
        graph[name] = (found & set(known)) - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of the circle


def words_of(path: Path) -> Iterator[str]:
    """Names and texts; comments and docstrings are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [x for x in body if not isinstance(getattr(x, "value", 0), ast.Constant)]
    yield from re.findall(r"[\w:./-]+", ast.unparse(tree))


def test_benchmarks_are_named_in_their_own_rooms_only() -> None:
    """Elsewhere a family is what a task says it is; each floor has one dict of them."""
    found: set[str] = set()
    for path in MODULES:
        # train/evaluation/krama.py and krama_tables.py are the benchmark's own as krama/… is
        own = ROOMS & {*path.relative_to(ROOT).parts, *path.stem.split("_")}
        if own or not BENCHMARK.search(path.read_text(encoding="utf-8")):
            continue
        if any(BENCHMARK.search(word) for word in words_of(path)):
            found.add(name_of(path))
    assert found - NAMES == set()


def test_importing_the_lower_floors_loads_nothing_heavy() -> None:
    # forms are files that exports copy: their libraries are others'
    light = {"assay", "rewards", "configs", "data_gen"}
    names = [name_of(p)[:-3].replace("/", ".") for p in MODULES if p.parent.name != "forms"]
    names = [name for name in names if name.split(".")[0] in light]
    names = [name for name in names if not name.endswith(("__init__", "__main__"))]
    code = f"import sys, importlib\nfor n in {names!r}: importlib.import_module(n)\n"
    code += "print([m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules])"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


WRONG = {
    # indexes and hubs are the user's own configuration, never ours
    "a registry's host": r"(?i)(pypi|pythonhosted|pytorch|huggingface|npmjs)\.(org|co|com)\b",
    # public indexes carry a stranger's `assay`: extras are installed from the checkout
    "another project of this name": r"(?i)assay\[[a-z]|pip install [^\n`]*\bassay\b",
    "the formatter told to look away": r"#\s*fmt:\s*(skip|off)",
}


def test_words_that_may_not_stand_here() -> None:
    tops = [*FLOORS, "slurm", "benchmarks", "examples", ".ci", "README.md", "Makefile"]
    own = [p for p in tracked(*tops) if p.suffix in (".py", ".sh", ".sbatch", ".md", "")]
    found = [
        f"{name_of(path)}: {what}"
        for path in own
        if path.is_file()
        for what, pattern in WRONG.items()
        if re.search(pattern, path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_messages_name_extras_that_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(tomllib.loads(text)["project"]["optional-dependencies"])
    asked = re.compile(r"install_extra\(['\"](\w+)|\bextra=['\"](\w+)")
    found = {a or b for p in MODULES for a, b in asked.findall(p.read_text(encoding="utf-8"))}
    assert {"parquet", "sandbox", "client", "dj", "ray"} <= found <= extras


def test_tests_lie_where_the_code_lies() -> None:
    """Tests of `a/b/c.py` stand in `tests/a/b/`; what several of them use, in `tests/support/`."""
    for path in (ROOT / "tests").rglob("*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        assert path.name != "__init__.py"
        if path.name.startswith("test_"):
            assert (ROOT / folder).is_dir(), f"{name_of(path)}: no folder {folder}"
        else:
            assert path.name == "conftest.py" or folder.name == "support", name_of(path)
