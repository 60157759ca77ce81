"""The short form of `python -m benchmarks.faults`, and what it says of commands that go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from benchmarks.faults import checks
from benchmarks.faults.__main__ import SHORT

pytest.importorskip("aiohttp")
pytest.importorskip("pyarrow")
ONE = "execute"  # killed, with a worker killed, and with its input cut off


@pytest.mark.parametrize("only", [ONE, pytest.param("", marks=pytest.mark.slow)])
def test_every_fault_of_the_short_form_ends_as_documented(only: str) -> None:
    """Those of one command; all of them with `make test-slow`."""
    chosen = [kind for name, kind in SHORT if only in name]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults", "--short", "--only", only, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout)
    wrong = [row for row in found["rows"] if row["problems"]]
    assert (done.returncode, wrong) == (0, []), json.dumps(wrong, indent=1)
    assert sorted(row["kind"] for row in found["rows"]) == sorted(chosen)
    assert sum(row["met"] for row in found["rows"]) > len(chosen) // 2


def test_term_ends_a_command_cleanly(tmp_path: Path) -> None:
    """TERM while it waits for its input: no file, no traceback, the status of a shell."""
    words = [sys.executable, "-m", "assay", "score", "--out", "s.jsonl"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = subprocess.Popen(
        words, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not any(tmp_path.iterdir()):  # its output is open: it listens
        assert command.poll() is None
    command.send_signal(signal.SIGTERM)
    _, said = command.communicate()
    assert command.returncode == 143
    assert said == b"assay score: ended by TERM; run the same command again\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.json", b'{"a": 1', "is broken"),
        ("a.jsonl", b'{"a": 1}\n{"b"', "its last line is cut off"),
        ("a.jsonl.gz", b"\x1f\x8b\x08", "is broken"),
        ("a.html", b"<html>", "no end"),
        ("a.yaml", b"- 1\n", "no mapping"),
        ("r.jsonl", b'{"a": 1}\n{"b"', ""),  # a journal: its next start cuts it off
        (".a.json.0.tmp", b"{", ""),
    ],
)
def test_broken_files_are_found(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(data)
    found = list(checks.broken_files(tmp_path))
    assert bool(found) == bool(why) and all(why in one for one in found)


def test_what_differs_is_found(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name, text in (("a.json", '{"seconds": 1, "x": 2}'), ("b", "1"), ("c", "1")):
        (tmp_path / "out" / name).write_text(text)
    wanted = checks.prints(tmp_path)
    (tmp_path / "out" / "a.json").write_text('{"x": 2, "seconds": 3}')
    (tmp_path / "out" / "b").write_text("2")
    (tmp_path / "out" / "c").rename(tmp_path / "out" / ".c.tmp")
    assert checks.differing(tmp_path, wanted) == [
        "c is missing",
        ".c.tmp is left over",
        "b differs",
    ]


def test_a_fault_that_is_scored_as_a_wrong_answer_is_found(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    rows = tmp_path / "out" / "s.jsonl"
    rows.write_text('{"id": "a", "outcome": 1.0}\n{"id": "b", "outcome": 1.0}\n')
    wanted = checks.outcomes(tmp_path)
    rows.write_text('{"id": "a", "outcome": null}\n{"id": "b", "outcome": 0.0}\n')
    assert checks.scored_wrong(tmp_path, wanted) == ["b has outcome 0.0, wanted 1.0 or none"]
