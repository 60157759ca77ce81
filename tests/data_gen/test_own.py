"""`assay tasks NAME --family`: settings, the certificate, and everything that is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from own_families import family_file
from places import tables

from assay import family as guard
from assay import main
from assay.task import read_tasks

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")
Capture = pytest.CaptureFixture[str]


def build(path: Path, out: Path, *words: str) -> int:
    return main(["tasks", "reverse", "--family", str(path), "--out", str(out), *words])


def test_a_family_of_one_file_builds_splits_and_a_certificate(tmp_path: Path) -> None:
    """Another seed gives other tasks; what an older build left goes, and other files stay."""
    path, out = family_file(tmp_path), tmp_path / "out"
    assert build(path, out, "--seed", "3", "count=4", "letters=up", "words=[a, b]") == 0
    train, heldout = read_tasks(out / "train.jsonl"), read_tasks(out / "heldout.jsonl")
    assert (len(train), len(heldout)) == (4, 3)
    assert {t.meta["family_origin"] for t in train} == {f"{path}:FAMILY"}
    proof = json.loads((out / "certificate.json").read_text())
    data = (out / "train.jsonl").read_bytes()
    own = proof["reverse"]
    right = {"count": 4, "letters": "up", "words": ["a", "b"], "share": 0.5, "heldout": 3}
    assert own["settings"] == right
    assert own["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert proof["ok"] and proof["seed"] == 3
    assert proof["shared"] == {"train and heldout": {"exact": 0, "normalised": 0}}
    assert proof["sha256"]["train.jsonl"] == hashlib.sha256(data).hexdigest()
    (out / "notes.txt").write_text("mine")
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    assert build(path, out, "count=x") == 2  # a refused build leaves the older one as it was
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    words = ("count=4", "letters=up", "words=[a, b]")
    for seed, same in (("3", True), ("4", False)):
        assert build(path, out, "--seed", seed, *words) == 0
        assert ((out / "train.jsonl").read_bytes() == data) is same
    assert (out / "notes.txt").read_text() == "mine"


def test_gold_may_be_proved_by_running_it(tmp_path: Path) -> None:
    proof = 'gold=lambda task: None, proof=lambda task: Answer(task.gold["text"])'
    path = family_file(tmp_path, 'gold=lambda task: task.gold["text"]', proof)
    assert build(path, tmp_path / "out") == 0


# (what stands in the family's file, what stands there instead, what is said)
REFUSED = tables("refused_families")


@pytest.mark.parametrize(("old", "new", "said"), REFUSED)
def test_a_family_that_breaks_a_law_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    monkeypatch.setattr(guard, "SECONDS", 0.3)
    assert build(family_file(tmp_path, old, new), tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".py"] in ([], ["__pycache__"])
