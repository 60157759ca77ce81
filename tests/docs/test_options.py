"""Options that the pages show and that no other test gives, each to its command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from assay_command import here, run
from places import ROOT
from small_lake import make_lake

FAMILY = ["--family", str(ROOT / "examples" / "own_family.py")]
TASKS = [*FAMILY, "--tasks", "T/train.jsonl"]
WORKLOAD = {"id": "small-easy-1", "query": "How many years?", "answer": 30, "subtasks": []}
WORKLOAD |= {"answer_type": "numeric_exact", "data_sources": ["./"]}


@pytest.mark.usefixtures("no_family_of_another_test")
def test_an_export_tells_the_time_of_a_task_and_a_page_is_served(tmp_path: Path) -> None:
    here(tmp_path, "tasks", "json_repair", *FAMILY, "--out", "T", "count=16")
    here(tmp_path, "export", "harbor", *TASKS, "--out", "H", "--seconds", "77")
    (first, *_) = sorted((tmp_path / "H").rglob("task.toml"))
    assert "timeout_sec = 77" in first.read_text("utf-8")
    here(tmp_path, "rollout", *TASKS, "--solver", "gold", "sampling.n=2", "--out", "r.jsonl")
    words = [sys.executable, "-m", "assay", "view", "r.jsonl", "--serve"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE) as served:
        assert served.stdout is not None
        line = served.stdout.readline().decode()
        url = next(word for word in line.split() if word.startswith("http"))
        with urllib.request.urlopen(url.rstrip(".,;")) as answer:
            assert b"<html" in answer.read()
        served.send_signal(signal.SIGINT)
        assert served.wait() in (0, 130)


def test_krama_shows_only_the_files_of_a_question(tmp_path: Path) -> None:
    make_lake(tmp_path / "lakes" / "small" / "input", settled=True)
    (tmp_path / "small.json").write_text(json.dumps([WORKLOAD]), encoding="utf-8")
    words = ["--workload", "small.json", "--lakes", "lakes", "--out", "K", "--mode", "full"]
    here(tmp_path, "tasks", "krama", *words)
    assert any((tmp_path / "K").rglob("*.jsonl"))


def test_a_program_in_the_sandbox_reads_a_shared_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("seen", encoding="utf-8")
    program = "import pathlib\nprint(next(pathlib.Path('.').rglob('a.txt')).read_text())\n"
    (tmp_path / "p.py").write_text(program, encoding="utf-8")
    done = run(tmp_path, "sandbox", "run", "p.py", "--shared", "data")
    if "sandbox" in done.stderr and done.returncode == 1:
        pytest.skip(f"no sandbox here: {done.stderr.strip()}")
    assert "seen" in done.stdout, done.stderr
