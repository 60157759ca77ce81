"""The laws hold for every built-in family on real tasks, and what breaks one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from demo_splits import demo_splits
from mixed_tasks import objects, task_of, value_tables
from places import tables
from sql_tasks import sql_tasks

from assay import family as families
from assay import family as guard
from assay.family import BUILT_IN, Cheat, Family
from assay.task import Answer, Score, Task
from data_gen.corpora import read_corpus
from data_gen.demo.refinements import OrderBuilder
from data_gen.demo.settings import OrderSettings, preset
from rewards.audit_laws import cheat_laws, examine, mean_scores, split_law


def refinements() -> list[Task]:
    """Tasks of the demo's builders."""
    shipped = read_corpus()
    corpus = replace(shipped, documents=shipped.documents[::5])
    splits = [*OrderBuilder(OrderSettings(3, 3, 3), 3).splits(corpus).values()]
    splits += demo_splits(corpus, preset("hard", train_sft=6, train_rl=6, heldout=12), 3)
    return [task for split in splits for task in split]


def answers() -> list[Task]:
    kinds = tables("rewards")["fuzz_answers"].items()
    values = [(kind, value) for kind, found in kinds for value in found if value not in ("…", [])]
    return [task_of(f"{k}-{v}", "answer", {"answer_type": k, "answer": v}) for k, v in values]


def harbor() -> list[Task]:
    oracles: list[Any] = [{"reward": 1.0}, {"reward": 1.1, "outcome": 1.0, "part": 3.0}]
    return [task_of(f"h-{i}", "harbor", {"oracle": found}) for i, found in enumerate(oracles)]


TASKS: dict[str, Callable[[], list[Task]]] = {
    "refinement": refinements,
    "structured": objects,
    "table": value_tables,
    "answer": answers,
    "sql": sql_tasks,
    "harbor": harbor,
}


@pytest.mark.parametrize("name", TASKS)
def test_the_laws_hold(name: str) -> None:
    if name == "table":
        pytest.importorskip("pandas")
    examined = [examine(task) for task in TASKS[name]()]
    assert [str(b) for one in examined for b in one.broken] == []
    assert [str(b) for b in cheat_laws(BUILT_IN[name], examined)] == []
    earned = mean_scores(examined)
    assert earned["gold"]["outcome"] == 1.0 and earned["empty"]["most"] == 0.0
    assert {f"cheat {c}" for c in BUILT_IN[name].cheats} <= earned.keys()
    assert earned["attack nested lists"]["tasks"] == len(examined)


def use(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> Family:
    """A family from outside, with some of its parts replaced."""

    def score(task: Task, answer: Answer) -> Score:
        right = answer.text.strip() == task.gold["text"]
        return Score(float(right), float(right))

    whole: dict[str, Any] = {"score": score, "gold": lambda task: task.gold["text"]} | parts
    family = families.from_place(Family(name="own", **whole), "own.py:FAMILY")
    monkeypatch.setattr(families, "_added", {"own": family})
    monkeypatch.setattr(guard, "SECONDS", 0.2)
    return family


def own_task(number: int = 1) -> Task:
    return task_of(f"own-{number}", "own", {"text": f"gold {number}"})


def broken(*tasks: Task) -> list[tuple[str, str]]:
    return [(b.law, b.why) for task in tasks for b in examine(task).broken]


def constant(outcome: Any, reward: Any) -> Callable[[Task, Answer], Score]:
    return lambda task, answer: Score(outcome, reward)


def hangs(task: Task) -> str:
    while True:
        pass


def drawing() -> Callable[[Task, Answer], Score]:
    calls: list[int] = []

    def score(task: Task, answer: Answer) -> Score:
        calls.append(1)
        right = answer.text == task.gold["text"]
        return Score(float(right), right * (1 + len(calls) / 1000))

    return score


def longer_pays(task: Task, answer: Answer) -> Score:
    right = task.gold["text"] in answer.text
    return Score(float(right), right * (1 + len(answer.text) / 1000))


def too_deep(task: Task, answer: Answer) -> Score:
    if answer.text.startswith("["):
        json.loads(answer.text)  # RecursionError
    return Score.of(answer.text == task.gold["text"])


@pytest.mark.parametrize(
    ("parts", "law", "why"),
    [
        ({"gold": lambda task: "x"}, "gold", "gold scores 0, not 1"),
        ({"gold": lambda task: task.gold["no"]}, "gold", "raised KeyError: 'no'"),
        ({"gold": hangs}, "gold", "did not end within 0.2 s"),
        ({"gold": lambda task: 3}, "gold", "returned int; return an Answer or text"),
        ({"score": constant(float("nan"), 0)}, "gold", "outcome is nan; return a finite number"),
        ({"score": constant(1.0, 1.0)}, "empty", "an empty answer scores 1"),
        ({"cheats": {"c": lambda task: task.meta["no"]}}, "cheat", "cheat c of family own raised"),
        ({"score": drawing()}, "same bits", ""),
        ({"score": longer_pays}, "attack", "chatter around gold earns a reward of"),
        ({"score": too_deep}, "attack", "RecursionError"),
    ],
)
def test_a_law_that_is_broken_is_named(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], law: str, why: str
) -> None:
    use(monkeypatch, **parts)
    found = broken(own_task())
    assert any(one == law and why in said for one, said in found), found


@pytest.mark.parametrize(("admits", "breaks"), [(0.4, True), (0.5, False)])
def test_a_cheat_reaches_no_more_than_it_admits(
    monkeypatch: pytest.MonkeyPatch, admits: float, breaks: bool
) -> None:
    cheat = Cheat(lambda task: task.gold["text"] if task.id.endswith("1") else "", admits)
    family = use(monkeypatch, cheats={"half": cheat})
    examined = [examine(own_task(n)) for n in (1, 2)]
    assert bool(list(cheat_laws(family, examined))) is breaks


SHARED = tables("rewards")["contents_that_two_splits_share"]


@pytest.mark.parametrize(("other", "exact", "normalised"), SHARED)
def test_two_splits_share_no_content(
    monkeypatch: pytest.MonkeyPatch, other: str, exact: int, normalised: int
) -> None:
    use(monkeypatch)
    second = replace(own_task(2), prompt=[{"role": "user", "content": other}])
    found = [str(b) for b in split_law({"train": [own_task(1)], "heldout": [second]})]
    said = f"train and heldout: share {normalised} contents ({exact} of them exactly), as in tasks"
    assert [one.startswith(said) for one in found] == [True] * normalised
