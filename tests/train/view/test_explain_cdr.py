"""The step that went wrong, on recipes whose every state is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import INPUT, refinement

from assay.task import Answer, Task
from rewards.gold import Step, execute
from rewards.parse import render
from train.view.explain_cdr import attribute, explain

HTML, MAIL, WORDS = 0, 1, 2
KEPT = refinement(0)
DROPPED = refinement(1, least=30)


def found(task: Task, status: str, text: str) -> tuple[tuple[int, ...], str]:
    finding = explain(task, Answer(render(status, text))).finding
    return finding.wrong, finding.said


def test_the_work_is_the_recipe_as_gold_ran_it() -> None:
    work = explain(KEPT, Answer("")).work
    assert [s.name for s in work.steps][:2] == ["clean_html_mapper", "clean_email_mapper"]
    assert work.steps[HTML].after == "Ask tom at tom@acme.io or at ann@acme.io now."
    assert work.steps[WORDS].detail.endswith("measured num_words 6, wanted at least 3: keeps")
    assert (work.input, work.gold, work.label, work.unknown) == (
        INPUT,
        KEPT.gold["text"],
        "KEEP",
        "",
    )


@pytest.mark.parametrize("task", [KEPT, DROPPED])
def test_gold_is_right_at_every_step(task: Task) -> None:
    assert found(task, task.gold["status"], task.gold["text"])[0] == ()


def test_a_step_that_is_left_out_is_named() -> None:
    wrong, said = found(KEPT, "KEEP", "Ask tom at tom@acme.io or at ann@acme.io now.")
    assert wrong == (MAIL,)
    assert "when clean_email_mapper is left out" in said
    assert found(KEPT, "KEEP", "Ask <b>tom</b> at  or at  now.")[0] == (HTML,)


def test_a_step_that_is_done_by_half_is_named() -> None:
    wrong, said = found(KEPT, "KEEP", "Ask tom at  or at ann@acme.io now.")
    assert wrong == (MAIL,)
    assert "Step 2 (clean_email_mapper) removes 11 characters still there." in said


def test_the_input_as_it_came_names_every_step_that_changes_it() -> None:
    wrong, said = found(KEPT, "KEEP", INPUT)
    assert wrong == (HTML, MAIL)
    assert "when nothing is changed" in said


def test_a_wrong_status_is_the_filters() -> None:
    wrong, said = found(DROPPED, "KEEP", DROPPED.gold["text"])
    assert wrong == (WORDS,)
    assert "Step 3 (words_num_filter) rejects the text, and the answer says KEEP." in said
    wrong, said = found(KEPT, "DROP", KEPT.gold["text"])
    assert wrong == (WORDS,) and "keeps the text, and the answer says DROP" in said


def test_a_step_behind_the_rejecting_filter_is_named_when_it_is_carried_out() -> None:
    gold = dict(DROPPED.gold)
    gold["recipe"] = [gold["recipe"][2], gold["recipe"][0], gold["recipe"][1]]
    gold["text"] = INPUT
    task = replace(DROPPED, gold=gold)
    wrong, said = found(task, "DROP", "Ask tom at tom@acme.io or at ann@acme.io now.")
    assert wrong == (1,)
    assert "was not reached, and the answer carries it out" in said


def test_text_that_no_step_touches_is_said_and_no_step_is_blamed() -> None:
    wrong, said = found(KEPT, "KEEP", KEPT.gold["text"].replace("now", "soon, I think"))
    assert wrong == ()
    assert "that no step removes" in said and "neither the input nor gold" in said


def test_spaces_that_do_not_count_are_no_fault() -> None:
    finding = explain(KEPT, Answer(render("KEEP", "Ask tom at or at now."))).finding
    assert (finding.wrong, finding.spaces_only) == ((), True)


def test_an_answer_without_the_form_names_no_step() -> None:
    finding = explain(KEPT, Answer("I cannot")).finding
    assert (finding.wrong, finding.text) == ((), "I cannot")
    assert finding.said.startswith("No step can be named")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"recipe": None}, "carries no recipe"),
        ({"recipe": [{"operator": "no_such_mapper"}]}, "cannot be executed"),
        ({"text": "something else"}, "another text"),
    ],
)
def test_steps_that_are_not_known_are_said_to_be(change: dict[str, object], why: str) -> None:
    task = replace(KEPT, gold={**KEPT.gold, **change})
    got = explain(task, Answer(render("KEEP", "Ask tom")))
    assert why in got.work.unknown and got.work.steps == ()
    assert why in got.finding.said and got.finding.wrong == ()


@given(st.text(max_size=60), st.sampled_from(["KEEP", "DROP"]))
@settings(deadline=None, max_examples=80)
def test_nothing_that_a_model_writes_raises(text: str, status: str) -> None:
    for answer in (text, render(status, text), INPUT + text):
        got = explain(KEPT, Answer(answer))
        assert all(0 <= i < len(got.work.steps) for i in got.finding.wrong)


# ---- which change to the recipe gives a wrong answer

TEXT = "Write to ana@acme.io or see https://example.org now. Then <b>stop</b> here."
RECIPE = (
    Step("clean_email_mapper"),
    Step("clean_html_mapper"),
    Step("text_length_filter", {"min_len": 20}),
    Step("clean_links_mapper"),
)


def executed(steps: tuple[Step, ...] = RECIPE, text: str = TEXT) -> dict[str, Any]:
    run = execute(text, steps)
    recipe = [{"operator": s.operator, "params": s.params} for s in steps]
    return {"input_text": text, "status": run.status, "text": run.text, "recipe": recipe}


STOPPED = (RECIPE[0], Step("text_length_filter", {"min_len": 500}), RECIPE[1])


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
    assert attribute(executed(), run.status, run.text).kind == kind


def test_ignoring_the_filter_and_another_order_are_told_apart() -> None:
    task = executed(STOPPED)
    run = execute(TEXT, STOPPED)
    assert attribute(task, "KEEP", run.full_run_text).kind == "ignored_filter"
    early = execute(TEXT, (STOPPED[1], STOPPED[0], STOPPED[2]))
    assert attribute(task, early.status, early.text).kind in ("no_op", "omitted", "permuted")
    assert attribute(task, "DROP", "something else").kind == "none"
