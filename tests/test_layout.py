"""The shape of the project: its size, circles of imports, words that may not stand in it. Which way
imports point is in pyproject.toml (import-linter, `make check`)."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

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
    "tests": (22_000, 233),
    "benchmarks experiments": (2_980, 23),
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


@cache
def shape_of(path: Path) -> tuple[int, list[str], list[tuple[str, str]]]:
    """The lines with a token of code (comments, docstrings and blank lines are free), the functions
    that are too long, and what is imported: modules, and names of them."""
    text = path.read_text(encoding="utf-8")
    rows = enumerate(map(str.strip, text.split("\n")), 1)
    code, free = {n for n, row in rows if row and not row.startswith("#")}, set[int]()
    long, imported = list[str](), list[tuple[str, str]]()
    for node in ast.walk(ast.parse(text)):
        said = isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", 0), str)
        if said or isinstance(node, ast.Constant | ast.JoinedStr):  # of many lines
            (free if said else code).update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION:
                long.append(f"{name_of(path)}: {node.name}")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            imported += [(module or one.name, one.name if module else "") for one in node.names]
    return len(code - free), long, imported


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked(*tops: str) -> list[Path]:
    words = ["git", "ls-files", "-z", *tops]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return [p for name in done.stdout.split("\0") if (p := ROOT / name).is_file()]


@pytest.mark.parametrize("part", BUDGETS)
def test_a_part_stays_within_its_size(part: str) -> None:
    files = [p for p in tracked(*part.split()) if p.suffix == ".py"]
    if not files:
        pytest.skip("not a git checkout")
    lines, most = BUDGETS[part]
    found = sum(shape_of(p)[0] for p in files)
    assert found <= lines and len(files) <= most, f"{part}: {found} lines in {len(files)} files"


def test_files_and_functions_stay_small() -> None:
    long = [p for p in MODULES if p.read_text(encoding="utf-8").count("\n") > MAX_LINES]
    assert list(map(name_of, long)) + [name for p in MODULES for name in shape_of(p)[1]] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too: they hide a circle and do not remove it."""
    names = (name_of(p).removesuffix(".py").removesuffix("/__init__") for p in MODULES)
    known = dict(zip((name.replace("/", ".") for name in names), MODULES, strict=True))
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        pairs = ((module, f"{module}.{part}") for module, part in shape_of(path)[2])
        # `from a import b`: the module a.b, or a name of a
        graph[name] = {w if w in known else m for m, w in pairs} & {*known} - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of the circle


def words_of(path: Path) -> str:
    """Names and texts; comments and docstrings are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [x for x in body if not isinstance(getattr(x, "value", 0), ast.Constant)]
    return ast.unparse(tree)


def test_benchmarks_are_named_in_their_own_rooms_only() -> None:
    """Elsewhere a family is what a task says it is; each floor has one dict of them."""
    # train/evaluation/krama.py and krama_tables.py are the benchmark's own as krama/… is
    others = [p for p in MODULES if not ROOMS & {*name_of(p).split("/"), *p.stem.split("_")}]
    named = [p for p in others if BENCHMARK.search(p.read_text(encoding="utf-8"))]
    assert {name_of(p) for p in named if BENCHMARK.search(words_of(p))} - NAMES == set()


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
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in own}
    found = [
        (n, what) for n, text in texts.items() for what, p in WRONG.items() if re.search(p, text)
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
    tests = ROOT / "tests"
    paths = [path.relative_to(tests) for path in tests.rglob("*.py")]
    wrong = [p for p in paths if p.name.startswith("test_") and not (ROOT / p.parent).is_dir()]
    helpers = [p for p in paths if not p.name.startswith(("test_", "conftest."))]
    assert wrong + [p for p in helpers if p.parent.name != "support"] == []
