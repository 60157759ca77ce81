"""Prompts by pass rate, and those that take the places of flat groups."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from assay.task import Task
from configs.training import GrpoConfig
from train.model.order import PRIOR, PassRates, Prompts

CONFIG = GrpoConfig(prompts_per_step=8, mini_batch=8, rollouts_per_prompt=8, steps=30)
BY_RATE = replace(CONFIG, curriculum="pass_rate")
RATES = {"easy": 1.0, "hard": 0.0, "half": 0.5}


def tasks(count: int = 60) -> list[Task]:
    """A third each is always solved, never, and half of the time; nothing tells them apart."""
    names = list(RATES)
    return [
        Task(f"t{i}", "toy", names[i % 3], "train", [], {"status": "KEEP" if i % 2 else "DROP"})
        for i in range(count)
    ]


def one_kind(found: list[Task]) -> list[Task]:
    return [replace(t, track="x") for t in found]


def play(prompts: Prompts, found: list[Task], first: int, last: int) -> list[list[int]]:
    """Ask steps `first` to `last`, each answered at its task's rate."""
    asked: list[list[int]] = []
    for step in range(first, last):
        rows = prompts.of_step(step)
        asked.append(rows)
        for row in rows:
            draw = random.Random(f"{step} {row}")
            rate = RATES[found[row].track]
            outcomes = [float(draw.random() < rate) for _ in range(8)]
            prompts.learn(step, [row], [outcomes])
    return asked


def test_without_a_curriculum_tasks_are_asked_in_turn() -> None:
    prompts = Prompts(tasks(), CONFIG, 3)
    rows = [row for step in play(prompts, tasks(), 0, 15) for row in step]
    assert sorted(rows) == sorted([*range(60)] * 2)
    assert prompts.state() == {}


@pytest.mark.parametrize("told_apart", [False, True])
def test_tasks_that_are_likely_flat_are_asked_less(told_apart: bool) -> None:
    found = tasks() if told_apart else one_kind(tasks())
    asked = play(Prompts(found, BY_RATE, 3), tasks(), 0, 30)
    late = [tasks()[row].track for step in asked[10:] for row in step]
    assert late.count("half") / len(late) > (0.75 if told_apart else 0.6)
    assert {"easy", "hard"} <= {tasks()[row].track for step in asked for row in step}  # tried


def test_the_same_seed_gives_the_same_choices_and_a_checkpoint_goes_on_with_them() -> None:
    found = tasks()
    whole = play(Prompts(found, BY_RATE, 3), found, 0, 20)
    assert whole == play(Prompts(found, BY_RATE, 3), found, 0, 20)
    assert whole != play(Prompts(found, BY_RATE, 4), found, 0, 20)
    first = Prompts(found, BY_RATE, 3)
    begun = play(first, found, 0, 9)
    again = Prompts(found, BY_RATE, 3)
    again.load(json.loads(json.dumps(first.state())))
    assert begun + play(again, found, 9, 20) == whole


def test_every_stratum_has_its_turn() -> None:
    found = tasks()
    prompts = Prompts(found, replace(BY_RATE, balance="status"), 3)
    for rows in play(prompts, found, 0, 5):
        assert [found[row].gold["status"] for row in rows] == ["DROP", "KEEP"] * 4
        assert len({*rows}) == 8
    few = Prompts(found[:5], BY_RATE, 3).of_step(0)
    assert len(few) == 8 and {*few} == {*range(5)}


def test_pass_rates_by_hand() -> None:
    rates = PassRates(["a", "a", "b"])
    rates.learn(0, [1.0, 1.0, 0.0, 0.5], 4)
    assert rates.seen[0] == (2.5, 1.5, 4)
    alpha, beta = rates.betas(4)
    mean = 3.5 / 6  # of kind a, with one passed and one failed before it
    assert alpha == pytest.approx([2.5 + PRIOR * mean, PRIOR * mean, 1.0])
    assert beta == pytest.approx([1.5 + PRIOR * (1 - mean), PRIOR * (1 - mean), 1.0])
    later = rates.betas(400)[0]  # forgotten: the policy is another one
    assert np.allclose(later, 1.0, atol=1e-3)


@pytest.mark.parametrize("config", [CONFIG, BY_RATE])
def test_what_takes_the_place_of_flat_groups(config: GrpoConfig) -> None:
    found = tasks(20)
    prompts = Prompts(found, replace(config, balance="status"), 3)
    asked = {*range(8)}
    rows = prompts.instead(2, 0, [1, 3, 4], asked)
    assert (
        rows == prompts.instead(2, 0, [1, 3, 4], asked) != prompts.instead(2, 1, [1, 3, 4], asked)
    )
    assert not {*rows} & asked and len({*rows}) == 3
    assert [found[row].gold["status"] for row in rows] == ["KEEP", "KEEP", "DROP"]
    assert prompts.instead(2, 0, [], asked) == []
    assert len(prompts.instead(2, 0, [1] * 9, asked)) == 6  # no more of that status
    assert prompts.instead(2, 0, [1], {*range(20)}) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dynamic_sampling": -1}, "dynamic_sampling=-1 is too small"),
        ({"max_new_tokens": 8, "overlong_buffer": 9}, "longer than an answer may be"),
    ],
)
def test_settings_that_cannot_go_together(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(CONFIG, **changes)  # type: ignore[arg-type]


def test_a_run_whose_rate_falls_keeps_its_end() -> None:
    assert GrpoConfig().also_locked() == ()
    assert replace(CONFIG, schedule="cosine").also_locked() == ("steps",)
