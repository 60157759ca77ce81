"""The scripts as text: they parse, they pass the linter, Slurm takes them; containers of
slurm/env.sh."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mini_slurm import MiniSlurm
from places import ROOT

from train.backends.deepspeed import first_host

SCRIPTS = sorted((ROOT / "slurm").glob("*.s*"))
JOBS = [p for p in SCRIPTS if p.suffix == ".sbatch"]


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
    for path in JOBS:
        lines = path.read_text(encoding="utf-8").splitlines()
        asked = " ".join(line[8:] for line in lines if line.startswith("#SBATCH"))
        for wanted in [
            "--requeue",
            "--open-mode=append",
            "--signal=B:USR1@",
            "--cpus-per-task=",
            "--mem=",
        ]:
            assert wanted in asked, (path.name, wanted)
        for other in ("--partition", "--account", "--gres", "--time"):
            assert other not in asked, (path.name, other)
        slurm.run("sbatch", "--test-only", "--array=0", str(path), "out=x")


def program(folder: Path, text: str, name: str = "python") -> str:
    """An executable file."""
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return str(folder / name)


def run(slurm: MiniSlurm, tmp_path: Path, script: str, *args: str, **env: str) -> dict[str, str]:
    log = tmp_path / "log.txt"
    job = slurm.script(log, script.removesuffix(".sbatch"), *args, **env)
    return slurm.wait(job) | {"log": log.read_text()}


def test_a_command_that_succeeds_completes(slurm: MiniSlurm, tmp_path: Path) -> None:
    done = run(slurm, tmp_path, "command.sbatch", f"out={tmp_path}", "--", "tasks", "--help")
    assert done["JobState"] == "COMPLETED", done["log"]
    assert "usage: assay tasks" in done["log"] and "nothing saved" in done["log"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--", "tasks", "nonsense"], "2:0", "no builder and no family"),
        (["tasks"], "2:0", "wanted: out=DIR -- COMMAND"),
    ],
)
def test_a_command_that_fails_fails_the_job(
    slurm: MiniSlurm, tmp_path: Path, args: list[str], code: str, said: str
) -> None:
    done = run(slurm, tmp_path, "command.sbatch", f"out={tmp_path}", *args)
    assert (done["JobState"], done["ExitCode"]) == ("FAILED", code)
    assert said in done["log"] and done["Restarts"] == "0"


def test_a_wrong_python_and_open_secrets_are_refused(slurm: MiniSlurm, tmp_path: Path) -> None:
    words = ("command.sbatch", f"out={tmp_path}", "--", "tasks", "--help")
    done = run(slurm, tmp_path, *words, ASSAY_PYTHON="/nowhere")
    assert done["JobState"] == "FAILED" and "set ASSAY_PYTHON in slurm/env.sh" in done["log"]
    secrets = tmp_path / "secrets"
    secrets.write_text("export A=1\n")
    secrets.chmod(0o644)
    done = run(slurm, tmp_path, *words, ASSAY_SECRETS=str(secrets))
    assert done["JobState"] == "FAILED" and "wanted mode 0600" in done["log"]


def test_a_job_gives_up_when_its_starts_save_nothing(slurm: MiniSlurm, tmp_path: Path) -> None:
    """A run that stops by itself (status 75) without progress is requeued, but not for ever."""
    stopper = program(tmp_path, '#!/bin/sh\ncase "$*" in *preflight*) exit 0 ;; esac\nexit 75\n')
    words = ("command.sbatch", f"out={tmp_path}/run", "--", "x")
    done = run(slurm, tmp_path, *words, ASSAY_PYTHON=stopper, ASSAY_MAX_STALLS="2")
    assert (done["JobState"], done["Restarts"]) == ("FAILED", "1"), done["log"]
    assert "2 starts in a row saved nothing" in done["log"]


# Stands in for Python: Ray's tools answer at once, and the run tells its arguments.
RAYLESS = """#!/bin/sh
case "$*" in
  *preflight*) exit 0 ;;
  *"ray_cluster start"*) echo "ray: $*"; touch "$RAY_UP"; exec sleep 60 ;;
  *"ray_cluster address"*) echo 127.0.0.1 ;;
  *"ray_cluster port"*) echo 20100 ;;
  *"ray_cluster wait"*) until [ -e "$RAY_UP" ]; do sleep 0.1; done ;;
  *"ray_cluster watch"*) exec sleep 60 ;;
  *) echo "run: $*" ;;
