"""Two Slurm nodes, one Ray cluster, through the shipped script: the same bytes as one machine; and
verl's trainer over both, stopped, requeued and gone on with."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mini_slurm import MiniSlurm, command, environ, processes, wait_for
from places import ROOT
from slurm_runs import toy_tasks
from tiny_model import CHAT_TEMPLATE
from tool_model import tasks as tool_tasks
from tool_model import write_model

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed (extra `cluster`)"
    ),
]


def test_gold_is_executed_on_two_nodes_and_nothing_is_left_behind(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    source, target, log = tmp_path / "in.jsonl", tmp_path / "all.jsonl", tmp_path / "log.txt"
    recipe = [{"operator": "clean_email_mapper", "params": {}}]
    rows = [{"id": f"r{i}", "input_text": f"mail me@x{i}.org", "recipe": recipe} for i in range(40)]
    source.write_text("".join(json.dumps(r) + "\n" for r in rows))
    job = slurm.submit(
        "-o",
        str(log),
        "--mem=500",
        "--cpus-per-task=2",
        str(ROOT / "slurm" / "grpo_multinode.sbatch"),
        f"out={tmp_path}/run",
        "--",
        "train.backends.verl.ray_shards",
        f"out={tmp_path}/shards",
        "--input",
        str(source),
        "--shards",
        "8",
        "--to",
        str(target),
        "--",
        "execute",
        "{in}",
        "{out}",
        ASSAY_RAY_CPUS="2",
        ASSAY_RAY_STORE="100000000",
    )
    done = slurm.wait(job, seconds=500)
    said = log.read_text()
    assert done["JobState"] == "COMPLETED", said
    assert "2 of 2 nodes" in said and "40 rows of 8 shards" in said
    whole = tmp_path / "whole.jsonl"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "assay", "execute", str(source), str(whole)],
        cwd=ROOT,
        env=env,
        check=True,
    )
    assert target.read_bytes() == whole.read_bytes()
    assert not Path(f"/tmp/r{job}").exists()
    logs = tmp_path / "run" / "ray-logs"  # of both nodes, the head's with its own server's
    assert sorted(p.name for p in logs.iterdir()) == ["n1", "n2"], said
    assert list(logs.glob("n1/gcs_server*"))


def test_rejection_sampling_over_two_nodes_gives_the_bytes_of_one_machine(
    slurm: MiniSlurm, tiny_folder: Path, tmp_path: Path
) -> None:
    """Every shard is `assay rollout` in a Ray worker; both nodes take some."""
    source, target, log = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "all.jsonl", tmp_path / "log"
    words = [
        "rollout",
        "--model",
        str(tiny_folder),
        "--n",
        "2",
        "--slots",
        "8",
        "--threads",
        "1",
        "--max-new-tokens",
        "8",
    ]
    job = slurm.submit(
        "-o",
        str(log),
        "--mem=500",
        "--cpus-per-task=2",
        str(ROOT / "slurm" / "grpo_multinode.sbatch"),
        f"out={tmp_path}/run",
        "--",
        "train.backends.verl.ray_shards",
        f"out={tmp_path}/shards",
        "--input",
        str(source),
        "--shards",
        "6",
        "--align",
        "4",
        "--to",
        str(target),
        "--",
        *words,
        "--tasks",
        "{in}",
        "--out",
        "{out}",
        ASSAY_RAY_CPUS="1",
        ASSAY_RAY_STORE="100000000",
    )
    done = slurm.wait(job, seconds=900)
    said = log.read_text()
    assert done["JobState"] == "COMPLETED", said
    where = re.findall(r"rows of 6 shards \((n\d) \d, (n\d) \d\)", said)
    assert len(where) == 1 and where[0][0] != where[0][1], said  # both nodes took shards
    whole = tmp_path / "whole.jsonl"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assay = [sys.executable, "-m", "assay"]
    subprocess.run(
        [*assay, *words, "--tasks", str(source), "--out", str(whole)],
        cwd=ROOT,
        env=env,
        check=True,
        capture_output=True,
    )
    assert len(whole.read_bytes().splitlines()) == 48
    assert target.read_bytes() == whole.read_bytes()


def trained(row: dict[str, Any]) -> bool:
    """Whether a line of verl's metrics is a training step's; the others are validation."""
    return "actor/grad_norm" in row["data"]


@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed")
def test_verl_trains_over_two_nodes_and_goes_on_after_a_signal(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    """FSDP2 over two ranks, one on each Ray node, with a rollout server each; sandboxed tools."""
    out, log = tmp_path / "run", tmp_path / "log"
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE)
    data = tool_tasks(4, tmp_path / "train.jsonl")
    job = slurm.submit(
        "-o",
        str(log),
        "--mem=1900",
        "--cpus-per-task=2",
        str(ROOT / "slurm" / "grpo_multinode.sbatch"),
        f"data={data}",
        f"out={out}",
        f"model.path={tmp_path / 'm'}",
        "rl.prompts_per_step=2",
        "rl.mini_batch=2",
        "rl.rollouts_per_prompt=4",
        "rl.max_new_tokens=6",
        "rl.max_length=2048",
        "rl.turns=3",
        "rl.save_every=1",
        "rl.lr=1e-3",
        "rl.steps=4",
        "cluster.device=cpu",
        "cluster.gpus_per_node=1",
        "cluster.sandbox_workers=1",
        "cluster.rollout_workers=1",
        "cluster.micro_tokens=2048",
        ASSAY_RAY_CPUS="16",
        ASSAY_RAY_GPUS="1",
        ASSAY_RAY_STORE="100000000",
    )
    tracker = out / "latest_checkpointed_iteration.txt"
    wait_for("the first checkpoint", tracker.is_file, 900)
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    wait_for("the requeue", lambda: slurm.job(job)["Restarts"] == "1", 300)
    assert not Path(f"/tmp/r{job}").exists()  # nothing stays on a node that it may not get again
    done = slurm.wait(job, seconds=900)
    said = log.read_text()
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "1"), said
    assert said.count("2 of 2 nodes, 2 of 2 GPUs") == 2, said
    assert "signal USR1: asking the run to save and stop" in said
    starts = [
        [row for row in map(json.loads, path.read_text().splitlines()) if trained(row)]
        for path in sorted((out / "verl").glob("metrics_start_*.jsonl"))
    ]
    assert len(starts) == 2 and all(starts)
    assert [row["step"] for start in starts for row in start] == [1, 2, 3, 4]  # each once
    for row in (row["data"] for start in starts for row in start):
        assert row["training/rollout_probs_diff_max"] < 1e-4
        assert row["rollout/tool_calls/mean"] > 0 and row["rollout/left_out"] == 0.0
    shards = sorted(p.name for p in (out / "global_step_4/actor").glob("model_*"))
    assert shards == [f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)]
    assert (out / "DONE").exists() and list((out / "model").glob("*.safetensors"))
    assert not Path(f"/tmp/r{job}").exists()


# Stands in for verl's trainer: an actor on the other node; when that is gone, a traceback.
DRIVER = """
import os, time
import ray

