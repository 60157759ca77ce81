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
from assay_command import assay, rows, run
from places import ROOT
from small_lake import make_lake

FAMILY = str(ROOT / "examples" / "own_family.py")
WORKLOAD = {
    "id": "small-easy-1",
    "query": "How many years?",
    "answer": 30,
    "answer_type": "numeric_exact",
    "data_sources": ["./"],
    "subtasks": [],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `T/train.jsonl`, tasks of the example family, and rollouts of gold."""
    folder = tmp_path_factory.mktemp("options")
    assay(folder, "tasks", "json_repair", "--family", FAMILY, "--out", "T", "count=16")
    words = ["--family", FAMILY, "--tasks", "T/train.jsonl", "--solver", "gold", "sampling.n=2"]
    assay(folder, "rollout", *words, "--out", "r.jsonl")
    return folder


def test_audit_of_the_first_tasks(place: Path) -> None:
    words = ["--family", FAMILY, "--tasks", "T/train.jsonl", "--attacks", "0", "--limit", "3"]
    assert "json_repair: 3 tasks" in assay(place, "audit", *words)


def test_the_cheaper_of_two_right_rollouts_is_kept(place: Path) -> None:
    kept = rows(place / "r.jsonl")
    words = ["--rollouts", "r.jsonl", "--strategy", "fv", "--fastest-by", "cost"]
    assert f"{len(kept) // 2} rollouts" in assay(place, "select", *words, "--out", "s.parquet")


def test_harbor_is_told_the_time_of_a_task(place: Path) -> None:
    words = ["harbor", "--family", FAMILY, "--tasks", "T/train.jsonl", "--out", "H"]
    assay(place, "export", *words, "--seconds", "77")
    (first, *_) = sorted((place / "H").rglob("task.toml"))
    assert "timeout_sec = 77" in first.read_text("utf-8")


def test_krama_shows_only_the_files_of_a_question(tmp_path: Path) -> None:
    make_lake(tmp_path / "lakes" / "small" / "input", settled=True)
    (tmp_path / "small.json").write_text(json.dumps([WORKLOAD]), encoding="utf-8")
    words = ["--workload", "small.json", "--lakes", "lakes", "--out", "K", "--mode", "full"]
    assay(tmp_path, "tasks", "krama", *words)
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


def test_a_served_page_is_there_until_it_is_interrupted(place: Path) -> None:
    words = [sys.executable, "-m", "assay", "view", "r.jsonl", "--serve"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=place, env=env, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        url = next(word for word in served.stdout.readline().split() if word.startswith("http"))
        with urllib.request.urlopen(url.rstrip(".,;")) as answer:
            assert b"<html" in answer.read()
        served.send_signal(signal.SIGINT)
        assert served.wait() in (0, 130)
