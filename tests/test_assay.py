"""The front door: every command's help is cheap and complete, errors map to exit statuses."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

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


INTERNAL = {
    "JudgeError",
    "TypeCheckError",
    "FrameError",
    "EndpointError",
    "SandboxError",
    "SetupError",
    "RequestError",
    "AdapterError",
}


def test_help_imports_nothing_heavy() -> None:
    words = [sys.executable, "-c", HELP, *COMMANDS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = ("COMMAND", *COMMANDS)
    assert [name for name in names if f"usage: assay {name}" not in done.stdout] == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert assay.main(["--version"]) == 0
    assert re.fullmatch(r"assay \d+\.\d+\.\d+\n", capsys.readouterr().out)


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (TaskError("row 3 is bad"), 2, "assay x: row 3 is bad\n"),
        (ConfigError("seed=x"), 2, "assay x: seed=x\n"),
        (FileNotFoundError(2, "No such file", "a.jsonl"), 2, "assay x: a.jsonl: No such file\n"),
        (OSError(28, "No space left on device", "b"), 1, "assay x: b: No space left on device\n"),
        (MemoryError(), 1, "assay x: out of memory; "),
        (OutOfMemoryError("CUDA"), 1, "assay x: out of GPU memory; "),
        (SandboxError("no namespaces"), 1, "assay x: no namespaces\n"),
        (console.SavedAndStopped("saved step 3"), 75, "assay x: saved step 3\n"),
        (KeyboardInterrupt(), 130, "assay x: interrupted; run the same command again"),
        (BrokenPipeError(), 141, ""),
        (
            ImportError("No numpy. Please see below\nmore"),
            1,
            "assay x: No numpy (often for want of ",
        ),
        (ImportError("cannot import name 'x' from 'y'"), None, ""),
        (ModuleNotFoundError("No module named 'x'"), None, ""),
        (RuntimeError("a bug"), None, ""),
        (ValueError("a bug"), None, ""),
    ],
)
def test_errors_map_to_exit_statuses(
    capsys: pytest.CaptureFixture[str], error: BaseException, status: int | None, said: str
) -> None:
    assert console.status_of(error, "assay x") == status
    told = capsys.readouterr().err
    assert told.startswith(said) and (told == "") == (said == "")


def test_the_front_door_maps_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "own_command.py").write_text(
        "from assay.task import TaskError\n"
        "def main(argv):\n"
        "    raise TaskError('no') if argv else RuntimeError('a bug')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(assay.COMMANDS, "own", ("own_command", "for this test"))
    assert assay.main(["own", "x"]) == 2
    assert capsys.readouterr().err == "assay own: no\n"
    with pytest.raises(RuntimeError, match="a bug"):
        assay.main(["own"])


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "family": "x"}\n' * 20000)
    python, asked, err = (shlex.quote(str(p)) for p in (sys.executable, rows, tmp_path / "err"))
    words = f"{python} -m assay score {asked} 2>{err} | head -n 1"
    environment: dict[str, Any] = {**os.environ}
    subprocess.run(words, shell=True, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert (tmp_path / "err").read_text() == ""


def test_the_public_names_are_loaded_when_they_are_used() -> None:
    code = (
        "import sys, assay; assert not [m for m in sys.modules if m.startswith('assay.')];"
        "import rewards.gold; heavy = 'torch pandas numpy pyarrow bs4 ftfy selectolax yaml ray';"
        "assert not {*heavy.split()} & set(sys.modules);"
        "from assay import Task, Answer, Score, Family, Audit, tool, score, rollout;"
        "assert not {'torch', 'pandas', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(getattr(assay, name) for name in assay.PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'reward'"):
        assay.reward  # noqa: B018


@pytest.mark.parametrize(
    ("name", "given", "left"),
    [
        ("GOMP_SPINCOUNT", {}, assay.SPINS),
        ("GOMP_SPINCOUNT", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("GOMP_SPINCOUNT", {"OMP_WAIT_POLICY": "active"}, None),
        (assay.HUGE_PAGES[0], {}, "1"),
        (assay.HUGE_PAGES[0], {assay.HUGE_PAGES[0]: "0"}, "0"),
    ],
)
def test_what_torch_reads_is_set_unless_the_user_says_how(
    name: str, given: dict[str, str], left: str | None
) -> None:
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", assay.HUGE_PAGES[0])
    env = {**{k: v for k, v in os.environ.items() if k not in names}, **given}
    code = "import os, sys, assay; sys.argv = ['assay', 'version']; assay.main(); "
    code += f"print(os.environ.get({name!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == str(left)


def test_every_error_that_a_user_meets_is_known() -> None:
    """Errors of our own that are raised to be read derive from the two that the front door maps."""
    bases: dict[str, set[str]] = {}
    for top in ("assay", "rewards", "rollouts", "data_gen", "train", "configs"):
        for path in (ROOT / top).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for name, of in re.findall(r"^ *class (\w+Error)\b(?:\((.*)\))?:", text, re.MULTILINE):
                bases[name] = {*of.split(", ")}
    known = {"TaskError", "ConfigError"}
    loose = {name for name, of in bases.items() if name not in known and not known & of}
    assert loose == INTERNAL
