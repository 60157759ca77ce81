"""Going on with an evaluation: what it was begun with, and by what kind of engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from front import command as front

pytest.importorskip("torch")

from rewards import families
from rewards.task import Task, write_jsonl
from train.evaluation.journal import Journal

OWN = """
from rewards.family import Answer, Family, Score, Task


def score(task: Task, answer: Answer) -> Score:
    right = float("e" in answer.text)
    return Score(right, right, {}, "ok" if right else "wrong")


def gold(task: Task) -> Answer:
    return Answer("e")


FAMILY = Family(name="letters", score=score, gold=gold)
"""
main = front("eval")  # where errors become exit statuses


pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def task(number: int) -> Task:
    chat = [{"role": "user", "content": "Say e."}]
    return Task(f"t{number}", "letters", "x", "heldout", chat, gold={})


@pytest.mark.parametrize("kind", ["assay", "vllm"])
def test_another_engine_does_not_go_on_with_it(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Its log-probabilities, and answers at a tie, would be others: one table of two engines."""
    (tmp_path / "letters.py").write_text(OWN)
    words = ["--family", str(tmp_path / "letters.py"), "--tasks", str(tmp_path / "tasks.jsonl")]
    words += ["--model", str(tiny_folder), "--out", str(tmp_path / "out"), "--no-baselines"]
    words += ["--max-new-tokens", "4"]
    families.use_families([str(tmp_path / "letters.py")])
    write_jsonl(tmp_path / "tasks.jsonl", [task(0).to_json(), task(1).to_json()])
    assert main(words) == 0
    for name, at in (("eval.json", "settings"), ("results.json", "meta")):
        held = json.loads((tmp_path / "out" / name).read_text())
        said = held[at] if at == "settings" else held[at]["settings"]
        assert said["engine"] == "embedded"
        (about,) = (held["meta"] if at == "meta" else held)["answered_by"]
        assert about["engine"] == "embedded" and about["dtype"] in ("float32", "bfloat16")
    before = (tmp_path / "out" / "rows.jsonl").read_bytes()
    capsys.readouterr()
    assert main([*words, "--engine", kind]) == 2
    said = capsys.readouterr().err
    assert f"another engine (was embedded, is {kind}); put it back to go on" in said
    assert (tmp_path / "out" / "rows.jsonl").read_bytes() == before
    assert main([*words, "--engine", "embedded"]) == 0


def test_every_setting_that_changed_is_named_with_both_values(tmp_path: Path) -> None:
    with Journal(tmp_path, [], {"seed": 0, "engine": "vllm", "long": "x" * 80}) as journal:
        journal.write({"task_id": "a", "sample": 0, "outcome": 1.0})
    wanted = r"another engine \(was vllm, is sglang\), long, seed \(was 0, is 3\); put it back"
    with pytest.raises(Exception, match=wanted):
        Journal(tmp_path, [], {"seed": 3, "engine": "sglang", "long": "y" * 80})


def test_what_answered_is_kept_over_starts_each_once(tmp_path: Path) -> None:
    one, other = ({"engine": "vllm", "version": version} for version in ("0.31", "0.32"))
    for about in (one, one, other):
        with Journal(tmp_path, [], {"seed": 0}) as journal:
            journal.note(about)
            journal.write({"task_id": about["version"], "sample": 0, "outcome": 1.0})
    assert Journal(tmp_path, [], {"seed": 0}).answered_by == [one, other]
