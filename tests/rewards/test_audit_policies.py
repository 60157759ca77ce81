"""Answers without the work: a leaky reward is found, a sound one is not accused; so in the short
audit that training runs first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from leaky import LEAKS, leaky_family
from mixed_tasks import answer, refinement
from places import tables

from assay import family as families
from assay import family as guard
from assay.family import Answer, Family, Score, Task, from_place
from rewards.audit import (
    audit_sample,
    farm,
    fixed_policies,
    floor_laws,
    golds_of_others,
    huge_law,
)
from rewards.audit_laws import Audited, Broken, Earned

TABLES = tables("rewards")

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def broken_by(family: Family, tasks: list[Task]) -> list[Broken]:
    found = Audited(family)
    farm(found, tasks)
    return found.broken


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_found_and_a_sound_scorer_is_not_accused(tmp_path: Path, leak: str) -> None:
    family, tasks = leaky_family(tmp_path, leak)
    broken = broken_by(family, tasks)
    assert bool(broken) is (leak != "none"), [str(b) for b in broken]
    assert all(b.law == "floor" for b in broken)


def test_no_policy_sees_gold(tmp_path: Path) -> None:
    """Tasks with other gold are answered alike."""
    family, tasks = leaky_family(tmp_path, "none")
    task = tasks[0]
    other = Task(task.id, task.family, task.track, task.split, task.prompt, {"sum": "x"})
    for _, policy in fixed_policies(family.audited.forms):
        assert policy(task) == policy(other)


def test_the_best_constant_is_counted_on_tasks_it_was_not_chosen_on() -> None:
    """Golds that never repeat earn nothing, however many are tried; a common one its share."""

    def score(task: Task, answer: Answer) -> Score:
        right = float(answer.text == task.gold["a"])
        return Score(right, right)

    def earned(golds: list[str]) -> dict[str, float]:
        family = Family("own", score, gold=lambda task: task.gold["a"])
        tasks = [Task(f"t{i}", "own", "k", "train", [], {"a": a}) for i, a in enumerate(golds)]
        rows = golds_of_others(Audited(family), "k", tasks)
        return {row.policy: row.mean(0) for row in rows}

    families._added["own"] = Family("own", score, gold=lambda task: task.gold["a"])
    assert earned([str(i) for i in range(12)])["best constant"] == 0.0
    assert earned(["a"] * 12)["best constant"] == 1.0
    draw = random.Random(0)
    mixed = ["yes" if draw.random() < 0.7 else f"{i}" for i in range(12)]
    assert earned(mixed)["best constant"] == pytest.approx(mixed.count("yes") / 12, abs=0.1)


@pytest.mark.parametrize(("pairs", "breaks"), TABLES["a_floor_is_broken_beyond_chance"])
def test_a_floor_is_broken_beyond_chance(pairs: list[tuple[float, float]], breaks: bool) -> None:
    family = Family("own", lambda task, answer: Score(0.0, 0.0), gold=lambda task: "")
    one = Earned("constant", "k", tuple(pairs))
    assert bool([*floor_laws(family, [one])]) is breaks
    by_group = Earned("best constant by gold status", "k", tuple(pairs))
    assert not [*floor_laws(family, [by_group])]


def test_a_scorer_that_fails_on_a_policy_is_a_broken_law(tmp_path: Path) -> None:
    family, tasks = leaky_family(tmp_path, "none")

    def score(task: Task, answer: Answer) -> Score:
        if "yes" in answer.text:
            raise ZeroDivisionError
        return Score(0.0, 0.0)

    families._added["leaky"] = from_place(Family("leaky", score, family.gold), family.origin)
    broken = broken_by(families._added["leaky"], tasks)
    assert [b.law for b in broken] == ["policy"]


def test_a_leaky_reward_is_refused_in_one_sentence(tmp_path: Path) -> None:
    _, tasks = leaky_family(tmp_path, "digits")
    found = audit_sample(tasks, 0)
    assert not found.ok and found.tasks == {"leaky": 24}
    assert found.refusal.startswith("the audit of 24 tasks before training found: ")
    assert "a mean reward of 0.9" in found.refusal and "the floor is 0.5" in found.refusal
    assert "\n" not in found.refusal and found.refusal.endswith("docs/checks.md")
    assert found.best["leaky"]["reward"] == pytest.approx(0.9)
    assert audit_sample(tasks, 0) == found


def test_sound_tasks_are_trained_on(tmp_path: Path) -> None:
    mixed = [
        *leaky_family(tmp_path, "none")[1],
        *(refinement(i, "KEEP", i) for i in range(6)),
        answer(7),
    ]
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
