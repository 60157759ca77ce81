"""Demo and order tasks: gold from their own words, splits that share nothing, settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from demo_splits import demo_splits

from assay.task import Task, TaskError
from data_gen.corpora import Corpus, read_corpus, shared_passages
from data_gen.demo.refinements import DemoBuilder, OrderBuilder
from data_gen.demo.settings import (
    PRESETS,
    OrderSettings,
    preset,
    read_requirement,
)
from rewards.cdr.score import always_drop, copy_input, gold_answer, score_refinement
from rewards.gold import OPERATORS, execute
from rewards.parse import normalise

SIZES = {"train_sft": 60, "train_rl": 60, "heldout": 96}
FEW = OrderSettings(train_sft=8, train_rl=20, heldout=4, validation=2, mapper_share=0.5, brief=True)


@lru_cache
def corpus() -> Corpus:
    shipped = read_corpus()
    return replace(shipped, documents=shipped.documents[::3])  # a third is quick and enough


@lru_cache
def built(difficulty: str = "medium") -> tuple[list[Task], ...]:
    return demo_splits(corpus(), preset(difficulty, **SIZES), 7)


@lru_cache
def orders() -> dict[str, list[Task]]:
    return OrderBuilder(FEW, 0).splits(read_corpus(None))


def every_task() -> list[Task]:
    demo = [task for difficulty in PRESETS for split in built(difficulty) for task in split]
    return demo + [task for split in orders().values() for task in split]


def test_every_task_passes_its_own_scorer_from_its_own_words() -> None:
    for task in every_task():
        run = execute(task.gold["input_text"], read_requirement(task.meta["requirement"]))
        assert (run.status, run.text) == (task.gold["status"], task.gold["text"])
        assert run.states == task.gold["states"]
        score = score_refinement(task.gold, gold_answer(task.gold))
        assert (score.outcome, score.reward) == (1.0, 1.0)
        said = task.prompt[-1]["content"]
        assert not any(name in said for name in OPERATORS)
        assert said.endswith(task.gold["input_text"]) and len(said) < 620


def test_words_that_do_not_lead_to_gold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = DemoBuilder.drafts

    def draft(self: DemoBuilder, *given: Any) -> Any:
        return (replace(one, requirement="Remove every word.") for one in plain(self, *given))

    monkeypatch.setattr(DemoBuilder, "drafts", draft)
    with pytest.raises(TaskError, match="does not lead to gold"):
        demo_splits(corpus(), preset("easy", **SIZES), 7)


def test_counts_and_classes_are_as_asked_and_no_instruction_tells_the_status() -> None:
    sft, rl, heldout = built()
    assert (len(sft), len(rl)) == (60, 60)
    for task in heldout:  # lazy answers succeed nowhere but where nothing was to do
        assert not score_refinement(task.gold, copy_input(task.gold)).outcome
        if score_refinement(task.gold, always_drop(task.gold)).outcome:
            assert task.gold["text"] == task.gold["input_text"]
    assert Counter(t.meta["class"] for t in heldout) == {"keep": 32, "keep_filter": 32, "drop": 32}
    for split in built():
        said: dict[str, Counter[str]] = {}
        for task in (t for t in split if t.meta["has_filter"]):
            said.setdefault(task.meta["requirement"], Counter())[task.gold["status"]] += 1
        assert said and all(counts["KEEP"] == counts["DROP"] for counts in said.values())


def test_held_out_tasks_share_nothing_with_training_and_do_not_depend_on_its_counts() -> None:
    for difficulty in PRESETS:
        sft, rl, heldout = built(difficulty)
        pairs = shared_passages({"train_sft": sft, "train_rl": rl, "heldout": heldout})
        assert len(pairs) == 2 and not any(n for pair in pairs.values() for n in pair.values())
    other = demo_splits(corpus(), preset("medium", **SIZES | {"train_sft": 3}), 7)
    assert other[2] == built()[2]


# --- order groups ---


def test_siblings_share_the_text_and_differ_where_the_order_decides() -> None:
    for tasks in orders().values():
        for one, other in zip(tasks[::2], tasks[1::2], strict=True):
            assert one.group == other.group and one.track == other.track
            assert one.gold["input_text"] == other.gold["input_text"]
            assert one.gold["recipe"] == other.gold["recipe"][::-1]
            same = normalise(one.gold["text"]) == normalise(other.gold["text"])
            assert same == (not one.meta["sensitive"])
    tasks = orders()["train_rl"]
    assert [t.track for t in tasks].count("order_m") == len(tasks) / 2 == 20
