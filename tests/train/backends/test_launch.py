"""Where ranks of a DeepSpeed run meet, and how many threads each has."""

from __future__ import annotations

import signal
import subprocess

import pytest

from train.backends.deepspeed import first_host, rendezvous, threads_of

LISTS = ("n1", "n[1-4]", "n[03-07,9],login1", "a5,n[1-2]", "r[1-2]n[3,5-6]", "gpu-a100-[007-012]")


def test_the_meeting_point_is_read_without_asking_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a container there is no scontrol."""
    monkeypatch.setenv("PATH", "/nonexistent")
    job = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_ID": "17"}
    job["SLURM_JOB_NODELIST"] = "n[03-04]"
    assert rendezvous(job) == (2, 1, "n03", 20119)
    assert rendezvous(job | {"SLURM_RESTART_COUNT": "1"})[3] == 20120
    firsts = ["n1", "n1", "n03", "a5", "r1n3", "gpu-a100-007"]
    assert [first_host(nodes) for nodes in LISTS] == firsts


def test_ranks_share_the_cores_of_the_job() -> None:
    assert threads_of({"SLURM_CPUS_PER_TASK": "64"}, 8) == 8
    assert threads_of({"SLURM_CPUS_PER_TASK": "1"}, 8) == 1
    assert threads_of({}, 1) >= 1


def test_a_rank_is_told_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    import train.backends.deepspeed as module

    seen: list[str] = []

    class Rank(subprocess.Popen[bytes]):
        def __init__(self, words: list[str], env: dict[str, str]) -> None:
            seen.append(env["OMP_NUM_THREADS"])
            super().__init__(["true"], env=env)

    monkeypatch.setattr(module.subprocess, "Popen", Rank)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # pytest keeps its own
    for asked in ("", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert module.launch(["x"], 2) == 0
    assert seen == ["3", "3", "4", "4"]
