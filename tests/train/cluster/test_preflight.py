"""What a job is checked for, before it is submitted and when it starts; the scripts of chains."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, tables

from train.cluster.preflight import asked, main, mismatches, refuse_job

TABLE = tables("jobs")


def words_of(text: str) -> list[str]:
    for name, words in TABLE["short"].items():
        text = text.replace(name, words)
    return [f"slurm/{w}" if w.endswith(".sbatch") else w for w in text.split()]


@pytest.mark.parametrize(("words", "job", "said"), TABLE["compared"])
def test_a_job_compares_its_nodes_with_its_settings(words: str, job: str, said: str) -> None:
    command, *rest = words_of(words)
    told = {f"SLURM_{name}": value for name, value in (w.split("=") for w in job.split())}
    found = mismatches(asked(command, rest), told, 0)
    assert (found == []) if not said else any(said in sentence for sentence in found)


@pytest.mark.parametrize(("words", "said"), TABLE["refused"])
def test_a_job_that_could_only_fail_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(["--job", *words_of(words)]) == 1
    except SystemExit as ended:  # the command's own parser
        assert ended.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words", TABLE["passed"])
def test_a_job_that_can_run_is_let_through(words: str) -> None:
    refuse_job(words_of(words))


CHAINS = sorted((ROOT / "slurm").glob("*_qwen3_*.sh"))


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAINS, ids=lambda p: p.stem)
def test_every_job_of_a_chain_can_run_and_comes_after_what_it_needs(path: Path) -> None:
    done = subprocess.run(
        ["bash", str(path), "--dry-run", "--partition=a100"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "ASSAY_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    calls = [shlex.split(line) for line in done.stdout.splitlines()]
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
