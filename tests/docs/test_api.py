"""The Python examples of docs/api.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("torch")

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text("utf-8"), re.DOTALL)


def test_the_examples_run(tiny_folder: Path, tmp_path: Path) -> None:
    assert BLOCKS
    names: dict[str, object] = {"MODEL": str(tiny_folder), "OUT": str(tmp_path / "run")}
    for number, block in enumerate(BLOCKS, 1):
        exec(compile(block, f"docs/api.md block {number}", "exec"), names)