esac
"""


def test_a_job_without_the_gpus_it_counts_on_is_refused_and_with_them_they_reach_the_step(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    if not slurm.gpus:
        pytest.skip("Slurm's stand-ins for GPUs are device files, which only root can make")
    # the real checks, and then what the step would see
    text = RAYLESS.replace("*preflight*) exit 0", f'*preflight*) exec "{sys.executable}" "$@"')
    text = text.replace('"run: $*"', "step: gpus $CUDA_VISIBLE_DEVICES cores $SLURM_CPUS_PER_TASK")
    python = program(tmp_path, text)
    words = [f"out={tmp_path}/run", "--backend", "verl", "model.path=Qwen/Qwen3-4B"]
    env = {"ASSAY_PYTHON": python, "RAY_UP": str(tmp_path / "up")}
    done = run(slurm, tmp_path, "grpo_1node.sbatch", *words, **env)
    assert (done["JobState"], done["ExitCode"]) == ("FAILED", "2:0")
    assert "the job has 0 GPU(s) on a node; sbatch --gpus-per-node=8" in done["log"]
    assert "the job has 8 cores on a node, and verl asks Ray for 34" in done["log"]
    assert "has 69 GB of memory on a node, and the run needs about 217 GB" in done["log"]
    log, options = tmp_path / "log2.txt", "--gpus-per-node=2 --cpus-per-task=3 --mem=200G"
    words, env = [*words, "cluster.gpus_per_node=2"], {**env, "ASSAY_RAY_CPUS": "64"}
    job = slurm.script(log, "grpo_1node", *words, options=options, **env)
    assert slurm.wait(job)["JobState"] == "COMPLETED", log.read_text()
    assert "step: gpus 0,1 cores 3" in log.read_text()


def test_verl_on_one_node_gets_a_ray_cluster_of_its_own(slurm: MiniSlurm, tmp_path: Path) -> None:
    """By itself it would join one that an older run has noted in /tmp/ray, and count the host's
    cores."""
    for words, ray in (
        (["--backend", "verl"], True),
        (["--backend=verl"], True),
        ([], False),
        (["--backend", "verl", "cluster.ray_address=1.2.3.4:5"], False),
    ):
        log = tmp_path / f"log{len(words)}{ray}.txt"
        env = {"ASSAY_PYTHON": program(tmp_path, RAYLESS), "RAY_UP": str(tmp_path / "up")}
        env["ASSAY_RAY_STORE"] = "100000000"
        words = [*words, f"out={tmp_path}/run"]
        job = slurm.script(log, "grpo_1node", *words, options="--cpus-per-task=2", **env)
        done, said = slurm.wait(job), log.read_text()
        assert done["JobState"] == "COMPLETED", said
        assert ("cluster.ray_address=127.0.0.1:20100" in said) == ray == ("--head" in said), said
        assert not ray or "--num-cpus=2" in said
        assert not Path(f"/tmp/r{job}").exists()


@pytest.mark.parametrize("nodes", ["n1", "n[03-07,9],l1", "a5,n[1-2]", "r[1-2]n[3,5-6]"])
def test_node_lists_are_read_as_slurm_reads_them(slurm: MiniSlurm, nodes: str) -> None:
    first = slurm.run("scontrol", "show", "hostnames", nodes).split()[0]
    assert first == first_host(nodes)


def test_submitted_from_elsewhere_it_says_so(slurm: MiniSlurm, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    words = ["-o", str(log), f"--chdir={tmp_path}", "--export=NONE"]
    job = slurm.submit(*words, str(ROOT / "slurm" / "sft.sbatch"), "out=x", cwd=tmp_path)
    assert slurm.wait(job)["ExitCode"] == "2:0"
    assert "submit from the checkout, or set ASSAY_ROOT" in log.read_text()


def boxed(tmp_path: Path, line: str) -> dict[str, str]:
    """The environment of a job whose site has written `line` into slurm/env.sh."""
    (tmp_path / "site.sh").write_text(line + "\n")
    return {"BASH_ENV": str(tmp_path / "site.sh")}  # read by the batch shell before the script


def test_every_process_runs_in_the_container(slurm: MiniSlurm, tmp_path: Path) -> None:
    """A stand-in for `apptainer exec`: Python has another name inside than outside."""
    text = f'#!/bin/sh\necho "boxed: $*" >&2\nshift\nexec "{sys.executable}" "$@"\n'
    box = program(tmp_path, text, "box")
    words = ("command.sbatch", f"out={tmp_path}/run", "--", "tasks", "--help")
    env = boxed(tmp_path, f"ASSAY_RUN=({box})")
    done = run(slurm, tmp_path, *words, **env, ASSAY_PYTHON="/inside/python")
    assert done["JobState"] == "COMPLETED", done["log"]
    assert "boxed: /inside/python -m train.cluster.preflight" in done["log"]
    assert "boxed: /inside/python -m assay tasks --help" in done["log"]


def test_a_container_of_srun_holds_what_runs_before_the_step_too(
    slurm: MiniSlurm, tmp_path: Path
) -> None:
    """A stand-in for pyxis, whose containers exist in steps alone: a variable only steps have."""
    python = program(tmp_path, '#!/bin/sh\necho "inside ${BOXED:-no}: $*"\n')
    env = boxed(tmp_path, "ASSAY_SRUN=(--export=ALL,BOXED=yes)") | {"ASSAY_PYTHON": python}
    done = run(slurm, tmp_path, "command.sbatch", f"out={tmp_path}/run", "--", "x", **env)
    assert done["JobState"] == "COMPLETED", done["log"]
    assert "inside no" not in done["log"] and done["log"].count("inside yes: -m") == 2


# --- the container lines of slurm/env.sh ---------------------------------------------------------


APPTAINER = """#!/bin/bash
shift  # exec
keep=1
while [[ "$1" == -* ]]; do
  case "$1" in
    --containall|-C|--cleanenv|-e) keep=0; shift ;;
    --pid|-p|--ipc|-i) echo "separate processes" >&2; exit 9 ;;
    -B|--bind|--pwd) [ "$1" = --pwd ] && at=$2; shift 2 ;;
    *) shift ;;
  esac
