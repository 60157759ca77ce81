"""examples/own_documents.sh and own_tables.sh: from data to a trained, evaluated tiny model."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("torch")
pytest.importorskip("sklearn")

TINY = "engine.threads=1 engine.dtype=float32 engine.device=cpu"


def run_script(folder: Path, name: str, *words: str, **settings: str) -> str:
    """Run an example with `assay` on the path; what it printed."""
    tools = folder / "bin"
    tools.mkdir()
    front = tools / "assay"
    front.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m assay "$@"\n')
    front.chmod(0o755)
    env = {**os.environ, **settings, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / name), *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_own_documents(tiny_folder: Path, tmp_path: Path) -> None:
    corpus = ROOT / "data_gen" / "corpus" / "documents.jsonl.gz"
    lines = gzip.decompress(corpus.read_bytes()).splitlines()[::3]
    (tmp_path / "mine.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    said = run_script(
        tmp_path,
        "own_documents.sh",
        "mine.jsonl",
        str(tiny_folder),
        "out",
        SFT=f"sft.max_length=1500 sft.batch_size=16 {TINY}",
        RL=f"rl.steps=1 rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=2 "
        f"rl.max_new_tokens=24 rl.max_length=1500 {TINY}",
        EVAL="sampling.max_new_tokens=24",
    )
    assert "RS" in said or "outcome" in said
    results = json.loads((tmp_path / "out" / "after" / "results.json").read_text("utf-8"))
    assert len(results["rows"]) == 16


@pytest.mark.slow
def test_own_tables(tiny_folder: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in range(4):
        draw = random.Random(name)
        rows = ["site;area;rooms;price;kind"]
        for _ in range(240):
            area, rooms = draw.uniform(20, 200), draw.randrange(1, 8)
            price = 900 * area + 5000 * rooms + draw.gauss(0, 4000)
            kind = "house" if area + draw.gauss(0, 12) > 110 else "flat"
            row = f"{draw.choice('abc')};{area:.1f};{rooms};{price:.0f};{kind}"
            rows.append(row.replace(".", ","))
        (tables / f"homes{name}.csv").write_text("\n".join(rows) + "\n", "utf-8")
    run_script(
        tmp_path,
        "own_tables.sh",
        "tables",
        str(tiny_folder),
        "out",
        SFT=f"sft.max_length=12000 sft.batch_size=4 {TINY}",
        EVAL="sampling.max_new_tokens=24 tools.turns=1 --limit 4",
    )
    results = json.loads((tmp_path / "out" / "eval" / "results.json").read_text("utf-8"))
    assert results["rows"]
