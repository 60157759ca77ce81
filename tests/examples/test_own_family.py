"""examples/own_family.py, copied to a folder outside the checkout: every command works on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from assay_command import assay, rows, run, with_own_names
from places import ROOT

pytest.importorskip("torch")

EXAMPLE = ROOT / "examples" / "own_family.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the family's file and its tasks."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(EXAMPLE, folder / "own_family.py")
    with_own_names(folder)
    family = ["--family", "own_family.py"]
    assay(folder, "tasks", "json_repair", *family, "--out", "T", "--seed", "0", "count=48")
    return folder


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 40


def test_tasks_have_splits_and_a_certificate(built: Path) -> None:
    proof = json.loads((built / "T" / "certificate.json").read_text("utf-8"))
    assert proof["ok"] is True
    names = {path.stem for path in (built / "T").glob("*.jsonl")}
    assert names == {"train", "validation", "heldout", "refused"}
    assert all(row["family"] == "json_repair" for row in rows(built / "T" / "train.jsonl"))


def test_outputs_are_scored_by_task_id(built: Path) -> None:
    tasks = rows(built / "T" / "heldout.jsonl")
    outputs = [
        {"id": tasks[0]["id"], "output": json.dumps(tasks[0]["gold"]["object"])},
        {"id": tasks[1]["id"], "output": "no JSON at all"},
    ]
    (built / "out.jsonl").write_text("".join(json.dumps(o) + "\n" for o in outputs), "utf-8")
    family = ["--family", "own_family.py", "--tasks", "T/heldout.jsonl"]
    said = assay(built, "score", *family, "out.jsonl")
    assert [json.loads(line)["outcome"] for line in said.splitlines()] == [1.0, 0.0]


def test_audit_finds_nothing(built: Path) -> None:
    assay(built, "audit", "--family", "own_family.py", "--tasks", "T/train.jsonl")


def test_a_family_that_is_not_given_is_named(built: Path) -> None:
    done = run(built, "audit", "--tasks", "T/train.jsonl")
    assert done.returncode == 2
    assert "json_repair" in done.stderr and "--family" in done.stderr
    assert "Traceback" not in done.stderr
