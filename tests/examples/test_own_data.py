"""examples/own_documents.sh: from documents to a trained, evaluated tiny model."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("torch")

TINY = "engine.threads=1 engine.dtype=float32 engine.device=cpu"
SETTINGS = {
    "SFT": f"sft.max_length=1500 sft.batch_size=16 {TINY}",
    "RL": "rl.steps=1 rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=2 "
    f"rl.max_new_tokens=24 rl.max_length=1500 {TINY}",
    "EVAL": "sampling.max_new_tokens=24",
}


@pytest.mark.slow
def test_own_documents(tiny_folder: Path, tmp_path: Path) -> None:
    corpus = ROOT / "data_gen" / "corpus" / "documents.jsonl.gz"
    lines = gzip.decompress(corpus.read_bytes()).splitlines()[::3]
    (tmp_path / "mine.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    front = tmp_path / "bin" / "assay"
    front.parent.mkdir()
    front.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m assay "$@"\n')
    front.chmod(0o755)
    path = f"{front.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": path}
    script = [str(ROOT / "examples" / "own_documents.sh"), "mine.jsonl", str(tiny_folder), "out"]
    done = subprocess.run(["bash", *script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    results = json.loads((tmp_path / "out" / "after" / "results.json").read_text("utf-8"))
    assert len(results["rows"]) == 16
