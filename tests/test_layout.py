"""The shape of the project: which way imports point, what importing costs, how big files are."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

OURS = ("assay", "configs", "rewards", "rollouts", "data_gen", "train")
MAY_IMPORT = {
    "assay": set[str](),
    "configs": {"assay"},
    "rewards": {"assay"},
    "rollouts": {"assay", "rewards", "configs"},
    "data_gen": {"assay", "rollouts", "rewards", "configs"},
    "train": {"assay", "rollouts", "rewards", "configs"},
}
# train and data_gen meet in files; the demo is the one place that composes both
# and the `assay` command calls into every floor
EXCEPTIONS = {
    ("train/demo.py", "data_gen"),
    ("assay/__init__.py", "rewards"),
    ("assay/__init__.py", "configs"),
    ("assay/__init__.py", "rollouts"),
    ("assay/__init__.py", "data_gen"),
}
HEAVY = ("torch", "transformers", "safetensors")
CLUSTER = ("verl", "ray")
MAX_LINES = 600
MAX_FUNCTION = 80
# Circles of imports that are still there: date, and every module of the circle. An entry that is
# no longer needed fails the test: remove it.
CIRCLES_LEFT: dict[str, set[str]] = {}
# Where a floor's benchmarks stand in one dict.
ONE_DICT = {
    "assay/family.py",
    "rewards/score.py",
    "train/view/gold.py",
    "data_gen/cli.py",
    "rollouts/environments.py",
    "train/evaluation/benchmarks.py",
    "train/evaluation/rows.py",
}
# Other files that still name a benchmark: date when noted. As above, remove what is done.
NAMES_LEFT = {
    "data_gen/audit.py": "2026-11-22",
    "data_gen/check.py": "2026-11-22",
    "data_gen/demo/refinements.py": "2026-11-22",
    "rollouts/scripted_agents.py": "2026-11-22",
}
ROOMS = {"cdr", "dare", "krama", "queries", "sql"}
# a benchmark's name as a word of an identifier or of a text: krama_main, KramaAgent, "dare:"
BENCHMARK = re.compile(
    r"(?<![A-Za-z])(?:krama|dare|cdr)(?![a-z])|(?:Krama|Dare|Cdr)(?![a-z])"
    r"|(?<![A-Z])(?:KRAMA|DARE|CDR)(?![A-Z])"
)


@cache
def modules() -> list[Path]:
    return sorted(p for top in OURS for p in (ROOT / top).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted() -> dict[str, Path]:
    """Every module by the name it is imported by."""
    found = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in modules()}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def statements(tree: ast.AST, on_import: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements; `on_import`: those that run when the module itself is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif on_import and (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        ):
            continue
        else:
            yield from statements(node, on_import)


def edges(on_import: bool = False) -> dict[str, set[str]]:
    """Module → our modules that it imports."""
    known = dotted()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        targets: set[str] = set()
        for node in statements(tree_of(path), on_import):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
                continue
            for alias in node.names:  # `from a import b`: the module a.b, or a name of a
                whole = f"{node.module}.{alias.name}"
                targets.add(whole if whole in known else node.module or "")
        found[name] = (targets & set(known)) - {name}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules that import each other, over however many steps."""

    def after(name: str) -> set[str]:
        seen: set[str] = set()
        waiting = sorted(graph[name])
        while waiting:
            other = waiting.pop()
            if other not in seen:
                seen.add(other)
                waiting += sorted(graph[other])
        return seen

    later = {name: after(name) for name in graph}
    found = [{b for b in later[a] if a in later[b]} for a in sorted(graph) if a in later[a]]
    return [c for i, c in enumerate(found) if c not in found[:i]]


def test_imports_point_one_way() -> None:
    wrong: list[str] = []
    for path in modules():
        here = name_of(path)
        top = here.split("/")[0]
        for module in imported(tree_of(path)):
            target = module.split(".")[0]
            ours = target in OURS and target != top and (here, target) not in EXCEPTIONS
            upwards = ours and target not in MAY_IMPORT[top]
            heavy = target in HEAVY and not (
                top == "train"
                or here.startswith("rollouts/engines/torch")
                or (target == "transformers" and here.startswith("rollouts/"))  # a tokenizer
            )
            cluster = target in CLUSTER and not here.startswith("train/backends/verl/")
            if upwards or heavy or cluster:
                wrong.append(f"{here} imports {module}")
    assert wrong == []


