"""`assay audit` over files of mixed families, own ones too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from own_families import family_file

from assay import main
from assay.task import Task, read_tasks, write_jsonl

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")
GOLD = {"input_text": "axb", "status": "KEEP", "text": "ab"}
REFINED = Task("r", "refinement", "toy", "train", [{"role": "user", "content": "x"}], GOLD)
Capture = pytest.CaptureFixture[str]


def write(path: Path, *tasks: Task) -> str:
    write_jsonl(path, (task.to_json() for task in tasks))
    return str(path)


def audit(capsys: Capture, *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["audit", "--tasks", *words])
    said = capsys.readouterr()
    return status, said.out + said.err


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    """One file with tasks of an own family, of refinement and of lake questions."""
    words = ["--family", str(family_file(tmp_path)), "--out", str(tmp_path / "out")]
    assert main(["tasks", "reverse", *words]) == 0
    lake = {"answer_type": "numeric_exact", "answer": 12}
    asked = replace(REFINED, id="a", family="answer", gold=lake)
    own = read_tasks(tmp_path / "out" / "train.jsonl")
    return write(tmp_path / "mixed.jsonl", *own, REFINED, asked)


def test_a_mixed_file_is_audited_by_family(mixed: str, tmp_path: Path, capsys: Capture) -> None:
    words = [mixed, "--family", str(tmp_path / "own.py"), "--seed", "3"]
    status, said = audit(capsys, *words, "--json", "--out", str(tmp_path / "rows.jsonl"))
    report = json.loads(said)
    assert (status, report["ok"], report["tasks"]) == (0, True, 8)
    counts = {name: found["tasks"] for name, found in report["families"].items()}
    assert counts == {"answer": 1, "refinement": 1, "reverse": 6}
    earns = report["families"]["refinement"]["earns"]
    assert (earns["gold"]["outcome"], earns["cheat copy"]["outcome"]) == (1.0, 0.0)
    assert 0 < earns["cheat copy"]["reward"] < 1
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows} >= {"r", "a", "reverse-0"}
    assert all(row["scores"]["gold"]["outcome"] == 1.0 for row in rows)
    assert audit(capsys, *words, "--json") == (0, said)  # the same seed, the same bytes


def test_what_breaks_a_law_exits_1_and_is_named(tmp_path: Path, capsys: Capture) -> None:
    bad = replace(REFINED, id="bad", gold=GOLD | {"status": "NO"})
    one = write(tmp_path / "one.jsonl", REFINED)
    two = write(tmp_path / "two.jsonl", replace(REFINED, id="twin", split="heldout"))
    status, said = audit(capsys, write(tmp_path / "t.jsonl", REFINED, bad))
    assert status == 1 and "broken: gold: task bad: " in said and "task r" not in said
    assert audit(capsys, one)[0] == 0
    status, said = audit(capsys, one, two)
    assert status == 1
    assert "share 1 contents (1 of them exactly), as in tasks r and twin" in said
