"""The jail as an environment of the real Harbor: its own oracle and nop agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from travelling import demo_tasks, exported, own_tasks

pytest.importorskip("harbor", reason="harbor is not installed; `make test-interop`")

# The image's Python is 3.11; Harbor itself needs 3.12.
PYTHON = os.environ.get("ASSAY_PYTHON_311") or str(ROOT / ".venv" / "bin" / "python")
ENVIRONMENT = "rollouts.harbor.environment:JailEnvironment"


def run(folder: Path, agent: str, out: Path, *words: str) -> dict[str, Any]:
    """Results of `harbor run` by task, from the trials' own files."""
    program = str(Path(sys.executable).with_name("harbor"))
    job = ["run", "-p", str(folder), "-a", agent, "-o", str(out), "--job-name", agent, "-q"]
    more = ["-n", "2", "-e", ENVIRONMENT, "--environment-kwarg", f"python={PYTHON}", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([program, *job, *more], env=env, capture_output=True, text=True, cwd=out)
    found = {p.parent.name: json.loads(p.read_text()) for p in (out / agent).glob("*/result.json")}
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="needs a Python 3.11 with rapidfuzz")
def test_oracle_earns_one_and_nop_nothing(tmp_path: Path) -> None:
    folder = exported("harbor", tmp_path, [*demo_tasks(6)[:2], *own_tasks(2)])
    (folder / "refused.jsonl").unlink()
    for agent, outcome in (("oracle", 1.0), ("nop", 0.0)):
        found = run(folder, agent, tmp_path)
        assert len(found) == 4
        for result in found.values():
            assert result["exception_info"] is None
            assert result["verifier_result"]["rewards"]["outcome"] == outcome
            assert result["verifier_result"]["rewards"]["reward"] == outcome
