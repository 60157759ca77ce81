"""The job scripts: they parse, and Slurm takes them; what they refuse; containers and GPUs; and
what a script itself does when its job is stopped. Python is a stand-in here.
That real training goes on with the same bits is tested in test_interruptions.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mini_slurm import MiniSlurm, wait_for
from places import ROOT

from train.backends.deepspeed import first_host

SCRIPTS = sorted((ROOT / "slurm").glob("*.s*"))
CHECKED = '#!/bin/sh\ncase "$*" in *preflight*) exit 0 ;; esac\n'  # a Python whose checks pass


def program(folder: Path, text: str, name: str = "python") -> str:
    """An executable file."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return str(folder / name)


def run(slurm: MiniSlurm, tmp_path: Path, script: str, *args: str, **env: str) -> dict[str, str]:
    """How a job ended, and its `log`."""
    log = tmp_path / "log.txt"
    job = slurm.script(log, script, f"out={tmp_path}/run", *args, **env)
    return slurm.wait(job) | {"log": log.read_text()}


def test_shellcheck_finds_nothing() -> None:
    if shutil.which("shellcheck") is None:
        for path in SCRIPTS:
            subprocess.run(["bash", "-n", str(path)], check=True)
        pytest.skip("shellcheck is not installed: bash alone has read the scripts")
    words = ["shellcheck", "-x", "-P", "slurm", *map(str, SCRIPTS)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_job_can_be_requeued_keeps_its_log_and_leaves_the_site_its_own(
    slurm: MiniSlurm,
) -> None:
    wanted = "--requeue --open-mode=append --signal=B:USR1@ --cpus-per-task= --mem="
    for path in (p for p in SCRIPTS if p.suffix == ".sbatch"):
        lines = path.read_text(encoding="utf-8").splitlines()
        asked = " ".join(line[8:] for line in lines if line.startswith("#SBATCH"))
        assert [w for w in wanted.split() if w not in asked] == [], path.name
        assert not [w for w in ("partition", "account", "gres", "time") if f"--{w}" in asked]
        slurm.run("sbatch", "--test-only", "--array=0", str(path), "out=x")


HELP = ("--", "tasks", "--help")


@pytest.mark.parametrize(
    ("args", "env", "code", "said"),
    [
        (HELP, {}, "0:0", "usage: assay tasks"),
        (("--", "tasks", "nonsense"), {}, "2:0", "no builder and no family"),
        (("tasks",), {}, "2:0", "wanted: out=DIR -- COMMAND"),
        (HELP, {"ASSAY_PYTHON": "/nowhere"}, "2:0", "set ASSAY_PYTHON in slurm/env.sh"),
        (HELP, {"ASSAY_SECRETS": str(ROOT / "README.md")}, "2:0", "wanted mode 0600"),
    ],
)
def test_a_job_ends_as_its_command_does(
    slurm: MiniSlurm, tmp_path: Path, args: list[str], env: dict[str, str], code: str, said: str
) -> None:
    done = run(slurm, tmp_path, "command", *args, **env)
    assert (done["ExitCode"], done["Restarts"]) == (code, "0") and said in done["log"]
    assert done["JobState"] == ("COMPLETED" if code == "0:0" else "FAILED")


def test_submitted_from_elsewhere_it_says_so(slurm: MiniSlurm, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    words = ["-o", str(log), f"--chdir={tmp_path}", "--export=NONE"]
    job = slurm.submit(*words, str(ROOT / "slurm" / "sft.sbatch"), "out=x", cwd=tmp_path)
    assert slurm.wait(job)["ExitCode"] == "2:0"
    assert "submit from the checkout, or set ASSAY_ROOT" in log.read_text()


@pytest.mark.parametrize("nodes", ["n1", "n[03-07,9],l1", "a5,n[1-2]", "r[1-2]n[3,5-6]"])
def test_node_lists_are_read_as_slurm_reads_them(slurm: MiniSlurm, nodes: str) -> None:
    first = slurm.run("scontrol", "show", "hostnames", nodes).split()[0]
    assert first == first_host(nodes)


# Stands in for Python: Ray's tools answer at once, and the run tells its arguments.
RAYLESS = """#!/bin/sh
case "$*" in
  *preflight*) exit 0 ;;
  *"ray_cluster start"*) echo "ray: $*"; touch "$RAY_UP"; exec sleep 60 ;;
  *"ray_cluster address"*) echo 127.0.0.1 ;;
  *"ray_cluster port"*) echo 20100 ;;
  *"ray_cluster wait"*) until [ -e "$RAY_UP" ]; do sleep 0.1; done ;;
  *"ray_cluster watch"*) exec sleep 60 ;;
  *) echo "run: $* gpus $CUDA_VISIBLE_DEVICES cores $SLURM_CPUS_PER_TASK" ;;
esac
"""


def test_a_job_without_the_gpus_it_counts_on_is_refused_and_with_them_they_reach_the_step(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    if not slurm.gpus:
        pytest.skip("Slurm's stand-ins for GPUs are device files, which only root can make")
    # the real checks, and then what the step would see
    text = RAYLESS.replace("*preflight*) exit 0", f'*preflight*) exec "{sys.executable}" "$@"')
    env = {"ASSAY_PYTHON": program(tmp_path, text), "RAY_UP": str(tmp_path / "up")}
    words = ["--backend", "verl", "model.path=Qwen/Qwen3-4B"]
    done = run(slurm, tmp_path, "grpo_1node", *words, **env)
    assert (done["JobState"], done["ExitCode"]) == ("FAILED", "2:0")
    assert "the job has 0 GPU(s) on a node; sbatch --gpus-per-node=8" in done["log"]
    assert "the job has 8 cores on a node, and verl asks Ray for 34" in done["log"]
    assert "has 69 GB of memory on a node, and the run needs about 217 GB" in done["log"]
    options = "--gpus-per-node=2 --cpus-per-task=3 --mem=200G"
    words, env = [*words, f"out={tmp_path}/run"], {**env, "ASSAY_RAY_CPUS": "64"}
    where = (tmp_path / "log2.txt", "grpo_1node", *words, "cluster.gpus_per_node=2")
    done = slurm.wait(slurm.script(*where, options=options, **env))
    assert done["JobState"] == "COMPLETED"
    assert "gpus 0,1 cores 3" in (tmp_path / "log2.txt").read_text()


@pytest.mark.parametrize(
    ("words", "ray"),
    [
        (["--backend=verl"], True),
        ([], False),
        (["--backend", "verl", "cluster.ray_address=1.2.3.4:5"], False),
    ],
)
def test_verl_on_one_node_gets_a_ray_cluster_of_its_own(
    slurm: MiniSlurm, tmp_path: Path, words: list[str], ray: bool
) -> None:
    """By itself it would join one that an older run has noted in /tmp/ray, and count the host's
    cores."""
    env = {"ASSAY_PYTHON": program(tmp_path, RAYLESS), "RAY_UP": str(tmp_path / "up")}
    done = run(slurm, tmp_path, "grpo_1node", *words, ASSAY_RAY_STORE="100000000", **env)
    said = done["log"]
    assert done["JobState"] == "COMPLETED", said
    assert ("cluster.ray_address=127.0.0.1:20100" in said) == ray == ("--head" in said), said
    assert not ray or "--num-cpus=8" in said
    assert not Path(f"/tmp/r{done['JobId']}").exists()


@pytest.mark.parametrize("kind", ["apptainer", "pyxis"])
def test_every_process_runs_in_the_container(slurm: MiniSlurm, tmp_path: Path, kind: str) -> None:
    """Stand-ins: Python has another name inside than outside; a container of srun exists in steps
    alone, which have a variable."""
    text = f'#!/bin/sh\necho "in ${{BOXED:-a box}}: $*"\n[ "$1" != in ] || exec "{sys.executable}"'
    box = program(tmp_path, text, "box")
    lines = {"apptainer": f"ASSAY_RUN=({box})", "pyxis": "ASSAY_SRUN=(--export=ALL,BOXED=yes)"}
    (tmp_path / "site.sh").write_text(lines[kind] + "\n")
    python = "/inside/python" if kind == "apptainer" else box
    env = {"BASH_ENV": str(tmp_path / "site.sh"), "ASSAY_PYTHON": python}  # read before the script
    done = run(slurm, tmp_path, "command", "--", "x", **env)
    assert done["JobState"] == "COMPLETED", done["log"]
    inside = "in a box: /inside/python -m" if kind == "apptainer" else "in yes: -m"
    assert f"{inside} train.cluster.preflight" in done["log"]
    assert f"{inside} assay x" in done["log"]


# --- stops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "restarts", "said"),
    [
        ({"ASSAY_MAX_STALLS": "2"}, "1", "2 starts in a row saved nothing"),
        ({"NO_REQUEUE": "1"}, "0", "scontrol does not requeue this job"),
    ],
)
def test_a_run_that_stops_by_itself_is_requeued_but_not_for_ever(
    slurm: MiniSlurm, tmp_path: Path, env: dict[str, str], restarts: str, said: str
) -> None:
    refusing = '#!/bin/sh\n[ "$1$NO_REQUEUE" != requeue1 ] || exit 1\n'
    program(tmp_path, f'{refusing}exec {shutil.which("scontrol")} "$@"\n', "scontrol")
    env = {**env, "ASSAY_PYTHON": program(tmp_path, f"{CHECKED}exit 75\n")}
    done = run(slurm, tmp_path, "sft", **env, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done["JobState"], done["Restarts"]) == ("FAILED", restarts), done["log"]
    assert said in done["log"]


# One step every 30 ms, and one that takes ten minutes at the first start; as `assay grpo` does.
STAND_IN = f"""#!{sys.executable} -S
import os, signal, sys, time
if "train.cluster.preflight" in sys.argv:
    sys.exit(0)
out = next(w[4:] for w in sys.argv if w.startswith("out="))
latest = os.path.join(out, "checkpoints", "rl", "latest")
os.makedirs(os.path.dirname(latest), exist_ok=True)
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
step = int(open(latest).read()[5:]) if os.path.exists(latest) else 0
while step < 100:
    time.sleep(600 if step == 15 and os.environ.get("SLURM_RESTART_COUNT", "0") == "0" else 0.03)
    step += 1
    if asked or step % 10 == 0:
        open(latest, "w").write(f"step_{{step:06d}}")
    if asked:
        sys.exit(75)
"""


@pytest.mark.slow
def test_a_step_longer_than_the_lead_is_repeated_and_the_job_goes_on(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    """A real time limit of a minute. The step that is being done when the signal comes would take
    longer than what is left. A later start may meet the limit too, on a slow machine."""
    log, limit = tmp_path / "log.txt", "--time=1 --signal=B:USR1@45"
    words = (log, "grpo_1node", f"out={tmp_path}/run")
    job = slurm.script(*words, options=limit, ASSAY_PYTHON=program(tmp_path, STAND_IN))
    done, said = slurm.wait(job, seconds=300), log.read_text()
    assert done["JobState"] == "COMPLETED" and int(done["Restarts"]) >= 1, said
    assert (tmp_path / "run" / "checkpoints" / "rl" / "latest").read_text() == "step_000100"
    assert "the step has not returned and the time limit is" in said
    assert "requeued after signal USR1, without waiting for the step" in said
    assert "(rl step_000010 ) will be repeated" in said and "start: rl step_000010" in said


# A run that says it has begun, and waits. With END=deaf it dies of the signal, as a run does while
# it imports. Slurm signals one process after the other. When it kills the sleep first, the script
# must not end with the sleep's exit status.
BEGINS = f"""{CHECKED}[ "$END" = deaf ] || trap "exit $END" USR1
touch "$HERE/begun$SLURM_ARRAY_TASK_ID.${{SLURM_RESTART_COUNT:-0}}"
[ "${{SLURM_RESTART_COUNT:-0}}" = 0 ] || exit 0
until [ -e "$HERE/go" ]; do sleep 0.1 || true; done
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", ["sft", "command"])
def test_a_signal_before_the_run_listens_is_no_stall_of_a_run_that_would(
    slurm: MiniSlurm, tmp_path: Path, script: str
) -> None:
    env = {"ASSAY_PYTHON": program(tmp_path, BEGINS), "END": "deaf", "HERE": str(tmp_path)}
    words = (tmp_path / "log.txt", script, f"out={tmp_path}/run", "--", f"out={tmp_path}/run")
    job = slurm.script(*words, ASSAY_MAX_STALLS="1", **env)
    wait_for("the start", lambda: (tmp_path / "begun.0").exists())
    slurm.signal(job)
    done, said = slurm.wait(job), (tmp_path / "log.txt").read_text()
    if script == "sft":
        assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "1"), said
        assert "requeued after signal USR1 while the run was still starting" in said
    else:  # it never saves when it is asked to
        assert done["JobState"] == "FAILED" and "1 starts in a row saved nothing" in said


@pytest.mark.parametrize(("end", "restarts"), [("75", ["0", "1"]), ("0", ["0", "0"])])
def test_a_signal_requeues_one_task_of_an_array_alone_unless_it_ends_well(
    slurm: MiniSlurm, tmp_path: Path, end: str, restarts: list[str]
) -> None:
    """The last task of an array has the array's own number, which means all of them to scontrol."""
    env = {"ASSAY_PYTHON": program(tmp_path, BEGINS), "END": end, "HERE": str(tmp_path)}
    where = (tmp_path / "%a.txt", "data_array", f"out={tmp_path}/run")
    job = slurm.script(*where, options="--array=0-1", **env)
    wait_for("both starts", lambda: all((tmp_path / f"begun{i}.0").exists() for i in (0, 1)))
    slurm.signal(f"{job}_1")
    if end == "75":
        wait_for("its next start", lambda: (tmp_path / "begun1.1").exists(), 120)
    (tmp_path / "go").touch()
    found = [slurm.wait(f"{job}_{i}")["Restarts"] for i in (0, 1)]
    assert found == restarts, (tmp_path / "1.txt").read_text()
