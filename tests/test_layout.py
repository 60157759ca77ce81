"""The shape of the project: which way imports point, what importing costs, how big files are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

OURS = ("configs", "rewards", "rollouts", "data_gen", "train")
MAY_IMPORT = {
    "configs": set[str](),
    "rewards": set[str](),
    "rollouts": {"rewards", "configs"},
    "data_gen": {"rollouts", "rewards", "configs"},
    "train": {"rollouts", "rewards", "configs"},
}
# train and data_gen meet in files; the demo is the one place that composes both
EXCEPTIONS = {("train/demo.py", "data_gen")}
HEAVY = ("torch", "transformers", "safetensors")
CLUSTER = ("verl", "ray")
MAX_LINES = 500
MAX_FUNCTION = 60


def modules() -> list[Path]:
    return sorted(p for top in OURS for p in (ROOT / top).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    here = name_of(path)
    top = here.split("/")[0]
    for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
        target = module.split(".")[0]
        if target in OURS and target != top and (here, target) not in EXCEPTIONS:
            assert target in MAY_IMPORT[top], f"{here} imports {module}; {top} may not"
        if target in HEAVY:
            allowed = top == "train" or here.startswith("rollouts/engines/torch")
            tokenizer = target == "transformers" and here.startswith("rollouts/")
            assert allowed or tokenizer, f"{here} imports {module}"
        if target in CLUSTER:
            assert here.startswith("train/backends/verl/"), f"{here} imports {module}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES, f"{name_of(path)} has {text.count(chr(10))} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{name_of(path)}: {node.name} has {length} lines"
            untyped = [a.arg for a in node.args.args if a.annotation is None]
            assert set(untyped) <= {"self", "cls", "ctx"}, f"{name_of(path)}: {node.name} {untyped}"
            assert node.returns is not None, f"{name_of(path)}: {node.name} has no return type"


def test_no_module_has_the_name_of_a_standard_one() -> None:
    names = {p.stem for p in modules()} | {p.parent.name for p in modules()}
    # inside a package the name is harmless only while nobody runs the file by its path
    assert (names & set(sys.stdlib_module_names)) - {"__init__"} == set()


@pytest.mark.parametrize("package", ["rewards", "configs", "data_gen"])
def test_importing_everything_in_a_package_loads_no_torch(package: str) -> None:
    names = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in modules()
        if p.relative_to(ROOT).parts[0] == package and p.stem != "__init__"
    ]
    code = f"import sys, importlib\nfor n in {names!r}: importlib.import_module(n)\n"
    code += "print([m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_importing_the_scorers_costs_little() -> None:
    code = (
        "import time; start = time.process_time()\n"
        "import rewards, rewards.task, rewards.cdr.refinement\n"
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
    own += [*(ROOT / "slurm").iterdir(), ROOT / "README.md", ROOT / "Makefile", ROOT / "assay.py"]
    assert [name_of(p) for p in own if wrong.search(p.read_text(encoding="utf-8"))] == []


def test_messages_name_extras_that_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(tomllib.loads(text)["project"]["optional-dependencies"])
    asked = re.compile(r"install_extra\(['\"](\w+)|\bextra=['\"](\w+)")
    found = {a or b for p in modules() for a, b in asked.findall(p.read_text(encoding="utf-8"))}
    assert {"parquet", "sandbox", "datajuicer", "ray"} <= found <= extras


def test_tests_lie_where_the_code_lies() -> None:
    """Tests of `a/b/c.py` stand in `tests/a/b/`; what several of them use, in `tests/support/`."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        assert (ROOT / folder).is_dir(), f"{name_of(path)}: the project has no folder {folder}"
    helpers = [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    strays = [p for p in helpers if p.name != "conftest.py" and p.parent.name != "support"]
    assert [name_of(p) for p in strays] == []