class Held:
    def where(self):
        return os.environ["SLURMD_NODENAME"]
    def sleep(self):
        time.sleep(600)

ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
other = [n for n in ray.nodes() if n["Alive"]]
held = ray.remote(num_cpus=2)(Held)
actors = [held.remote() for _ in other]
print("actors on", ray.get([a.where.remote() for a in actors]), flush=True)
if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
    open(os.environ["BEGUN"], "w").close()
    ray.get([a.sleep.remote() for a in actors])
"""


def test_a_run_that_fails_because_ray_lost_a_node_is_requeued(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    """Its raylet is killed, which Slurm cannot see: the driver's own error comes within seconds."""
    (tmp_path / "steady.py").write_text(DRIVER)
    log, begun = tmp_path / "log.txt", tmp_path / "begun"
    job = slurm.submit(
        "-o",
        str(log),
        "--mem=500",
        "--cpus-per-task=2",
        str(ROOT / "slurm" / "grpo_multinode.sbatch"),
        f"out={tmp_path}/run",
        "--",
        "steady",
        ASSAY_RAY_CPUS="2",
        ASSAY_RAY_STORE="100000000",
        PYTHONPATH=str(tmp_path),
        BEGUN=str(begun),
    )
    wait_for("the driver", begun.exists, 400)
    mine = [
        p
        for p in processes()
        if "/raylet/raylet" in command(p).split("\0")[0]
        and f"SLURM_JOB_ID={job}" in (words := environ(p).split("\0"))
        and "SLURMD_NODENAME=n2" in words
    ]
    assert len(mine) == 1
    os.kill(mine[0], signal.SIGKILL)
    done, said = slurm.wait(job, seconds=500), log.read_text()
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "1"), said
    assert "requeued after a lost node" in said
