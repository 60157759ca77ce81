"""The exported taskset, checked by the real verifiers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from travelling import demo_tasks, exported, own_tasks

pytest.importorskip("verifiers.v1", reason="verifiers is not installed; `make test-interop`")


@pytest.mark.parametrize("family", ["demo", "own"])
def test_validate_passes_gold_and_refuses_nothing_done(tmp_path: Path, family: str) -> None:
    folder = exported("verifiers", tmp_path, demo_tasks(6) if family == "demo" else own_tasks(6))
    count = len((folder / "tasks.jsonl").read_text().splitlines())
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    program = Path(sys.executable).with_name("vf-validate")
    words = [str(program), "assay-tasks", "--runtime.type", "subprocess", "-o", str(tmp_path / "v")]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    (path,) = (tmp_path / "v").rglob("summary.json")
    summary = json.loads(path.read_text())
    assert summary["outcomes"]["valid"] == count >= 6, done.stdout + done.stderr
    assert summary["checks"]["noop"]["valid"] == summary["checks"]["gold"]["valid"] == count