def test_circles_are_found_over_several_steps() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"f"}, "f": {"e"}}
    assert circles(graph) == [{"a", "b", "c"}, {"e", "f"}]


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions count too: they hide a circle and do not remove it."""
    found = circles(edges(on_import=False))
    left = list(CIRCLES_LEFT.values())
    assert [sorted(c) for c in found if not any(c <= known for known in left)] == []
    done = [n for n, known in CIRCLES_LEFT.items() if not any(c <= known for c in found)]
    assert done == [], "these circles are gone: remove them from CIRCLES_LEFT"


def words_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, token) of names and texts; comments and docstrings are left out."""
    text = path.read_text(encoding="utf-8")
    said = {
        line
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    # before 3.12 an f-string is one STRING, later its words are FSTRING_MIDDLE
    kinds = {tokenize.NAME, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.NAME)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds and token.start[0] not in said:
            yield token.start[0], token.string


def test_benchmarks_are_named_in_their_own_rooms_only() -> None:
    """Elsewhere a family is what a task says it is; each floor has one dict of them."""
    found: dict[str, list[str]] = {}
    for path in modules():
        here = name_of(path)
        # train/evaluation/krama.py and krama_tables.py are the benchmark's own as krama/… is
        words = {*path.relative_to(ROOT).parts, *path.stem.split("_")}
        if here in ONE_DICT or here.startswith("configs/") or ROOMS & words:
            continue
        for line, word in words_of(path):
            if BENCHMARK.search(word):
                found.setdefault(here, []).append(f"{here}:{line}: {word[:60]}")
    assert [hit for here in sorted(set(found) - set(NAMES_LEFT)) for hit in found[here]] == []
    done = sorted(set(NAMES_LEFT) - set(found))
    assert done == [], "these name no benchmark any more: remove them from NAMES_LEFT"


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("krama_main", True),
        ("KramaAgent", True),
        ("needs_cdr", True),
        ('"dare:DIR"', True),
        ("CDR_ROOT", True),
        ("kramas", False),
        ("daredevil", False),
        ("xcdr", False),
    ],
)
def test_a_benchmark_is_seen_inside_a_name(word: str, named: bool) -> None:
    assert bool(BENCHMARK.search(word)) == named


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_and_functions_stay_small() -> None:
    wrong: list[str] = []
    for path in modules():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_LINES:
            wrong.append(f"{name_of(path)} has {lines} lines")
        for node in functions(path):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > MAX_FUNCTION:
                wrong.append(f"{name_of(path)}: {node.name} has {length} lines")
    assert wrong == []


def test_signatures_are_typed() -> None:
    wrong: list[str] = []
    for path in modules():
        for node in functions(path):
            bare = {a.arg for a in node.args.args if a.annotation is None} - {"self", "cls", "ctx"}
            if bare or node.returns is None:
                wrong.append(f"{name_of(path)}: {node.name} {sorted(bare)}")
    assert wrong == []


def test_the_formatter_is_nowhere_told_to_look_away() -> None:
    skip = re.compile(r"#\s*fmt:\s*(skip|off)")
    own = modules()[:]
    own += [p for top in ("tests", "benchmarks", "examples") for p in (ROOT / top).rglob("*.py")]
    found = [name_of(p) for p in own if skip.search(p.read_text(encoding="utf-8"))]
    assert found == []


def test_no_module_has_the_name_of_a_standard_one() -> None:
    names = {p.stem for p in modules()} | {p.parent.name for p in modules()}
    # inside a package the name is harmless only while nobody runs the file by its path
    assert (names & set(sys.stdlib_module_names)) - {"__init__"} == set()


@pytest.mark.parametrize("package", ["assay", "rewards", "configs", "data_gen"])
def test_importing_everything_in_a_package_loads_no_torch(package: str) -> None:
    names = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in modules()
        if p.relative_to(ROOT).parts[0] == package
        and p.stem != "__init__"
        and p.parent.name != "forms"  # files that exports copy: their libraries are others'
    ]
    code = f"import sys, importlib\nfor n in {names!r}: importlib.import_module(n)\n"
    code += "print([m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_importing_the_families_loads_nothing_heavy() -> None:
    code = "import sys, assay.family\n"
    code += "print([m for m in ('torch', 'pandas', 'sklearn') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_importing_the_scorers_costs_little() -> None:
    code = (
        "import time; start = time.process_time()\n"
        "import rewards, assay.task, rewards.cdr.score\n"
        "print(time.process_time() - start)"
    )
    best = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(3)
    )
    assert best < 0.3


def test_the_front_door_names_no_command_twice_and_help_is_cheap() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "assay", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: assay COMMAND" in done.stdout
    assert not re.search(r"\b(torch|numpy|yaml)\b", done.stderr)
    sys.path.insert(0, str(ROOT))
    import assay

    for module, _ in assay.COMMANDS.values():
        assert module.split(".")[0] in OURS


def test_tests_are_no_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_file_names_a_registry_host() -> None:
    """Indexes and hubs are the user's own configuration, never ours."""
    hosts = re.compile(r"(pypi|pythonhosted|pytorch|huggingface|npmjs)\.(org|co|com)\b", re.I)
    own = [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", ".ci/run")]
    own += [p for top in OURS for p in (ROOT / top).rglob("*") if p.suffix in (".py", ".yaml")]
    found = [name_of(p) for p in own if hosts.search(p.read_text(encoding="utf-8"))]
    assert found == []


def test_nobody_is_told_to_install_another_project_of_this_name() -> None:
    """Public indexes carry a stranger's `assay`: extras are installed from the checkout."""
    wrong = re.compile(r"assay\[[a-z]|pip install [^\n`]*\bassay\b", re.I)
    own = [p for top in OURS for p in (ROOT / top).rglob("*.py")]
    own += [*(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.py")]
    own += [path for path in (ROOT / "slurm").rglob("*") if path.is_file()]
    own += [ROOT / "README.md", ROOT / "Makefile"]
    assert [name_of(p) for p in own if wrong.search(p.read_text(encoding="utf-8"))] == []


def test_messages_name_extras_that_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(tomllib.loads(text)["project"]["optional-dependencies"])
    asked = re.compile(r"install_extra\(['\"](\w+)|\bextra=['\"](\w+)")
    found = {a or b for p in modules() for a, b in asked.findall(p.read_text(encoding="utf-8"))}
    assert {"parquet", "sandbox", "client", "dj", "ray"} <= found <= extras


def test_tests_lie_where_the_code_lies() -> None:
    """Tests of `a/b/c.py` stand in `tests/a/b/`; what several of them use, in `tests/support/`."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        assert (ROOT / folder).is_dir(), f"{name_of(path)}: the project has no folder {folder}"
    helpers = [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    strays = [p for p in helpers if p.name != "conftest.py" and p.parent.name != "support"]
    assert [name_of(p) for p in strays] == []
