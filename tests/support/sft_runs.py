"""`assay sft` on small tasks, as a process, and what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from places import ROOT

from assay.task import Task, write_jsonl


def toy_tasks(path: Path, count: int = 24) -> Path:
    tasks = []
    for i in range(count):
        gold = {"input_text": f"ax{i}", "status": "KEEP", "text": f"a{i}" * (1 + i % 4)}
        prompt = [{"role": "user", "content": f"{i} ax"}]
        tasks.append(Task(f"t{i}", "refinement", "toy", "train", prompt, gold))
    write_jsonl(path, [t.to_json() for t in tasks])
    return path


def words(data: Path, model: Path, out: Path, *more: str) -> list[str]:
    made = f"""data={data} model.path={model} out={out} engine.device=cpu engine.threads=1
        engine.dtype=float32 sft.batch_size=4 sft.lr=1e-3 sft.save_every=3 cluster.device=cpu
        cluster.gpus_per_node=2""".split()
    return [*made, *more]


def sft(*args: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    words = [sys.executable, "-m", "assay", "sft", *args]
    return subprocess.Popen(words, cwd=ROOT, env=env, **pipes)


def finish(run: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = run.communicate(timeout=900)
    assert run.returncode == code, said
    return said


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
