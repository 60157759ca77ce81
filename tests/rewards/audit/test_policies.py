"""Answers without the work: a leaky reward is found, a sound one is not accused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from leaky import LEAKS, leaky_file
from places import tables

from assay import family as families
from assay.family import Answer, Audit, Family, Floor, Score, Task, from_place
from rewards.audit.laws import Audited, Broken, Earned
from rewards.audit.policies import (
    farm,
    fixed_policies,
    floor_laws,
    golds_of_others,
    shown,
)

TABLES = tables("rewards")

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")


def broken_by(family: Family, tasks: list[Task]) -> list[Broken]:
    found = Audited(family)
    farm(found, tasks)
    return found.broken


def leaky(folder: Path, leak: str) -> tuple[Family, list[Task]]:
    (family,) = families.use_families([str(leaky_file(folder, leak))])
    assert family.build is not None
    return family, [*family.build(0)["train"]]


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_found_and_a_sound_scorer_is_not_accused(tmp_path: Path, leak: str) -> None:
    family, tasks = leaky(tmp_path, leak)
    broken = broken_by(family, tasks)
    assert bool(broken) is (leak != "none"), [str(b) for b in broken]
    assert all(b.law == "floor" for b in broken)


def test_no_policy_sees_gold(tmp_path: Path) -> None:
    """Tasks with other gold are answered alike."""
    family, tasks = leaky(tmp_path, "none")
    task = tasks[0]
    other = Task(task.id, task.family, task.track, task.split, task.prompt, {"sum": "x"})
    for _, answer in fixed_policies(family.audited.forms):
        assert answer(task) == answer(other)


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
    family, tasks = leaky(tmp_path, "none")

    def score(task: Task, answer: Answer) -> Score:
        if "yes" in answer.text:
            raise ZeroDivisionError
        return Score(0.0, 0.0)

    families._added["leaky"] = from_place(Family("leaky", score, family.gold), family.origin)
    broken = broken_by(families._added["leaky"], tasks)
    assert [b.law for b in broken] == ["policy"]


def test_what_a_prompt_shows() -> None:
    text = "Sort 3 and -2.5 in `a b`, 'x'.\nText:\nThe input\nstands here."
    piece = shown(Task("t", "f", "k", "s", [{"role": "user", "content": text}], {}))
    assert piece.after == "The input\nstands here."
    assert piece.numbers == ("3", "-2.5") and piece.quoted == ("a b", "x")
    assert shown(Task("t", "f", "k", "s", [], {})).whole == ""


def test_floors_by_kind() -> None:
    floors = {"a": Floor(0.1, 0.2, 0.3), "": Floor(0.4)}
    audit = Audit(floors=floors)
    assert audit.floor("a").reward == 0.2
    assert audit.floor("b").outcome == 0.4
    assert Audit().floor("b") == Floor()
