"""Every way a job can be stopped, and the proof that nothing was lost: the same final bits."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path

import pytest
from assay_command import assay
from mini_slurm import MiniSlurm, wait_for
from places import ROOT
from sft_runs import toy_tasks

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
TINY = ["engine.device=cpu", "engine.threads=1", "engine.dtype=float32"]
WORDS = {
    "sft": "sft.epochs=50 sft.batch_size=2 sft.save_every=10",
    "grpo": "rl.steps=90 rl.prompts_per_step=4 rl.mini_batch=4 rl.rollouts_per_prompt=4 "
    "rl.max_new_tokens=64 rl.save_every=3 rl.lr=3e-4",
}


def final(out: Path, *folders: str) -> dict[str, str]:
    """The hashes of the model, and of what the run saved and sampled."""
    files = [p for folder in ("model", *folders) for p in (out / folder).rglob("*") if p.is_file()]
    files = [p for p in files if p.suffix in (".safetensors", ".jsonl")]
    return {str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def steps(out: Path) -> list[int]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def saved(out: Path) -> int:
    found = [int(p.read_text()[5:]) for p in (out / "checkpoints").glob("*/latest")]
    return max(found, default=0)


def wait_progress(slurm: MiniSlurm, job: str, out: Path, restarts: int) -> None:
    """Until the start number `restarts` of the job has saved something more."""

    def started() -> bool:
        found = slurm.job(job)
        assert found["JobState"] not in ("COMPLETED", "FAILED"), (found["JobState"], "too early")
        return found["JobState"] == "RUNNING" and found["Restarts"] == str(restarts)

    wait_for("the job's next start", started, 400)
    before = saved(out)
    wait_for(f"a checkpoint after step {before}", lambda: saved(out) > before, 400)


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_run_ends_in_the_same_bits_and_samples_whatever_stopped_it(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path, stage: str
) -> None:
    """The time limit near (its signal), a requeue by hand, a preemption, a node lost: each after
    the start before it has saved something."""
    data, out, whole = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "whole"
    model = tiny_folder
    if stage == "grpo":  # a model that solves none of its tasks has nothing to learn from
        more = ["sft.epochs=45", "sft.batch_size=8", "sft.lr=3e-3", f"out={tmp_path}/warm"]
        assay(ROOT, "sft", f"data={data}", f"model.path={model}", *TINY, *more)
        model = tmp_path / "warm" / "model"
    words = [f"data={data}", f"model.path={model}", *TINY, *WORDS[stage].split()]
    script, log = {"sft": "sft", "grpo": "grpo_1node"}[stage], tmp_path / "log.txt"
    job = slurm.script(log, script, *words, f"out={out}")
    wait_progress(slurm, job, out, 0)
    slurm.signal(job)
    wait_progress(slurm, job, out, 1)
    slurm.run("scontrol", "requeue", job)
    wait_progress(slurm, job, out, 2)
    higher = ["-p", "high", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "true"]
    assert slurm.wait(slurm.submit(*higher))["JobState"] == "COMPLETED"
    wait_progress(slurm, job, out, 3)
    node = slurm.job(job)["NodeList"]
    slurm.kill_node(node)
    wait_progress(slurm, job, out, 4)
    slurm.revive_node(node)
    done, text = slurm.wait(job, seconds=600), log.read_text()
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "4"), text
    assert text.count(f"assay {stage}: asked to stop; saved step") == 3 and "restart 4" in text
    assay(ROOT, stage, *words, f"out={whole}")
    last = (whole / "checkpoints").rglob("latest")
    kept = ["rollouts", *(str((p.parent / p.read_text()).relative_to(whole)) for p in last)]
    assert final(out, *kept) == final(whole, *kept)
    assert len(final(whole, "rollouts")) == 1 + 90 * (stage == "grpo")  # each sample once
    assert steps(out) == steps(whole) == [*range(1, 1 + {"sft": 600, "grpo": 90}[stage])]
    before = (model / "model.safetensors").read_bytes()
    assert (out / "model" / "model.safetensors").read_bytes() != before  # it did learn


@pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None,
    reason="deepspeed is not installed (extra `deepspeed`)",
)
def test_deepspeed_ends_in_the_same_bits_when_signalled_and_when_its_node_is_lost(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    """Two processes, ZeRO-3. Checkpoint files of DeepSpeed hold pickles: the model is compared."""
    data, out, whole = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "whole"
    words = ["--backend", "deepspeed", f"data={data}", f"model.path={tiny_folder}", *TINY]
    words += ["sft.batch_size=2", "sft.epochs=8", "sft.save_every=5"]
    words += ["cluster.device=cpu", "cluster.gpus_per_node=2"]
    log = tmp_path / "log.txt"
    job = slurm.script(log, "sft", *words, f"out={out}", options="--mem=2000")
    wait_progress(slurm, job, out, 0)
    slurm.signal(job)
    wait_progress(slurm, job, out, 1)
    node = slurm.job(job)["NodeList"]
    slurm.kill_node(node)
    wait_progress(slurm, job, out, 2)
    slurm.revive_node(node)
    done = slurm.wait(job, seconds=600)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "2"), log.read_text()
    assay(ROOT, "sft", *words, f"out={whole}")
    assert final(out) == final(whole)
    assert steps(out) == steps(whole) == list(range(1, 97))
