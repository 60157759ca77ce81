"""What a scorer takes along."""

from __future__ import annotations

from pathlib import Path

import pytest
from travelling import OWN

from assay.family import BUILT_IN, load_family
from assay.task import TaskError
from data_gen.exports.carried import carry

FAMILY = """
from assay.family import Answer, Family, Score, Task
{imports}

def score(task: Task, answer: Answer) -> Score:
    return Score.of(answer.text == "x")

FAMILY = Family("own_{name}", score, gold=lambda task: "x")
"""


def family(folder: Path, name: str, imports: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(FAMILY.format(imports=imports, name=name))
    return str(path)


def test_a_family_of_plain_python_needs_no_package() -> None:
    load = carry(load_family(OWN))
    assert load.packages == () and load.family == "own_family:FAMILY"
    assert load.modules["own_family"][0] == Path(OWN).read_bytes()
    assert {"assay.scorer_timeout", "assay.family", "assay.task"} <= set(load.modules)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_scorers_take_no_builder_and_no_engine_along(name: str) -> None:
    load = carry(BUILT_IN[name])
    assert not [m for m in load.modules if m.partition(".")[0] not in ("rewards", "assay")]
    assert not [m for m in load.modules if m.startswith("rewards.gold") or m.endswith(".twin")]
    assert all("==" in package for package in load.packages)


def test_an_installed_package_is_pinned(tmp_path: Path) -> None:
    import numpy

    load = carry(load_family(family(tmp_path, "pinned", "import numpy as np")))
    assert load.packages == (f"numpy=={numpy.__version__}",)


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        ("import torch", "too big to travel"),
        ("if False:\n    import no_such_module_here", "neither Assay's nor an installed package"),
        ("if False:\n    from . import beside", "a relative import cannot travel"),
    ],
)
def test_what_cannot_be_taken_along_is_named(tmp_path: Path, imports: str, said: str) -> None:
    guarded = imports if imports.startswith("if") else f"if False:\n    {imports}"
    found = load_family(family(tmp_path, f"f{abs(len(said))}", guarded))
    with pytest.raises(TaskError, match=said):
        carry(found)
