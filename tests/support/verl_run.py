"""`assay grpo --backend verl` on the CPU device, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from places import ROOT


def grpo(folder: Path, *more: str) -> str:
    """What it said. `folder` has the model `m`, train.jsonl and held.jsonl; `run` is made."""
    words = f"""data={folder / "train.jsonl"} model.path={folder / "m"} out={folder / "run"}
        rl.prompts_per_step=2 rl.mini_batch=2 rl.rollouts_per_prompt=4 rl.max_new_tokens=6
        rl.max_length=2048 rl.turns=3 rl.save_every=1 rl.lr=1e-3 cluster.device=cpu
        cluster.gpus_per_node=1 cluster.sandbox_workers=1 cluster.rollout_workers=1
        cluster.micro_tokens=2048 validation={folder / "held.jsonl"}""".split()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    words = [sys.executable, "-m", "assay", "grpo", "--backend", "verl", *words, *more]
    done = subprocess.run(words, cwd=ROOT, env=env, text=True, capture_output=True, timeout=1800)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def logged(folder: Path) -> list[dict[str, Any]]:
    """The metrics of every training step, over all starts."""
    rows = [
        json.loads(line)
        for path in sorted((folder / "run" / "verl").glob("metrics_start_*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [row["data"] for row in rows if "actor/grad_norm" in row["data"]]  # others: validation


def greedy(model: Path, tasks: Path, most: int = 6) -> list[str]:
    """Greedy answers of a model folder to tasks without tools, by the embedded engine."""
    from assay.task import read_tasks
    from rollouts.engines.torch.engine import load_engine
    from rollouts.prompts import ChatTokenizer
    from rollouts.trajectory import Sampling

    chat = ChatTokenizer(model)
    engine: Any = load_engine(model, chat.stop_ids, 4, "float32")
    prompts = [chat.prompt(task.prompt) for task in read_tasks(tasks)]
    found = asyncio.run(engine.generate(prompts, Sampling(most, 0.0), 1, [0] * len(prompts)))
    return [chat.text(one.ids) for (one,) in found]
