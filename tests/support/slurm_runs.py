"""Small training runs under Slurm: their tasks, their words, and how they are stopped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mini_slurm import MiniSlurm, wait_for

from assay.task import Task, write_jsonl

TINY = ["engine.device=cpu", "engine.threads=1", "engine.dtype=float32"]


def toy_tasks(path: Path, count: int = 24) -> Path:
    tasks = []
    for i in range(count):
        text = f"{'abc'[i % 3]}{'de'[i % 2]}x{i % 5}"
        gold = {"input_text": text, "status": "KEEP", "text": text.replace("x", "")}
        prompt = [{"role": "user", "content": f"{i} {text}"}]
        tasks.append(Task(f"t{i:02d}", "refinement", "toy", "train", prompt, gold))
    write_jsonl(path, [task.to_json() for task in tasks])
    return path


def sft_words(data: Path, model: Path, out: Path) -> list[str]:
    more = ["sft.epochs=50", "sft.batch_size=2", "sft.save_every=10"]
    return [f"data={data}", f"model.path={model}", f"out={out}", *TINY, *more]


def grpo_words(data: Path, model: Path, out: Path) -> list[str]:
    more = ["rl.steps=90", "rl.prompts_per_step=4", "rl.mini_batch=4", "rl.rollouts_per_prompt=4"]
    more += ["rl.max_new_tokens=64", "rl.save_every=3", "rl.lr=3e-4"]
    return [f"data={data}", f"model.path={model}", f"out={out}", *TINY, *more]


def final_hashes(out: Path, stage: str) -> dict[str, str]:
    last = (out / "checkpoints" / stage / "latest").read_text().strip()
    folder = out / "checkpoints" / stage / last
    files = [*folder.glob("*.safetensors"), out / "model" / "model.safetensors"]
    return {f"{last}/{p.name}": hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def model_hash(out: Path) -> str:
    return hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def saved(out: Path, stage: str) -> int:
    try:
        name = (out / "checkpoints" / stage / "latest").read_text()
    except OSError:
        return 0
    return int(name.removeprefix("step_"))


def steps(out: Path) -> list[int]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def wait_progress(
    slurm: MiniSlurm, job: str, out: Path, stage: str, restarts: int, seconds: float = 180
) -> None:
    """Until the start number `restarts` of the job has saved something more."""
    wait_for("the job's next start", lambda: started(slurm, job, restarts), seconds)
    before = saved(out, stage)
    wait_for(f"a checkpoint after step {before}", lambda: saved(out, stage) > before, seconds)


def started(slurm: MiniSlurm, job: str, restarts: int) -> bool:
    found = slurm.job(job)
    assert found["JobState"] not in ("COMPLETED", "FAILED"), (found["JobState"], "too early")
    return found["JobState"] == "RUNNING" and found["Restarts"] == str(restarts)


def preempt(slurm: MiniSlurm) -> None:
    """A job of a higher partition that wants every node."""
    job = slurm.submit("-p", "high", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "true")
    slurm.wait(job, "COMPLETED")


def stop_in_every_way(slurm: MiniSlurm, job: str, out: Path, stage: str) -> None:
    """The time limit near (its signal), a requeue by hand, a preemption, a node lost: each after
    the start before it has saved something."""
    wait_progress(slurm, job, out, stage, 0)
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    wait_progress(slurm, job, out, stage, 1)
    slurm.run("scontrol", "requeue", job)
    wait_progress(slurm, job, out, stage, 2)
    preempt(slurm)
    wait_progress(slurm, job, out, stage, 3)
    node = slurm.job(job)["NodeList"]
    slurm.kill_node(node)
    wait_progress(slurm, job, out, stage, 4)
    slurm.revive_node(node)
