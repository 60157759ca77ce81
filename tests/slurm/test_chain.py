"""slurm/chain.sh: a whole chain with arrays, a failed dependency, a cancelled array;
slurm/cdr.sh."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from assay_command import assay
from front import command
from mini_slurm import MiniSlurm, wait_for
from places import ROOT
from sft_runs import toy_tasks
from small_corpus import write_corpus

ROLLOUT = (
    "rollout sampling.n=2 sampling.max_new_tokens=64 engine.threads=1 engine.slots=8 "
    "sampling.temperature=0.7"
)


def chain(slurm: MiniSlurm, out: Path, jobs: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A script whose lines are `jobs`, run with `words`."""
    script = out.parent / f"{out.name}.sh"
    script.write_text(f'OUT={out}\n. "{ROOT}/slurm/chain.sh"\n{jobs}\n')
    return subprocess.run(
        ["bash", str(script), *words], env=slurm.env, capture_output=True, text=True, check=False
    )


def submitted(slurm: MiniSlurm, out: Path, jobs: str) -> dict[str, str]:
    """Slurm's number of each job."""
    done = chain(slurm, out, jobs)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": job ") for line in done.stdout.splitlines())


def test_what_follows_a_failure_is_cancelled_and_the_rest_runs(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    jobs = f"""
job bad '' slurm/command.sbatch out={out}/bad -- report {out}/nothing
job never bad slurm/command.sbatch out={out}/never -- report {out}/nothing
job good '' slurm/command.sbatch out={out}/good -- tasks --help
"""
    ids = submitted(slurm, out, jobs)
    assert (out / "submitted").read_text().split() == [*ids.values()]
    states = {name: slurm.wait(job)["JobState"] for name, job in ids.items()}
    assert states == {"bad": "FAILED", "never": "CANCELLED", "good": "COMPLETED"}
    assert not list((out / "logs").glob("run-never*"))


@pytest.mark.slow  # two arrays and two merges, one after the other
def test_a_cancelled_array_is_finished_by_submitting_it_again(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    rows = [{"id": f"r{i}", "input_text": f"mail me@x.org {i}", "recipe": []} for i in range(12)]
    given, out = tmp_path / "in.jsonl", tmp_path / "run"
    given.write_text("".join(json.dumps(r) + "\n" for r in rows))
    jobs = f"""
SHARDS=(out={out}/gold --input {given} --shards 4)
job gold '' --array=0-3%1 slurm/data_array.sbatch "${{SHARDS[@]}}" -- execute {{in}} {{out}}
job merge gold slurm/command.sbatch out={out}/gold -- \\
  slurm merge "${{SHARDS[@]}}" --to {out}/gold.jsonl
"""
    ids = submitted(slurm, out, jobs)
    shards = out / "gold"
    wait_for("the first shard", lambda: list(shards.glob("shard-*.json")), 120)
    slurm.run("scancel", ids["gold"])
    assert slurm.wait(ids["merge"])["JobState"] == "CANCELLED"
    wait_for("all of it to be gone", lambda: not slurm.run("squeue", "-h", "-j", ids["gold"]))
    first = {p.name: p.stat().st_mtime_ns for p in shards.glob("shard-*.jsonl")}
    assert 0 < len(first) < 4 and not (out / "gold.jsonl").exists()
    ids = submitted(slurm, out, jobs)
    assert slurm.wait(ids["merge"])["JobState"] == "COMPLETED"
    kept = {p.name: p.stat().st_mtime_ns for p in shards.glob("shard-*.jsonl")}
    assert first.items() <= kept.items()  # finished shards were skipped
    assay(ROOT, "execute", str(given), str(tmp_path / "whole.jsonl"))
    assert (out / "gold.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_dry_run_a_refused_job_and_a_second_submission(slurm: MiniSlurm, tmp_path: Path) -> None:
    out, later = tmp_path / "run", "--begin=now+1hour"
    jobs = f"""
job a '' slurm/command.sbatch out={out}/a -- doctor
job b a --partition=nowhere slurm/command.sbatch out={out}/b -- doctor
"""
    done = chain(slurm, out, jobs, "--dry-run", later)
    assert done.returncode == 0 and not out.exists()
    calls = done.stdout.splitlines()
    assert calls[0].startswith("sbatch --parsable --job-name=run-a")
    assert f"afterok:\\<a\\> --kill-on-invalid-dep=yes {later}" in calls[1]
    done = chain(slurm, out, jobs, later)
    first = done.stdout.removeprefix("a: job ").strip()
    assert done.returncode != 0 and "Invalid partition name specified" in done.stderr
    assert f"already submitted: {first}" in done.stderr
    jobs = jobs.replace("--partition=nowhere ", "")
    done = chain(slurm, out, jobs, later)
    assert done.returncode == 2 and f"wait for them, or: scancel {first}" in done.stderr
    slurm.run("scancel", first)
    wait_for("its end", lambda: slurm.job(first)["JobState"] == "CANCELLED")
    for job in submitted(slurm, out, jobs.replace("slurm/", f"{later} slurm/")).values():
        slurm.run("scancel", job)


def whole_chain(out: Path, data: Path, model: Path) -> str:
    """A chain on a tiny model (docs/clusters.md): it learns its few tasks by heart, so that its
    rollouts have something to select."""
    tiny = "engine.device=cpu engine.threads=1 engine.dtype=float32"
    return f"""
job tasks '' slurm/command.sbatch out={out}/tasks -- \\
  tasks demo --out {out}/tasks train_sft=24 train_rl=24 heldout=8
job warm '' slurm/sft.sbatch data={data} model.path={model} {tiny} sft.batch_size=8 sft.epochs=60 \\
  sft.lr=3e-3 out={out}/warm
SHARDS=(out={out}/rollouts --input {data} --shards 2 --align 4)
job rollouts warm --array=0-1 slurm/data_array.sbatch "${{SHARDS[@]}}" -- \\
  {ROLLOUT} --model {out}/warm/model --tasks {{in}} --out {{out}}
job merge rollouts slurm/command.sbatch out={out}/rollouts -- \\
  slurm merge "${{SHARDS[@]}}" --to {out}/rollouts.jsonl
job select merge slurm/command.sbatch out={out}/select -- \\
  select --rollouts {out}/rollouts.jsonl --strategy av --out {out}/kept.parquet
job sft select slurm/sft.sbatch data={out}/kept.parquet model.path={model} {tiny} \\
  sft.batch_size=8 out={out}/sft
job grpo sft slurm/grpo_1node.sbatch data={data} model.path={out}/sft/model {tiny} rl.steps=2 \\
  rl.prompts_per_step=4 rl.mini_batch=4 rl.rollouts_per_prompt=4 rl.max_new_tokens=12 out={out}/grpo
served eval 'tasks grpo' 2 -- --model {out}/grpo/model --tasks {out}/tasks/heldout.jsonl \\
  --limit 4 sampling.max_new_tokens=8 engine.threads=1
"""


@pytest.mark.slurm
@pytest.mark.slow
def test_tasks_rollouts_select_sft_grpo_and_evaluation_in_one_chain(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    """The evaluation is in two parts, with the embedded engine: the nodes have no GPU."""
    data, out = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run"
    ids = submitted(slurm, out, whole_chain(out, data, tiny_folder))
    states = {name: slurm.wait(job, seconds=900)["JobState"] for name, job in ids.items()}
    logs = "\n".join(p.read_text() for p in (out / "logs").iterdir())
    assert set(states.values()) == {"COMPLETED"}, (states, logs)
    whole = tmp_path / "whole.jsonl"
    given = ["--model", str(out / "warm" / "model"), "--tasks", str(data), "--out", str(whole)]
    assay(ROOT, *ROLLOUT.split(), *given)
    assert (out / "rollouts.jsonl").read_bytes() == whole.read_bytes()
    kept = json.loads((out / "kept.parquet.manifest.json").read_text())["kept"]
    assert 0 < kept["tasks"] <= 24
    parts = [json.loads((out / f"eval/part-{i}/results.json").read_text()) for i in range(2)]
    together = json.loads((out / "eval" / "results.json").read_text())
    asked = [{row["task_id"] for row in part["rows"]} for part in parts]
    assert not asked[0] & asked[1] and len(together["rows"]) == sum(map(len, asked)) > 0
    assert (out / "eval" / "report.html").is_file() and together["meta"]["answered_by"]


@pytest.mark.slow  # six jobs, one after the other
def test_shards_on_slurm_give_the_bytes_of_one_command(slurm: MiniSlurm, tmp_path: Path) -> None:
    """slurm/cdr.sh."""
    corpus, out, one = write_corpus(tmp_path / "corpus", 30), tmp_path / "out", tmp_path / "one"
    given = ["--corpus", str(corpus), "--workers", "1", "instances.min_keep=2"]
    given += ["instances.min_drop=2", "mining.min_recipe_support=2"]
    words = [str(ROOT / "slurm" / "cdr.sh"), "2", "2", str(out), *given]
    env = os.environ | slurm.env
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jobs = re.findall(r"^(\w+): job (\d+)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in jobs] == ["facts", "library", "traces", "plan", "rows", "merge"]
    state = slurm.wait(jobs[-1][1], seconds=600)["JobState"]
    logs = sorted((out / ".jobs").glob("*.log"))
    assert state == "COMPLETED", "\n".join(log.read_text() for log in logs)
    assert command("tasks")(["cdr", *given, "--out", str(one)]) == 0
    for path in (p for p in one.rglob("*") if p.is_file()):
        assert path.read_bytes() == (out / path.relative_to(one)).read_bytes()
