"""The files of a build take the places of an older build's together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from front import command
from places import ROOT
from small_corpus import write_corpus

from assay.task import TaskError, read_tasks

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")
SMALL = (
    "workers=1",
    "instances.min_keep=2",
    "instances.min_drop=2",
    "select.per_operator=0",
    "split.validation_documents=0.2",
)
KILLED = """
import os, signal, sys
from pathlib import Path
import assay

real, moved = Path.replace, 0

def replace(self, target):
    global moved
    if ".new." in str(self.parent):
        moved += 1
        if moved == 6:
            os.kill(os.getpid(), signal.SIGKILL)
    return real(self, target)

Path.replace = replace
assay.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("cdr") / "corpus", 24)


def test_a_build_that_is_killed_over_an_older_one_is_refused_until_it_is_run_again(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["cdr", "--corpus", str(corpus), "--out", str(out), *SMALL]
    assert main(words) == 0
    old = {p: p.read_bytes() for p in out.rglob("*.json*")}
    other = [*words, "split.seed=5", "instruct.seed=9"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "tasks", *other], cwd=ROOT, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    changed = [p for p, data in old.items() if p.is_file() and p.read_bytes() != data]
    assert 0 < len(changed) < len(old)  # two generations lie there
    for name in ("train", "validation", "heldout"):
        with pytest.raises(TaskError, match="run the same `assay tasks` command again"):
            read_tasks(out / f"{name}.jsonl")
    capsys.readouterr()
    check = ["check", str(out / "train.jsonl"), "--against", str(out / "heldout.jsonl")]
    assert main(check) == 2
    assert "a build was killed" in capsys.readouterr().err
    evaluate = ["--model", "gold", "--tasks", f"cdr:{out}", "--out", str(tmp_path / "eval")]
    pytest.importorskip("torch")
    assert command("eval")(evaluate) == 2
    assert "a build was killed" in capsys.readouterr().err

    assert main(other) == 0
    assert main(["cdr", "--corpus", str(corpus), "--out", str(tmp_path / "b"), *other[5:]]) == 0
    for path in (tmp_path / "b").rglob("*.json*"):
        assert path.read_bytes() == (out / path.relative_to(tmp_path / "b")).read_bytes()
    assert not list(out.glob(".*"))


def test_files_of_an_older_build_do_not_outlive_it(corpus: Path, tmp_path: Path) -> None:
    words = ["cdr", "--corpus", str(corpus), "--out", str(tmp_path), *SMALL]
    assert main([*words, "instruct.all_prompts=true"]) == 0
    assert (tmp_path / "tracks_all_prompts" / "atomic_m.jsonl").is_file()
    (tmp_path / "mine.txt").write_text("a note")
    assert main([*words, "split.heldout_documents=0"]) == 0
    assert not (tmp_path / "tracks_all_prompts" / "atomic_m.jsonl").exists()
    assert (tmp_path / "heldout.jsonl").read_bytes() == b""
    assert json.loads((tmp_path / "manifest.json").read_text())["tasks"]
    assert (tmp_path / "mine.txt").is_file()
