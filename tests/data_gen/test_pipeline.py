"""The skeleton of every builder: what is refused, asked twice, divided, said of inputs, written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from assay import family as families
from assay.family import Answer, Family, Score
from assay.task import Task, TaskError
from data_gen.certificate import DIFFERS, Input, Refused
from data_gen.pipeline import Builder, finish

Draft = tuple[int, int]


class Sums(Builder[int, Draft, int]):
    """What a number and another one are together; `wrong` makes the second way err."""

    def __init__(self, sources: int = 12, wrong: bool = False, gold: str = "sum") -> None:
        self.count, self.wrong, self.named = sources, wrong, gold

    def sources(self) -> Mapping[str, int]:
        return {f"number {n}": n for n in range(self.count)}

    def draft(self, source: int, rng: Random) -> Draft | None:
        other = rng.randrange(8)
        return None if other == 7 else (source, other)

    def gold(self, draft: Draft) -> int:
        if draft[1] == 0:
            raise Refused("nothing to add")
        return sum(draft)

    def again(self, draft: Draft, gold: int) -> None:
        if len([None] * draft[0] + [None] * draft[1]) + self.wrong != gold:
            raise Refused(DIFFERS, f"{gold} is not it")

    def words(self, draft: Draft, gold: int) -> str:
        return f"{draft[0]} and {draft[1]}?"

    def task(self, draft: Draft, gold: int, words: str) -> Task:
        prompt = [{"role": "user", "content": words}]
        return Task(words, "sums", "plain", "", prompt, {self.named: gold})

    def inputs(self, draft: Draft) -> tuple[str, ...]:
        return (f"number {draft[0]}",)


def _score(task: Task, answer: Answer) -> Score:
    right = float(answer.text == str(task.gold.get("sum")))
    return Score(right, right, {}, "ok")


@pytest.fixture(autouse=True)
def sums(no_family_of_another_test: None) -> None:
    gold = lambda task: str(task.gold.get("sum", "?"))  # noqa: E731
    families._added["sums"] = Family("sums", _score, gold=gold)


def test_no_question_is_asked_twice_and_no_source_is_in_two_splits() -> None:
    made = Sums().build(3, count=48)
    questions = [t.id for tasks in made.values() for t in tasks]
    assert len(questions) == len({*questions}) == 48
    assert made["train"] and made["validation"] and made["heldout"]
    sides = [{t.meta["source"] for t in tasks} for tasks in made.values()]
    assert sum(map(len, sides)) == 12 == len(set[str]().union(*sides))
    assert all(t.split == name for name, tasks in made.items() for t in tasks)
    assert made.tally.refused["asked already"] and made.tally.refused["nothing to add"]
    assert Sums().build(3, count=48) == made != Sums().build(4, count=48)
    few = Sums(sources=2).build(0, count=100)  # 1 to 6 can be added
    assert [len(tasks) for tasks in few.values()] == [6, 0, 6]


def test_gold_that_is_not_proved_or_does_not_score_is_refused() -> None:
    wrong = Sums(wrong=True).build(0, count=6)
    assert not any(wrong.values()) and wrong.tally.proof.keys() == {"differs"}
    assert wrong.tally.examples[DIFFERS][0].endswith("is not it")
    assert "proof: differs: " in wrong.tally.why_none("number 1")
    lawless = Sums(gold="other").build(0, count=6)
    assert not any(lawless.values()) and lawless.tally.refused["law broken: gold"]


def test_what_splits_share_is_refused_and_what_an_older_build_left_goes(tmp_path: Path) -> None:
    made, inputs = Sums().build(0), [Input("number 1", 1)]
    with pytest.raises(TaskError, match=r"share .*tables.*; nothing was written"):
        finish("sums", tmp_path, made, {"train and heldout": {"tables": 1}}, [], 0)
    assert not [*tmp_path.iterdir()]
    assert finish("sums", tmp_path, made, {}, inputs, 0) == 0
    assert (tmp_path / "heldout.jsonl").exists()
    assert finish("sums", tmp_path, {"train": made["train"], "more": []}, {}, inputs, 0) == 0
    assert not (tmp_path / "heldout.jsonl").exists() and (tmp_path / "refused.jsonl").exists()
    proof = json.loads((tmp_path / "certificate.json").read_text())
    assert proof["tasks"] == {"train": len(made["train"]), "more": 0}
