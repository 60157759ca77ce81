"""Two Slurm nodes, one Ray cluster, through the shipped script: the same bytes as one machine; and
verl's trainer over both, stopped, requeued and gone on with."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mini_slurm import MiniSlurm, about, processes, wait_for
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


@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed")
@pytest.mark.parametrize("how", ["a signal", "a lost node"])
def test_verl_trains_over_two_nodes_and_goes_on_after(
    slurm: MiniSlurm, tmp_path: Path, how: str
) -> None:
    """Four steps of GRPO with sandboxed tools: FSDP2 over two ranks, one on each Ray node, with a
    rollout server each, and a checkpoint after every step. The lost node loses everything at once:
    slurmd, its Ray node, its rank and its server."""
    out, data = tmp_path / "run", tool_tasks(4, tmp_path / "train.jsonl")
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE)
    settings = f"""data={data} out={out} model.path={tmp_path / "m"} rl.prompts_per_step=2
        rl.mini_batch=2 rl.rollouts_per_prompt=4 rl.max_new_tokens=6 rl.max_length=2048 rl.turns=3
        rl.save_every=1 rl.lr=1e-3 rl.steps=4 cluster.device=cpu cluster.gpus_per_node=1
        cluster.sandbox_workers=1 cluster.rollout_workers=1 cluster.micro_tokens=2048"""
    env = {"ASSAY_RAY_CPUS": "16", "ASSAY_RAY_GPUS": "1", "ASSAY_RAY_STORE": "100000000"}
    where = (tmp_path / "log", "grpo_multinode", *settings.split())
    job = slurm.script(*where, options="--mem=1900 --cpus-per-task=2", **env)
    wait_for("a checkpoint", (out / "latest_checkpointed_iteration.txt").is_file, 900)
    node = slurm.run("scontrol", "show", "hostnames", slurm.job(job)["NodeList"]).split()[1]
    if how == "a signal":
        slurm.signal(job)
    else:
        slurm.kill_node(node)
    wait_for("the requeue", lambda: slurm.job(job)["Restarts"] == "1", 300)
    assert how != "a signal" or not Path(f"/tmp/r{job}").exists()  # nothing stays on its node
    try:
        done, said = slurm.wait(job, seconds=900), (tmp_path / "log").read_text()
    finally:
        if how != "a signal":
            slurm.revive_node(node)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "1"), said
    assert said.count("2 of 2 nodes, 2 of 2 GPUs") == 2, said
    starts = steps_of_starts(out)
    first, again = ([row["step"] for row in start] for start in starts)
    assert again == [*range(again[0], 5)] and again[0] > 1  # from the newest checkpoint
    assert how != "a signal" or [*first, *again] == [1, 2, 3, 4]  # each once
    for row in (row["data"] for start in starts for row in start):
        # the sampler had the trainer's weights, tools were called, and no rollout was lost
        assert row["training/rollout_probs_diff_max"] < 1e-4
        assert row["rollout/tool_calls/mean"] > 0 and row["rollout/left_out"] == 0.0
    shards = sorted(p.name for p in (out / "global_step_4/actor").glob("model_*"))
    assert shards == [f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)]
    assert (out / "DONE").exists() and list((out / "model").glob("*.safetensors"))


def steps_of_starts(out: Path) -> list[list[dict[str, Any]]]:
    """The training steps that each start of a verl run has logged; validation is left out."""
    files = sorted((out / "verl").glob("metrics_start_*.jsonl"))
    rows = ([json.loads(line) for line in file.read_text().splitlines()] for file in files)
    return [[row for row in start if "actor/grad_norm" in row["data"]] for start in rows]


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
    env = {"ASSAY_RAY_CPUS": "2", "ASSAY_RAY_STORE": "100000000"}
    env |= {"PYTHONPATH": str(tmp_path), "BEGUN": str(begun)}
    where = (log, "grpo_multinode", f"out={tmp_path}/run", "--", "steady")
    job = slurm.script(*where, options="--mem=500 --cpus-per-task=2", **env)
    wait_for("the driver", begun.exists, 400)
    words = {f"SLURM_JOB_ID={job}", "SLURMD_NODENAME=n2"}
    raylets = [p for p in processes() if "/raylet/raylet" in about(p, "cmdline").split("\0")[0]]
    (mine,) = (p for p in raylets if words <= {*about(p, "environ").split("\0")})
    os.kill(mine, signal.SIGKILL)
    done, said = slurm.wait(job, seconds=500), log.read_text()
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "1"), said
    assert "requeued after a lost node" in said
    assert not Path(f"/tmp/r{job}").exists()
    logs = tmp_path / "run" / "ray-logs"  # of both nodes, the head's with its own server's
    assert sorted(p.name for p in logs.iterdir()) == ["n1", "n2"], said
    assert list(logs.glob("n1/gcs_server*"))
