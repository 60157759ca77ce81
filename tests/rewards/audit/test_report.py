"""The short audit that training runs first."""

from __future__ import annotations

from pathlib import Path

import pytest
from leaky import leaky_file
from mixed_tasks import answer, refinement

from assay import family as families
from assay import scorer_timeout as guard
from assay.family import Answer, Family, Score, Task, from_place
from rewards.audit.report import audit_sample, huge_law

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def tasks_of(folder: Path, leak: str) -> list[Task]:
    (family,) = families.use_families([str(leaky_file(folder, leak))])
    assert family.build is not None
    return [*family.build(0)["train"]]


def test_a_leaky_reward_is_refused_in_one_sentence(tmp_path: Path) -> None:
    found = audit_sample(tasks_of(tmp_path, "digits"), 0)
    assert not found.ok and found.tasks == {"leaky": 24}
    assert found.refusal.startswith("the audit of 24 tasks before training found: ")
    assert "a mean reward of 0.9" in found.refusal and "the floor is 0.5" in found.refusal
    assert "\n" not in found.refusal and found.refusal.endswith("docs/checks.md")
    assert found.best["leaky"]["reward"] == pytest.approx(0.9)
    assert audit_sample(tasks_of(tmp_path, "digits"), 0) == found


def test_sound_tasks_are_trained_on(tmp_path: Path) -> None:
    mixed = [*tasks_of(tmp_path, "none"), *(refinement(i, "KEEP", i) for i in range(6)), answer(7)]
    found = audit_sample(mixed, 0)
    assert found.ok and found.refusal == "" and found.broken == ()
    assert set(found.best) == {"leaky", "refinement", "answer"}


def test_an_answer_of_100_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    for task in (refinement(1, "KEEP", 1), answer(7)):
        assert huge_law(task) == []

    def slow(task: Task, answer: Answer) -> Score:
        while True:
            pass

    def paid(task: Task, answer: Answer) -> Score:
        return Score(float(len(answer.text) > 1000), 1.0)

    task = Task("t", "own", "k", "train", [], {})
    for score, seconds, why in ((slow, 0.2, "did not end"), (paid, 60.0, "scores 1")):
        monkeypatch.setattr(guard, "SECONDS", seconds)
        families._added["own"] = from_place(Family("own", score, lambda task: ""), "own.py:FAMILY")
        assert why in huge_law(task)[0].why
