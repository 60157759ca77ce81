"""The scripts' own part in every stop, quickly: a run that counts stands in for the training.

What real training does with it, to the bit, is in test_interruptions.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from mini_slurm import MiniSlurm, wait_for
from slurm_runs import saved, started

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
    if step == 15 and os.environ.get("LONG_STEP", "0") != "0":
        if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
            time.sleep(float(os.environ["LONG_STEP"]))
    step += 1
    if asked or step % 10 == 0:
        save()
    if asked:
        sys.exit(75)
save()
open(os.path.join(out, "cores"), "w").write(os.environ.get("SLURM_CPUS_PER_TASK", ""))
open(os.path.join(out, "DONE"), "w").close()
"""


def program(folder: Path, text: str, name: str = "python") -> str:
    """An executable file."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return str(folder / name)


def stand_in(tmp_path: Path) -> str:
    return program(tmp_path, STAND_IN)


@pytest.mark.slow  # a daemon that is waited for
def test_a_crashed_slurmd_costs_nothing(slurm: MiniSlurm, tmp_path: Path) -> None:
    """The steps outlive it; the run goes on to its end while nobody looks, and is not repeated."""
    log = tmp_path / "log.txt"
    job = slurm.script(log, "sft", f"out={tmp_path}/run", ASSAY_PYTHON=stand_in(tmp_path))
    wait_for("the start", lambda: saved(tmp_path / "run", "sft") > 0)
    node = slurm.job(job)["NodeList"]
    slurm.kill_daemon(node)
    wait_for("the end of the run", lambda: (tmp_path / "run" / "DONE").exists())
    slurm.start_node(node)
    done = slurm.wait(job)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "0"), log.read_text()
    assert saved(tmp_path / "run", "sft") == STEPS and "signal" not in log.read_text()
    wait_for("the node's return", lambda: set(slurm.states()) == {"idle"})


@pytest.mark.slow
def test_a_step_longer_than_the_lead_is_repeated_and_the_job_goes_on(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    """A real time limit of a minute. The step that is being done when the signal comes would take
    longer than what is left. A later start may meet the limit too, on a slow machine."""
    log = tmp_path / "log.txt"
    env = {"ASSAY_PYTHON": stand_in(tmp_path), "LONG_STEP": "600"}
    limit = "--time=1 --signal=B:USR1@45"
    job = slurm.script(log, "grpo_1node", f"out={tmp_path}/run", options=limit, **env)
    done, said = slurm.wait(job, seconds=300), log.read_text()
    assert done["JobState"] == "COMPLETED" and int(done["Restarts"]) >= 1, said
    assert saved(tmp_path / "run", "rl") == STEPS
    assert "the step has not returned and the time limit is" in said
    assert "requeued after signal USR1, without waiting for the step" in said
    assert "(rl step_000010 ) will be repeated" in said and "start: rl step_000010" in said


# Sleeps until it is killed, as a run does that is still importing; from start 2 on it ends well.
DEAF = """#!/bin/sh
case "$*" in *preflight*) exit 0 ;; esac
for word; do case $word in out=*) out=${word#out=} ;; esac; done
[ "${SLURM_RESTART_COUNT:-0}" -lt 2 ] || { touch "$out/DONE"; exit 0; }
touch "$out/begun${SLURM_RESTART_COUNT:-0}"
exec sleep 300
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", ["sft", "command"])
def test_a_signal_before_the_run_listens_is_no_stall_of_a_run_that_would(
    slurm: MiniSlurm, tmp_path: Path, script: str
) -> None:
    log, out = tmp_path / "log.txt", tmp_path / "run"
    words = [f"out={out}", *(["--", "x", f"out={out}"] if script == "command" else [])]
    env = {"ASSAY_PYTHON": program(tmp_path, DEAF), "ASSAY_MAX_STALLS": "1"}
    job = slurm.script(log, script, *words, **env)
    wait_for("the start", lambda: (out / "begun0").exists())
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    if script == "command":  # it never saves when it is asked to
        assert slurm.wait(job)["JobState"] == "FAILED"
        assert "1 starts in a row saved nothing" in log.read_text()
        return
    wait_for("the next start", lambda: (out / "begun1").exists())
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    done, said = slurm.wait(job), log.read_text()
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "2"), said
    assert said.count("requeued after signal USR1 while the run was still starting") == 2


# Says that it begins, and does at USR1 what it is told to.
BEGINS = """#!/bin/sh
case "$*" in *preflight*) exit 0 ;; esac
trap "exit {code}" USR1
touch "{folder}/begun$SLURM_ARRAY_TASK_ID"
until [ -e "{folder}/go" ]; do sleep 0.1; done
"""


def test_one_task_of_an_array_requeues_itself_alone(slurm: MiniSlurm, tmp_path: Path) -> None:
    """The last task of an array has the array's own number, which means all of them to scontrol."""
    python = program(tmp_path, BEGINS.format(code=75, folder=tmp_path))
    where = (tmp_path / "%a.txt", "data_array", f"out={tmp_path}/run")
    job = slurm.script(*where, options="--array=0-1", ASSAY_PYTHON=python)
    wait_for("both starts", lambda: all((tmp_path / f"begun{i}").exists() for i in (0, 1)))
    slurm.run("scancel", "--signal=USR1", "--batch", f"{job}_1")
    wait_for("its next start", lambda: started(slurm, f"{job}_1", 1))
    (tmp_path / "go").touch()
    restarts = [slurm.wait(f"{job}_{i}")["Restarts"] for i in (0, 1)]
    assert restarts == ["0", "1"], (tmp_path / "1.txt").read_text()


def test_a_command_that_ends_well_after_the_signal_is_not_done_again(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    log, python = tmp_path / "log.txt", program(tmp_path, BEGINS.format(code=0, folder=tmp_path))
    job = slurm.script(log, "command", f"out={tmp_path}/run", "--", "x", ASSAY_PYTHON=python)
    wait_for("the start", lambda: (tmp_path / "begun").exists())
    slurm.run("scancel", "--signal=USR1", "--batch", job)
    done = slurm.wait(job)
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "0"), log.read_text()


def test_a_requeue_that_fails_is_no_success(slurm: MiniSlurm, tmp_path: Path) -> None:
    real, log = shutil.which("scontrol"), tmp_path / "log.txt"
    refusing = f'#!/bin/sh\n[ "$1" != requeue ] || exit 1\nexec {real} "$@"\n'
    program(tmp_path, refusing, "scontrol")
    python = program(tmp_path, '#!/bin/sh\ncase "$*" in *preflight*) exit 0 ;; esac\nexit 75\n')
    env = {"ASSAY_PYTHON": python, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    job = slurm.script(log, "sft", f"out={tmp_path}/run", **env)
    assert slurm.wait(job)["JobState"] == "FAILED"
    assert "scontrol does not requeue this job" in log.read_text()
