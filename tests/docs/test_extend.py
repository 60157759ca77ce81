"""The Python of docs/extend.md: its examples run one after the other, and the twin that it gives
the example family is one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from assay import family as families
from assay.family import Audit, Task, load_family
from rewards.audit import find_twins
from rewards.audit_laws import Audited

FAMILY, PYTHON = (ROOT / "docs/extend.md").read_text("utf-8").split("\n## From Python\n")


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_examples_run(tiny_folder: Path) -> None:
    pytest.importorskip("torch")
    assert len(blocks(PYTHON)) == 3
    names: dict[str, object] = {"MODEL": str(tiny_folder)}
    for number, block in enumerate(blocks(PYTHON), 1):
        exec(compile(block, f"docs/extend.md, From Python, block {number}", "exec"), names)


@pytest.mark.parametrize("seed", [0, 63, 113])
def test_the_twin_of_the_example(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [b for b in blocks(FAMILY) if "def twin" in b]
    names: dict[str, Any] = {"json": json, "Task": Task, "replace": replace}
    exec("from __future__ import annotations\n" + block, names)
    example = load_family(str(ROOT / "examples/own_family.py"))
    family = replace(example, audit=Audit(twin=names["twin"]))
    monkeypatch.setattr(families, "_added", {family.name: family})
    assert family.build is not None
    tasks = [*family.build(1, count=30)["train"]]
    found = Audited(family, seed)
    find_twins(found, tasks)
    assert found.twins == min(20, len(tasks)) and not found.broken
    assert found.recalled[0].mean(0) == 0.0
