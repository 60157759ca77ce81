"""Runs with everything a report shows: rollouts by step, a log, results of three models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from small_run import evaluation_rows, make_run, refinement

from configs.schema import DemoConfig
from train.report.write import write_report
from train.run.record import write_run_record

TASKS = 8


def make_report_run(folder: Path, seed: int = 0, lr: float = 1e-5) -> Path:
    """A run whose SFT model is right in half of the tasks, and whose RL model in all but one."""
    make_run(folder, steps=3, tasks=4)
    tasks = [refinement(100 + n, least=3 if n % 2 else 30) for n in range(TASKS)]
    right, wrong, untouched = (evaluation_rows(tasks, which) for which in (0, 2, 3))
    sft, rl = right[: TASKS // 2] + wrong[TASKS // 2 :], wrong[:1] + right[1:]
    rows = {"untouched": untouched, "sft": sft, "rl": rl, "gold": right}
    for mine in rows.values():
        for row in mine:
            row["source"] = f"document {row['task_id']} of seed {seed}"
    config = DemoConfig(seed=seed)
    write_run_record(folder, config)
    record = json.loads((folder / "run.json").read_text())
    record["config"]["rl"]["lr"] = lr
    (folder / "run.json").write_text(json.dumps(record))
    metrics = [metric(step) for step in range(1, 4)]
    lines = [json.dumps(m) for m in (*metrics, {"stage": "eval", "step": 2, "outcome": 0.5})]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    meta = {"seed": seed, "bootstrap": 200, "times": {"SFT": 60.0, "Dr.GRPO": 120.0}}
    write_report(folder, {"rows": rows, "meta": meta}, rollouts=True)
    return folder


def metric(step: int) -> dict[str, Any]:
    growing = dict.fromkeys(("outcome/mean", "reward/rs/mean", "why/ok"), 0.1 * step)
    made = {"stage": "rl", "step": step, "reward/mean": 0.2 * step, "reward/d_in/mean": 12.0}
    made |= {"why/wrong_text": 1 - 0.1 * step, "kl/sampler": 1e-4, "entropy": 0.3}
    return made | growing | {"time/step": 2.0, "time/rollout": 1.0}
