"""The twin that docs/extend.md gives the example family is one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from places import ROOT

from assay import family as families
from assay.family import Audit, Task, load_family
from rewards.audit.variants import twinned

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extend.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("seed", [0, 63, 113])
def test_the_twin_of_the_example(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [b for b in BLOCKS if "def twin" in b]
    names: dict[str, Any] = {"json": json, "Task": Task, "replace": replace}
    exec("from __future__ import annotations\n" + block, names)
    example = load_family(str(ROOT / "examples/own_family.py"))
    family = replace(example, audit=Audit(twin=names["twin"]))
    monkeypatch.setattr(families, "_added", {family.name: family})
    assert family.build is not None
    tasks = [*family.build(1, count=30)["train"]]
    found = twinned(family, tasks, seed)
    assert found.twins == min(20, len(tasks)) and not found.broken
    assert found.recalled[0].mean(0) == 0.0
