"""Answers without the work: a leaky reward is found, a sound one is not accused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from leaky import LEAKS, leaky_family
from places import tables

from assay import family as families
from assay.family import Answer, Family, Score, Task
from rewards.audit import (
    farm,
    floor_laws,
    golds_of_others,
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
    assert all(b.law == ("policy" if leak == "raises" else "floor") for b in broken)


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
