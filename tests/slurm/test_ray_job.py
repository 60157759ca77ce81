"""Two Slurm nodes, one Ray cluster, through the shipped script: the same bytes as one machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mini_slurm import MiniSlurm

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed (extra `cluster`)"
    ),
]
ROOT = Path(__file__).resolve().parent.parent.parent


def test_gold_is_executed_on_two_nodes_and_nothing_is_left_behind(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    source, target, log = tmp_path / "in.jsonl", tmp_path / "all.jsonl", tmp_path / "log.txt"
    recipe = [{"operator": "clean_email_mapper", "params": {}}]
    rows = [{"id": f"r{i}", "input_text": f"mail me@x{i}.org", "recipe": recipe} for i in range(40)]
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    job = slurm.submit(
        "-o", str(log), "--mem=500", "--cpus-per-task=2",
        str(ROOT / "slurm" / "grpo_multinode.sbatch"), f"out={tmp_path}/run", "--",
        "train.verl_backend.ray_shards", f"out={tmp_path}/shards", "--input", str(source),
        "--shards", "8", "--to", str(target), "--", "execute", "{in}", "{out}",
        ASSAY_RAY_CPUS="2", ASSAY_RAY_STORE="100000000",
    )  # fmt: skip
    done = slurm.wait(job, seconds=500)
    said = log.read_text()
    assert done["JobState"] == "COMPLETED", said
    assert "2 of 2 nodes" in said and "40 rows of 8 shards" in said
    whole = tmp_path / "whole.jsonl"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "assay", "execute", str(source), str(whole)], cwd=ROOT,
                   env=env, check=True)  # fmt: skip
    assert target.read_bytes() == whole.read_bytes()
    assert not Path(f"/tmp/r{job}").exists()
    logs = tmp_path / "run" / "ray-logs"  # of both nodes, the head's with its own server's
    assert sorted(p.name for p in logs.iterdir()) == ["n1", "n2"], said
    assert list(logs.glob("n1/gcs_server*"))
