"""The scripts' own part in every stop, quickly: a run that counts stands in for the training.

What real training does with it, to the bit, is in test_interruptions.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mini_slurm import MiniSlurm, wait_for
from test_interruptions import preempt, saved, started

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = 400

# One step every 30 ms; USR1 or TERM: save the step and end with 75, as `assay sft` does.
STAND_IN = f"""#!{sys.executable} -S
import os, signal, sys, time
words = sys.argv[1:]
if "train.cluster.preflight" in words:
    sys.exit(0)
out = next(w[4:] for w in words if w.startswith("out="))
folder = os.path.join(out, "checkpoints", "sft" if "sft" in words else "rl")
os.makedirs(folder, exist_ok=True)
asked = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: asked.append(1))
def save():
    with open(os.path.join(folder, ".tmp"), "w") as file:
        file.write(f"step_{{step:06d}}")
    os.replace(os.path.join(folder, ".tmp"), os.path.join(folder, "latest"))
try:
    step = int(open(os.path.join(folder, "latest")).read()[5:])
except OSError:
    step = 0
start = step
while step < {STEPS}:
    time.sleep(0.03)
    step += 1
    if asked or step % 10 == 0:
        save()
    if asked:
        sys.exit(75)
save()
open(os.path.join(out, "cores"), "w").write(os.environ.get("SLURM_CPUS_PER_TASK", ""))
open(os.path.join(out, "DONE"), "w").close()
"""


def stand_in(tmp_path: Path) -> str:
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    return str(python)


def test_a_crashed_slurmd_costs_nothing(slurm: MiniSlurm, tmp_path: Path) -> None:
    """The steps outlive it; the run goes on to its end while nobody looks, and is not repeated."""
    log = tmp_path / "log.txt"
    job = slurm.submit("-o", str(log), str(ROOT / "slurm" / "sft.sbatch"), f"out={tmp_path}/run",
                       ASSAY_PYTHON=stand_in(tmp_path))  # fmt: skip
    wait_for("the start", lambda: saved(tmp_path / "run", "sft") > 0)
    node = slurm.job(job)["NodeList"]
    slurm.kill_daemon(node)
    wait_for("the end of the run", lambda: (tmp_path / "run" / "DONE").exists())
    slurm.start_node(node)
    done = slurm.wait(job)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "0"), log.read_text()
    assert saved(tmp_path / "run", "sft") == STEPS and "signal" not in log.read_text()
    wait_for("the node's return", lambda: set(slurm.states()) == {"idle"})


def test_every_stop_ends_in_the_same_path_and_no_step_is_lost(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    runs, python = {"sft": "sft", "rl": "grpo_1node"}, stand_in(tmp_path)
    jobs: dict[str, str] = {}
    for stage, script in runs.items():
        jobs[stage] = slurm.submit(
            "-o", str(tmp_path / f"{stage}.log"), "--cpus-per-task=2",
            str(ROOT / "slurm" / f"{script}.sbatch"), f"out={tmp_path / stage}",
            ASSAY_PYTHON=python,
        )  # fmt: skip

    def next_start(restarts: int) -> None:
        for stage, job in jobs.items():
            wait_for("the next start", lambda job=job: started(slurm, job, restarts))
            before = saved(tmp_path / stage, stage)
            wait_for("progress", lambda s=stage, b=before: saved(tmp_path / s, s) > b)

    next_start(0)
    slurm.run("scancel", "--signal=USR1", "--batch", jobs["sft"])  # the time limit is near
    slurm.run("scontrol", "requeue", jobs["rl"])
    next_start(1)
    preempt(slurm)  # USR1, and TERM only after the grace time
    next_start(2)
    slurm.run("scontrol", "update", "partitionname=main", "gracetime=0")
    try:
        preempt(slurm)  # TERM at once
        next_start(3)
    finally:
        slurm.run("scontrol", "update", "partitionname=main", "gracetime=30")
    for stage, job in jobs.items():
        done, said = slurm.wait(job), (tmp_path / f"{stage}.log").read_text()
        assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "3"), said
        assert saved(tmp_path / stage, stage) == STEPS
        # what a start finds is what the stop before it saved at the signal, not an older checkpoint
        stops = re.findall(r"stopped with exit status \d+; (\S+ step_\d+)", said)
        starts = re.findall(r"start: (\S+ step_\d+) ", said)
        assert len(stops) == 3 and starts == stops, said
        assert len(set(stops)) == 3 and "start: nothing saved" in said
        assert (tmp_path / stage / "cores").read_text() == "2"  # the step has the job's cores
    assert "signal USR1: asking the run to save" in (tmp_path / "sft.log").read_text()
