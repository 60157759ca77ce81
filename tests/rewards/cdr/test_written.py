"""Answers that write their states: what is read, and what gold writes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from demo_splits import demo_splits
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from assay.task import TaskError
from data_gen.corpora import read_corpus
from data_gen.demo.refinements import STATES_SYSTEM, OrderBuilder, with_states
from data_gen.demo.settings import OrderSettings, preset
from rewards.cdr.recipes import bound_recipe, recipe_of, written
from rewards.cdr.score import gold_answer, score_refinement, split_written
from rewards.gold import run_bound
from rewards.parse import render
from rewards.weights import RefinementReward

TABLES = tables("cdr")

SUCCESS = RefinementReward(format=0, status=0, progress=0, success=1)
POST = TABLES["written_post"]


def reward(output: str, gold: dict[str, Any] = POST) -> tuple[float | None, float | None]:
    score = score_refinement(gold, output, weights=SUCCESS)
    return score.outcome, score.reward


GOOD = render("DROP", "Call us:")


@pytest.mark.parametrize("output", TABLES["states_without_a_result_in_its_place_earn_nothing"])
def test_states_without_a_result_in_its_place_earn_nothing(output: str) -> None:
    assert reward(output) == (0.0, 0.0)


PIECES = st.sampled_from(
    ["<state>", "</state>", "<check>", "</check>", GOOD, "Call us:", "8 < 50: DROP", "KEEP", "\n"]
)
OUTPUTS = st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=12).map("".join)


@settings(max_examples=60)
@given(OUTPUTS)
def test_reading_never_raises_and_never_pays_more_than_gold(output: str) -> None:
    _, rest = split_written(output)
    assert output.endswith(rest)
    outcome, earned = reward(output)
    assert outcome in (0.0, 1.0) and earned is not None and 0.0 <= earned <= 1.0
    # the result alone decides the outcome
    assert outcome == score_refinement(POST, rest).outcome
    if outcome == 0.0:
        assert earned < 0.5


@pytest.mark.parametrize(("operator", "params", "text", "said"), TABLES["checks"])
def test_a_check_says_number_bound_and_verdict(
    operator: str, params: dict[str, Any], text: str, said: str
) -> None:
    gold = {"input_text": text, "recipe": [{"operator": operator, "params": params}]}
    steps = bound_recipe(gold)
    assert written(recipe_of(gold), steps, run_bound(text, steps)) == [f"<check>{said}</check>"]


def test_gold_writes_every_executed_state_and_scores_one() -> None:
    few = OrderSettings(train_sft=6, train_rl=12, heldout=3, mapper_share=0.5, states=True)
    order = OrderBuilder(few, 0).splits(read_corpus(None))["train_rl"]
    hard = preset("hard", train_sft=12, train_rl=4, heldout=4, states=True)
    for task in (*order, *demo_splits(read_corpus(None), hard, 0)[0]):
        assert task.prompt[0]["content"] == STATES_SYSTEM
        run = run_bound(str(task.gold["input_text"]), bound_recipe(task.gold))
        assert len(task.gold["written"]) == len(run.trace)
        entries, result = split_written(gold_answer(task.gold))
        assert result == render(run.status, run.text)
        texts = [said for kind, said in entries if kind == "state"]
        assert texts == run.states[1 : len(texts) + 1]
        assert all(f": {run.status}" in e[1] for e in entries[-1:] if e[0] == "check")
        assert reward(gold_answer(task.gold), task.gold) == (1.0, 1.0)
        assert task.meta["answer_tokens"] >= 128
    task = next(t for t in order if t.track == "order_m")
    gold = json.loads(json.dumps(task.gold).replace(task.gold["input_text"][:5], "a <check> b"))
    with pytest.raises(TaskError, match="tag of the states' format"):
        with_states(replace(task, gold=gold))
