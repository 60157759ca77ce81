"""The doctor's report, and what it says of attacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import assay
from train.doctor import cli, machine


def test_the_doctor_reports_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert assay.main(["doctor"]) == 0
    out = capsys.readouterr().out
    topics = {line.split()[0] for line in out.splitlines()}
    assert topics == {
        "python",
        "package",
        "cpu",
        "memory",
        "kernels",
        "gpu",
        "disk",
        "slurm",
        "optional",
        "sandbox",
        *("driver", "cuda", "nvcc", "glibc", "flash-attn", "nccl"),
        *("shm", "ports", "cores", "scratch", "userns", "landlock"),
    }
    assert sys.executable in out and "torch 2." in out and "GB available" in out


def test_a_broken_module_is_not_taken_for_an_absent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "assay_broken.py").write_text("import assay_no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="assay_no_such_module"):
        machine.module("assay_broken")
    assert machine.module("assay_not_there.at_all") is None


def test_attack_says_what_held_and_what_did_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rollouts.sandbox import canaries

    held = canaries.Outcome("read gold", True, "", "confined")
    through = canaries.Outcome("stat gold", False, "exit 0", "confined")
    monkeypatch.setattr(cli, "report", list)
    for found, status in (([held, through], 1), ([held], 0)):
        monkeypatch.setattr(canaries, "run_all", lambda level, found=found: found)
        assert cli.main(["--attack", "--level", "confined"]) == status
        said = capsys.readouterr().out
        assert f"level confined: 1 of {len(found)} stopped" in said
        assert ("open: stat gold: exit 0" in said) == bool(status)


def test_a_system_that_is_not_linux_gets_a_report_too(tmp_path: Path) -> None:
    """As on a Mac: no affinity of cores, another processor, no C library of GNU."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, platform\n"
        "if hasattr(os, 'sched_getaffinity'):\n    del os.sched_getaffinity\n"
        "platform.machine = lambda: 'arm64'\nplatform.libc_ver = lambda *a, **k: ('', '')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "assay", "doctor"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "glibc      none" in done.stdout and "sandbox    level: " in done.stdout
