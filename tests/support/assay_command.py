"""Running `assay` as a user does, in a folder of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from places import ROOT

import assay as front
from assay.family import VARIABLE


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`assay WORDS` in `folder`, one thread, whatever it says and returns."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    env.pop(VARIABLE, None)  # families that another test has added in this process
    words = (sys.executable, "-m", "assay", *words)
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)


def assay(folder: Path, *words: str, status: int = 0) -> str:
    """What `assay WORDS` printed; fails the test when the exit status is another."""
    done = run(folder, *words)
    assert done.returncode == status, f"assay {' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def here(folder: Path, *words: str, status: int = 0) -> str:
    """The same in this process, where what the command imports is there already. Families that it
    adds stay: ask for `no_family_of_another_test`."""
    said, wrong = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(said, "utf-8", newline="")  # some write to its buffer
    with chdir(folder), redirect_stdout(out), redirect_stderr(wrong):
        found = front.main(list(words))
    out.flush()
    printed = said.getvalue().decode()
    assert found == status, f"assay {' '.join(words)}\n{printed}\n{wrong.getvalue()}"
    return printed


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
