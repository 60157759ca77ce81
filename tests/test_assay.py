"""The front door: every command's help is cheap and complete, errors map to exit statuses."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

import assay
from assay import console
from assay.task import TaskError
from configs.loader import ConfigError
from data_gen.cli import BUILDERS
from rollouts.sandbox.model import SandboxError

COMMANDS = [*assay.COMMANDS, *(f"tasks {name}" for name in BUILDERS)]
HELP = """
import contextlib, sys, assay
heavy = {"torch", "transformers", "pandas", "sklearn", "scipy", "safetensors", "ray", "verl"}
assert assay.main(["--help"]) == 0 and not {"torch", "numpy", "yaml"} & {*sys.modules}
for words in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        assert assay.main([*words.split(), "--help"]) == 0, words
    assert not heavy & {*sys.modules}, (words, heavy & {*sys.modules})
"""


def test_help_imports_nothing_heavy() -> None:
    words = [sys.executable, "-c", HELP, *COMMANDS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = ("COMMAND", *COMMANDS)
    assert [name for name in names if f"usage: assay {name}" not in done.stdout] == []


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (TaskError("row 3 is bad"), 2, "assay x: row 3 is bad\n"),
        (ConfigError("seed=x"), 2, "assay x: seed=x\n"),
        (FileNotFoundError(2, "No such file", "a.jsonl"), 2, "assay x: a.jsonl: No such file\n"),
        (OSError(28, "No space left", "b"), 1, "assay x: b: No space left\n"),
        (MemoryError(), 1, "assay x: out of memory; "),
        (OutOfMemoryError("CUDA"), 1, "assay x: out of GPU memory; "),
        (SandboxError("no namespaces"), 1, "assay x: no namespaces\n"),
        (console.SavedAndStopped("saved step 3"), 75, "assay x: saved step 3\n"),
        (KeyboardInterrupt(), 130, "assay x: interrupted; run the same command again"),
        (BrokenPipeError(), 141, ""),
        (ImportError("No numpy. Please see below\nmore"), 1, "assay x: No numpy (often for "),
        (ModuleNotFoundError("No module named 'x'"), None, ""),
        (ValueError("a bug"), None, ""),
    ],
)
def test_errors_map_to_exit_statuses(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int | None, said: str
) -> None:
    assert console.status_of(error, "assay x") == status
    told = capsys.readouterr().err
    assert told.startswith(said) and (told == "") == (said == "")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "family": "x"}\n' * 20000)
    python, asked, err = (shlex.quote(str(p)) for p in (sys.executable, rows, tmp_path / "err"))
    words = f"{python} -m assay score {asked} 2>{err} | head -n 1"
    subprocess.run(words, shell=True, cwd=ROOT, capture_output=True, check=True)
    assert (tmp_path / "err").read_text() == ""


def test_the_public_names_are_loaded_when_they_are_used() -> None:
    code = (
        "import sys, rewards.gold; heavy = 'torch pandas numpy pyarrow bs4 ftfy selectolax yaml';"
        "assert not {*heavy.split()} & set(sys.modules);"
        f"from assay import {', '.join(assay.PUBLIC)};"
        "assert not {'torch', 'pandas', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("given", "left"), [({}, assay.SPINS), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_what_torch_reads_is_set_unless_the_user_says_how(given: dict[str, str], left: str) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    code = "import os, sys, assay; sys.argv = ['assay', '--version']; assay.main(); "
    code += "print(os.environ.get('GOMP_SPINCOUNT'))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, env=env | given, capture_output=True, text=True)
    version, found = done.stdout.splitlines()
    assert found == left and re.fullmatch(r"assay \d+\.\d+\.\d+", version)
