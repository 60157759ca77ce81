"""Demo and order tasks: gold from their own words, splits that share nothing, settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from demo_splits import demo_splits
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import Task, TaskError, read_tasks
from data_gen.corpora import Corpus, read_corpus, shared_passages
from data_gen.demo.cli import order
from data_gen.demo.inject import WEAVERS, Woven, weave, weave_markup, wrap
from data_gen.demo.refinements import BRIEF, THRESHOLDS, DemoBuilder, OrderBuilder
from data_gen.demo.settings import (
    FILTER_FORMS,
    FILTERS,
    MAPPER_FORMS,
    POLARITIES,
    PRESETS,
    OrderSettings,
    filter_step,
    preset,
    read_requirement,
    say_recipe,
)
from rewards.cdr.score import always_drop, copy_input, gold_answer, score_refinement
from rewards.gold import OPERATORS, Step, execute
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
        assert (run.states, run.full_run_text) == (task.gold["states"], task.gold["full_run_text"])
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
    assert (len(sft), len(rl), len(heldout)) == (60, 60, 96)
    assert Counter(t.meta["class"] for t in heldout) == {"keep": 32, "keep_filter": 32, "drop": 32}
    for split in built():
        said: dict[str, Counter[str]] = {}
        for task in (t for t in split if t.meta["has_filter"]):
            said.setdefault(task.meta["requirement"], Counter())[task.gold["status"]] += 1
            spoken = task.meta["filter"]  # and filters leave a wide margin
            scale = 100 if spoken["operator"] == "alphanumeric_filter" else 1
            share = spoken["statistic"] * scale / spoken["number"]
            assert share <= 0.55 or share >= 1.8
            kept = task.gold["status"] == "KEEP"
            assert (share > 1) == ((spoken["direction"] == "min") == kept)
        assert said and all(counts["KEEP"] == counts["DROP"] for counts in said.values())


def test_lazy_answers_succeed_nowhere_but_where_nothing_was_to_do() -> None:
    for task in built()[2]:
        assert not score_refinement(task.gold, copy_input(task.gold)).outcome
        if score_refinement(task.gold, always_drop(task.gold)).outcome:
            assert task.gold["text"] == task.gold["input_text"]


def test_held_out_tasks_share_nothing_with_training_and_do_not_depend_on_its_counts() -> None:
    for difficulty in PRESETS:
        sft, rl, heldout = built(difficulty)
        pairs = shared_passages({"train_sft": sft, "train_rl": rl, "heldout": heldout})
        assert list(pairs) == ["train_sft and heldout", "train_rl and heldout"]
        assert not any(n for pair in pairs.values() for n in pair.values())
        inputs = [t.gold["input_text"] for t in (*sft, *rl, *heldout)]
        assert len({*inputs}) == len(inputs)
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
            assert one.prompt[0]["content"] == BRIEF
    tasks = orders()["train_rl"]
    assert [t.track for t in tasks].count("order_m") == len(tasks) / 2 == 20
    for task in (t for t in tasks if t.track == "order_m"):  # the sentence once, or twice
        text = normalise(task.gold["text"])
        half = text[: (len(text) - 1) // 2]
        assert (text == f"{half} {half}") == (task.meta["order_slot"] == "swap_0_1")
        assert task.gold["status"] == "KEEP" and not task.meta["has_filter"]


@pytest.mark.parametrize(("asked", "groups"), [("", 2), ("validation=1", 1)])
def test_validation_is_a_third_of_heldout_unless_it_is_set(
    asked: str, groups: int, tmp_path: Path
) -> None:
    small = ["train_sft=2", "train_rl=2", "heldout=6", *asked.split()]
    assert order(["--out", str(tmp_path / "made"), *small]) == 0
    assert len(read_tasks(tmp_path / "made" / "validation.jsonl")) == 2 * groups


# --- words and texts ---


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(sorted(MAPPER_FORMS)), max_size=3),
    st.sampled_from(sorted(FILTER_FORMS)),
    st.integers(0, 3),
)
def test_a_wording_reads_back_to_its_recipe(
    seed: int, mappers: list[str], kind: tuple[str, str], place: int
) -> None:
    steps = [Step(name) for name in mappers]
    steps.insert(place, filter_step(*kind, THRESHOLDS[kind[0]][0]))
    assert read_requirement(say_recipe(steps, Random(seed), 3, POLARITIES)) == steps
    assert {*FILTERS} == {*THRESHOLDS}


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from(sorted(WEAVERS)))
def test_what_a_weaver_puts_in_its_operator_takes_out(seed: int, operator: str) -> None:
    prose = 'The server keeps a copy. It\'s "safe" to restart the worker at any time.'
    woven = weave(prose, [operator], Random(seed))
    assert woven.items and normalise(woven.render()) != normalise(prose)
    cleaned = execute(woven.render(), [Step(operator)]).text
    assert normalise(cleaned) == normalise(woven.render([operator]))
    lines = wrap(woven, 12).body.split("\n")  # which never start with something to delete
    assert not any(line[:1] >= "\ue000" for line in lines[1:])


def test_real_markup_becomes_items_and_lines_are_wrapped() -> None:
    woven = weave_markup('See <a href="x.html">this &amp; that</a>.')
    assert woven.render(["clean_html_mapper"]) == "See this & that."
    assert wrap(Woven("a b c"), 3).body == "a b\nc"
