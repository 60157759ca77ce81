"""`slurm/cdr.sh`: the six jobs of `assay tasks cdr` in shards, on a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from front import command
from mini_slurm import MiniSlurm
from places import ROOT
from small_corpus import write_corpus

SMALL = ("instances.min_keep=2", "instances.min_drop=2", "mining.min_recipe_support=2")


@pytest.mark.slow  # six jobs, one after the other
def test_shards_on_slurm_give_the_bytes_of_one_command(slurm: MiniSlurm, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", 30)
    given = ["--corpus", str(corpus), "--workers", "1", *SMALL]
    done = subprocess.run(
        [str(ROOT / "slurm" / "cdr.sh"), "2", "2", str(tmp_path / "out"), *given],
        env=os.environ | slurm.env | {"ASSAY_DOCTOR": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    jobs = re.findall(r"^(\w+): job (\d+)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in jobs] == ["facts", "library", "traces", "plan", "rows", "merge"]
    logs = tmp_path / "out" / ".jobs"
    state = slurm.wait(jobs[-1][1], seconds=600)["JobState"]
    assert state == "COMPLETED", "\n".join(log.read_text() for log in sorted(logs.glob("*.log")))
    one = tmp_path / "one"
    assert command("tasks")(["cdr", *given, "--out", str(one)]) == 0
    for path in (p for p in one.rglob("*") if p.is_file()):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(one)).read_bytes()
