"""examples/own_builder.py: a builder on the skeleton, from `assay` alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from places import ROOT

from assay import main
from assay.task import read_tasks

EXAMPLE = ROOT / "examples" / "own_builder.py"
pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def build(out: Path, example: Path = EXAMPLE) -> int:
    family = ["--family", str(example), "--out", str(out)]
    return main(["tasks", "find_all", *family, "--seed", "1", "count=40"])


def test_the_examples_are_short_and_import_assay_alone() -> None:
    for name, most in (("own_builder", 120), ("own_family", 40), ("own_tools", 50)):
        text = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
        assert len(text.splitlines()) <= most
        own = ("assay", "rewards", "rollouts", "data_gen", "train", "configs")
        assert {m for m in re.findall(r"(?m)^from (\w+)", text) if m in own} == {"assay"}


def test_splits_share_no_source_and_gold_is_proved_twice(tmp_path: Path) -> None:
    assert build(tmp_path / "a") == 0 == build(tmp_path / "b")
    splits = {n: read_tasks(tmp_path / "a" / f"{n}.jsonl") for n in ("train", "heldout")}
    assert len(splits["train"]) > len(splits["heldout"]) > 0
    sources = [{t.meta["source"] for t in tasks} for tasks in splits.values()]
    assert not sources[0] & sources[1]
    proof = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert proof["ok"] and proof["proof"]["agreed"] >= sum(proof["tasks"].values()) == 40
    assert proof["refused"]["no list of two to eight matches"]
    for name in ("train.jsonl", "certificate.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert main(["audit", "--family", str(EXAMPLE), "--tasks", f"{tmp_path}/a/train.jsonl"]) == 0


def test_a_second_way_that_finds_something_else_is_counted(tmp_path: Path) -> None:
    text = EXAMPLE.read_text("utf-8").replace("room < most", "room < 2")
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    assert build(tmp_path / "a", tmp_path / "own.py") == 0
    proof = json.loads((tmp_path / "a" / "certificate.json").read_text())
    assert proof["proof"]["differs"] == proof["refused"]["proof: differs"] > 0
    assert "again" in proof["examples"]["proof: differs"][0]


def test_what_is_asked_twice_or_does_not_score_is_refused(tmp_path: Path) -> None:
    text = EXAMPLE.read_text("utf-8").replace("NOTES = 30", "NOTES = 2")
    text = text.replace('join(task.gold["matches"])', 'join(task.gold["matches"][:4])')
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    assert build(tmp_path / "a", tmp_path / "own.py") == 0
    refused = json.loads((tmp_path / "a" / "certificate.json").read_text())["refused"]
    assert refused["asked already"] and refused["law broken: gold"]