done
shift  # the image
cd "${at:-$PWD}" || exit 8
[ "$keep" = 1 ] && exec "$@"
exec env -i PATH="$PATH" "$@"
"""
SRUN = """#!/bin/bash
cd /
while [[ "$1" == --* ]]; do
  case "$1" in --container-workdir=*) cd "${1#*=}" ;; esac
  shift
done
exec "$@"
"""


def shown(name: str) -> str:
    """The assignment of `name` that the comments of slurm/env.sh show, as a line of bash."""
    text = (ROOT / "slurm" / "env.sh").read_text("utf-8")
    found = re.search(rf"^#   ({name}=\([^)]*\))", text, re.MULTILINE)
    assert found is not None
    return re.sub(r"\n#\s*", " ", found.group(1))


@pytest.mark.parametrize(
    ("name", "start"),
    [("ASSAY_RUN", '"${ASSAY_RUN[@]}"'), ("ASSAY_SRUN", 'srun "${ASSAY_SRUN[@]}"')],
)
def test_a_process_keeps_its_environment_and_its_folder(
    tmp_path: Path, name: str, start: str
) -> None:
    bin_folder, root = tmp_path / "bin", tmp_path / "checkout"
    bin_folder.mkdir()
    root.mkdir()
    for program, text in (("apptainer", APPTAINER), ("srun", SRUN)):
        (bin_folder / program).write_text(text)
        (bin_folder / program).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", f"{shown(name)}\n{start} bash -c 'echo \"$SLURM_JOB_ID in $PWD\"'"],
        env={
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "ASSAY_ROOT": str(root),
            "ASSAY_SCRATCH": str(tmp_path),
            "SLURM_JOB_ID": "17",
        },
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"17 in {root}"
