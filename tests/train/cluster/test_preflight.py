"""What a job is checked for, before it is submitted and when it starts; the scripts of chains."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from configs.loader import ConfigError
from train.cluster.preflight import asked, main, mismatches, refuse_job

BIG = "sft --backend deepspeed --config=configs/sft_qwen3_32b_zero3.yaml"
# a script's command and words | what Slurm tells the job, less SLURM_ | what is said, or nothing
JOBS = """
sft | |
sft | NNODES=1 NTASKS=8 | has 8 tasks on 1 node(s)
grpo | NNODES=2 | uses one device; sbatch --nodes=1, or add --backend verl
grpo --backend=verl | | the job has 0 GPU(s) on a node; sbatch --gpus-per-node=8
grpo --backend=verl | GPUS_ON_NODE=8 CPUS_ON_NODE=1 | 1 cores on a node, and verl asks Ray for 34
grpo --backend=verl | GPUS_ON_NODE=8 CPUS_ON_NODE=34 |
grpo --backend=verl cluster.device=cpu | CPUS_ON_NODE=1 |
sft --backend deepspeed cluster.nodes=2 | GPUS_ON_NODE=8 | cluster.nodes=2 and the job has 1; sbatch
grpo_multinode | NNODES=2 GPUS_ON_NODE=8 |
grpo_multinode cluster.nodes=4 | NNODES=2 GPUS_ON_NODE=8 | cluster.nodes=4 and the job has 2
BIG cluster.nodes=2 | NNODES=2 GPUS_ON_NODE=8 CPUS_ON_NODE=1 | 1 cores on a node, and DeepSpeed \
starts 8 processes on it; sbatch --cpus-per-task=64
grpo_multinode cluster.nodes=2 cluster.gpus_per_node=3 cluster.tensor_parallel=2 | \
  NNODES=1 GPUS_ON_NODE=3 | cluster.nodes=2 and the job has 1
BIG | NNODES=2 GPUS_ON_NODE=8 MEM_PER_NODE=102400 | 107 GB of memory on a node, and the run needs
BIG | NNODES=2 GPUS_ON_NODE=8 CPUS_ON_NODE=64 MEM_PER_CPU=8000 |
grpo --backend=verl model.path=Qwen/Qwen3-4B | GPUS_ON_NODE=8 MEM_PER_NODE=65536 | about 217 GB
"""


def test_a_job_compares_its_nodes_with_its_settings() -> None:
    for line in JOBS.strip().splitlines():
        words, job, said = (cell.strip() for cell in line.split("|"))
        command, *words = words.replace("BIG", BIG).split()
        told = {f"SLURM_{name}": value for name, value in (w.split("=") for w in job.split())}
        found = mismatches(asked(command, words), told, 0)
        assert (found == []) if not said else any(said in sentence for sentence in found), line


NODE = ["--gpus-per-node=8", "--cpus-per-task=64", "--mem=250G"]
# options of sbatch, a script (in slurm/) and its words | what is said
REFUSED = """
sftt.sbatch out=x | no such script
command.sbatch out=x -- rolout | 'rolout'; did you mean 'rollout'?
command.sbatch out=x -- compare a b --outt | --outt
command.sbatch out=x -- select --rolouts x --rollouts=x --strategy=fv --out=y | mean '--rollouts'?
data_array.sbatch out=x -- execute a b | --input, --shards
data_array.sbatch out=x --input i.jsonl --shards 2 -- execute {in} x | no {out}
serve_eval.sbatch out=x --parts 2 -- --tasks T | no --model among the words
serve_eval.sbatch out=x --parts 2 -- --model=m --tasks=T --out=x | --out=x: the job itself sets it
serve_eval.sbatch out=x --parts 2 -- --model m --tasks T --max-lenght=3 | mean 'tools.max_length'?
sft.sbatch sft.epoch=2 | did you mean
sft.sbatch --backend verl | invalid choice: 'verl'
--nodes=2 sft.sbatch | the run uses one device; sbatch --nodes=1
--nodes=2 NODE grpo_multinode.sbatch --config=configs/dare_qwen3_4b_4nodes.yaml | nodes=4 and
NODE --cpus-per-task=16 grpo_1node.sbatch --backend verl | 16 cores on a node, and verl
--gpus-per-node=8 --cpus-per-task=64 grpo_1node.sbatch --backend=verl model.path=Qwen/Qwen3-4B | 69
--exclusive --gpus-per-node=a100:8 grpo_1node.sbatch --backend=verl | the job has 8 cores on a node
--gpus-per-node=8 --cpus-per-task=64 --mem=0 sft.sbatch --backend deepspeed \
  model.path=Qwen/Qwen3-32B sft.max_length=16384 cluster.zero_stage=2 | needs at least
"""


def test_a_job_that_could_only_fail_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for line in REFUSED.strip().splitlines():
        words, _, said = line.partition("|")
        full = [f"slurm/{w}" if w.endswith(".sbatch") else w for w in words.split()]
        full = [part for w in full for part in (NODE if w == "NODE" else [w])]
        try:
            assert main(["--job", *full]) == 1, line
        except SystemExit as ended:  # the command's own parser
            assert ended.code == 2, line
        assert said.strip() in capsys.readouterr().err, line


def test_jobs_that_can_run_are_let_through() -> None:
    refuse_job([*NODE, "slurm/grpo_1node.sbatch", "--backend=verl", "model.path=not/yet"])
    refuse_job(["--nodes=2-4", "slurm/grpo_multinode.sbatch", "model.path=not/yet"])
    refuse_job(["slurm/command.sbatch", "out=x", "--", "tasks", "cdr", "--out=x", "--shard={task}"])
    with pytest.raises(ConfigError, match="no script"):
        refuse_job(["--nodes=2"])


CHAINS = sorted((ROOT / "slurm").glob("*_qwen3_*.sh"))


def dry_run(path: Path, *more: str) -> list[list[str]]:
    """The calls of sbatch."""
    done = subprocess.run(
        ["bash", str(path), "--dry-run", *more],
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "ASSAY_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAINS, ids=lambda p: p.stem)
def test_every_job_of_a_chain_can_run_and_comes_after_what_it_needs(path: Path) -> None:
    calls = dry_run(path, "--partition=a100")
    served = [call for call in calls if "slurm/serve_eval.sbatch" in call]
    gathers = [call for call in calls if "gather" in call]
    assert len(served) == len(gathers) > 0
    made: set[str] = set()
    for call in calls:
        assert "--partition=a100" in call and any(word.startswith("--time=") for word in call)
        waits = [word for word in call if word.startswith("--dependency=afterok:")]
        assert {name for word in waits for name in re.findall("<(.*?)>", word)} <= made
        assert bool(waits) == ("--kill-on-invalid-dep=yes" in call)
        name = next(word for word in call if word.startswith("--job-name="))
        made.add(name.partition("-")[2].removeprefix("-job-name=").partition("-")[2])
    assert [c for c in gathers if any("gpus-per-node" in word for word in c)] == []


def test_a_chain_with_a_wrong_word_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "bad.sh"
    chain = (
        "set -e; OUT=x; . slurm/chain.sh; job a '' slurm/command.sbatch out=x -- compare a --outt"
    )
    script.write_text(chain + "\n")
    for words, said in (
        ([], "unrecognized arguments: --outt"),
        (["x"], "wanted --dry-run or options"),
    ):
        env = {"PATH": "/usr/bin:/bin", "ASSAY_PYTHON": sys.executable}
        done = subprocess.run(
            ["bash", str(script), *words], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0 and said in done.stderr
    assert not Path("x").exists()
