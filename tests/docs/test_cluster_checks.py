"""docs/cluster_checks.md names tests and doctor lines that there are."""

from __future__ import annotations

import ast
import re

from places import ROOT

PAGE = (ROOT / "docs" / "cluster_checks.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "::" in line + "::"]
HAZARDS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in ROWS
    if not line.startswith(("| hazard", "|---"))
]


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def topics() -> set[str]:
    """First arguments of every `Finding` and `check` of the doctor."""
    tree = ast.parse((ROOT / "train" / "doctor.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    firsts = [
        node.args[0] for node in calls if getattr(node.func, "id", "") in ("Finding", "check")
    ]
    return {str(first.value) for first in firsts if isinstance(first, ast.Constant)}


def test_every_hazard_is_a_sentence_with_what_holds_it() -> None:
    assert len(HAZARDS) > 30
    for hazard, held, gpu in HAZARDS:
        assert hazard.endswith(".") and gpu in ("yes", "no"), hazard
        assert "::" in held or "doctor" in held, hazard


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/\S+?)::(\w+)`", PAGE)
    assert len(named) == PAGE.count("`tests/") - PAGE.count("`tests/slurm`") and named
    lost = [f"{path}::{name}" for path, name in named if name not in functions(path)]
    assert not lost


def test_every_doctor_line_that_is_named_exists() -> None:
    known, named = topics(), set[str]()
    for _, held, _ in HAZARDS:
        for words in re.findall(r"doctor ((?:`[a-z-]+`(?:, )?)+)", held):
            named |= set(re.findall(r"`([a-z-]+)`", words))
    assert named >= {"glibc", "driver", "nvcc", "cores"} and named <= known, named - known
