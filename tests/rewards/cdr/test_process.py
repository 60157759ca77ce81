"""Training signals: per-step credit, the order-group reward, counterfactual attribution."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.corpora import read_corpus
from data_gen.demo.order import OrderSettings, build_order_tasks
from rewards.cdr.groups import group_bonuses, with_group_reward
from rewards.cdr.recipes import attribute, check_steps, process_credit
from rewards.cdr.refinement import RefinementReward, score_refinement
from rewards.gold import Step, execute
from rewards.parse import render
from rewards.task import Score

TEXT = "Write to ana@acme.io or see https://example.org now. Then <b>stop</b> here."
RECIPE = (
    Step("clean_email_mapper"),
    Step("clean_html_mapper"),
    Step("text_length_filter", {"min_len": 20}),
    Step("clean_links_mapper"),
)


def gold(steps: tuple[Step, ...] = RECIPE, text: str = TEXT) -> dict[str, Any]:
    run = execute(text, steps)
    recipe = [{"operator": s.operator, "params": s.params} for s in steps]
    return {"input_text": text, "status": run.status, "text": run.text, "recipe": recipe}


DROPPING = (RECIPE[0], Step("text_length_filter", {"min_len": 500}), RECIPE[1])


@pytest.mark.parametrize("steps", [RECIPE, DROPPING])
def test_gold_earns_all_and_lazy_answers_nothing(steps: tuple[Step, ...]) -> None:
    task = gold(steps)
    assert process_credit(task, task["status"], task["text"]) == 1.0
    assert process_credit(task, task["status"], "") == 0.0
    checks = check_steps(task, task["status"], TEXT)
    assert not any(c.done for c in checks if c.kind == "mapper" and c.wanted)
    assert process_credit(gold(RECIPE), "KEEP", TEXT) == 0.0


def test_half_the_steps_earn_about_half() -> None:
    task = gold()
    half = execute(TEXT, RECIPE[:1]).text
    assert 0.1 < process_credit(task, "KEEP", half) < 0.6


def test_a_copy_earns_nothing_for_mappers_after_the_stop() -> None:
    """The filter drops the text before the last mapper; that a copy lacks it is no merit."""
    task = gold(DROPPING)
    assert process_credit(task, "DROP", TEXT) == 0.0


def test_gold_earns_one_without_the_analysis_that_its_mode_asks_for() -> None:
    task = gold() | {"mode": "plan_first"}
    answer = render(task["status"], task["text"])
    assert score_refinement(task, answer, weights=RefinementReward(process=1.0)).reward == 1.0


def test_a_step_after_the_stop_must_not_run() -> None:
    task = gold(DROPPING)
    run = execute(TEXT, DROPPING)
    assert process_credit(task, "DROP", run.full_run_text) < 1.0
    checks = {c.operator: c for c in check_steps(task, "DROP", run.full_run_text)}
    assert not checks["clean_html_mapper"].done
    assert checks["clean_email_mapper"].done


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["KEEP", "DROP", ""]))
def test_no_answer_earns_more_than_gold(text: str, status: str) -> None:
    weights = RefinementReward(process=1.0)
    for steps in (RECIPE, DROPPING):
        task = gold(steps)
        best = score_refinement(task, render(task["status"], task["text"]), "strict", weights)
        got = score_refinement(task, render(status, text), "strict", weights)
        assert best.reward == 1.0
        assert got.reward is not None
        assert 0.0 <= got.reward <= 1.0
        assert (got.reward < 1.0) or got.outcome == 1.0


def test_deleting_text_does_not_pay_more_than_copying() -> None:
    weights = RefinementReward(format=0, status=0, progress=0, success=1, process=1)
    task = gold()
    for lazy in ("", ".", TEXT[:5], TEXT):
        score = score_refinement(task, render("KEEP", lazy), "strict", weights)
        assert score.reward is not None
        assert score.reward < 0.1


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ((RECIPE[0], *RECIPE[2:]), "omitted"),
        ((RECIPE[2],), "no_op"),
    ],
)
def test_a_wrong_answer_is_explained_by_the_recipe_that_gives_it(
    steps: tuple[Step, ...], kind: str
) -> None:
    run = execute(TEXT, steps)
    assert attribute(gold(), run.status, run.text).kind == kind


def test_ignoring_the_filter_and_another_order_are_told_apart() -> None:
    task = gold(DROPPING)
    run = execute(TEXT, DROPPING)
    assert attribute(task, "KEEP", run.full_run_text).kind == "ignored_filter"
    early = execute(TEXT, (DROPPING[1], DROPPING[0], DROPPING[2]))
    assert attribute(task, early.status, early.text).kind in ("no_op", "omitted", "permuted")
    assert attribute(task, "DROP", "something else").kind == "none"


def scores(*outcomes: float | None) -> list[Score]:
    return [Score(o, None if o is None else o) for o in outcomes]


def test_an_order_earns_its_bonus_only_when_its_siblings_succeed() -> None:
    batch = [scores(1, 1, 0, 0), scores(1, 0, 0, 0), scores(1, 1, 1, 1)]
    assert group_bonuses(["a", "a", None], batch) == [0.25, 0.5, None]
    made = with_group_reward(["a", "a", None], batch, 1.0)
    assert [s.reward for s in made[0]] == [0.625, 0.625, 0.0, 0.0]
    assert [s.reward for s in made[2]] == [1.0] * 4
    assert made[0][0].parts["order_group"] == 0.25


def test_weight_zero_only_logs_and_failures_stay_without_outcome() -> None:
    batch = [scores(1, None), scores(0, 1)]
    made = with_group_reward(["a", "a"], batch, 0.0)
    assert [[s.reward for s in row] for row in made] == [[1, None], [0, 1]]
    assert made[0][1].parts == {}
    assert group_bonuses(["a", "a"], [scores(None), scores(1)]) == [1.0, None]


def test_order_tasks_differ_by_order_only_where_the_text_is_rejected() -> None:
    counts = OrderSettings(train_sft=4, train_rl=6, heldout=6)
    for split in build_order_tasks(read_corpus(), counts, 3).values():
        for pre, post in zip(split[::2], split[1::2], strict=True):
            assert pre.group == post.group
            assert pre.gold["input_text"] == post.gold["input_text"]
            assert (pre.gold["text"] != post.gold["text"]) == pre.meta["sensitive"]
