"""The answer scorer's laws, the deterministic judge, and the endpoint judge against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from chat_server import Body, Raw, serving
from hypothesis import example, given
from hypothesis import strategies as st
from places import tables

from assay.http_client import ChatEndpoint, Patience
from rewards.krama.answer import (
    ANSWER_TYPES,
    as_list,
    equal,
    pairs_found,
    score_response,
    table3,
)
from rewards.krama.episode import ANSWER, read_text, score_episode, score_row
from rewards.krama.judge import deterministic, endpoint_judge, judged_coverage
from rewards.score import score_lines

TABLES = tables("krama")

golds = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs")), min_size=1, max_size=30)
    .map(str.strip)
    .filter(bool),
    st.lists(st.one_of(st.integers(0, 99), st.text("abc XY", min_size=1).filter(str.strip))),
)


@given(st.sampled_from(ANSWER_TYPES), golds)
@example("list_exact", "Infinity")
def test_gold_scores_one(kind: str, gold: Any) -> None:
    assert score_response(kind, gold, {"answer": gold}).outcome == 1.0


ELEMENTS = ["a", "A ", "b", 1, 1.0, "1", 2, None, True, ["a", 1]]
lists = st.lists(st.sampled_from(ELEMENTS), max_size=9)


@given(lists, lists)
def test_fast_pairing_is_the_plain_one(said: list[Any], want: list[Any]) -> None:
    free = list(said)
    plain = 0
    for target in want:
        hit = next((i for i, element in enumerate(free) if equal(element, target)), None)
        if hit is not None:
            plain += 1
            del free[hit]
    assert pairs_found(said, want, equal, 1e-6) == plain


@pytest.mark.parametrize(("text", "want"), TABLES["lists_in_answers"])
def test_lists_in_answers(text: Any, want: Any) -> None:
    assert as_list(text) == want


@pytest.mark.parametrize(("kind", "gold", "answer", "want"), TABLES["table3"])
def test_table3(kind: str, gold: Any, answer: Any, want: float) -> None:
    assert table3(kind, gold, answer) == want


@pytest.mark.parametrize(("said", "target", "yes", "path"), TABLES["deterministic_judge"])
def test_deterministic_judge(said: str, target: str, yes: bool, path: str) -> None:
    verdict = deterministic(said, target)
    assert (verdict.yes, verdict.path) == (yes, path)


@pytest.mark.parametrize(
    ("kind", "target", "answer", "outcome", "reward"), TABLES["what_can_be_guessed_earns_little"]
)
def test_what_can_be_guessed_earns_little(
    kind: str, target: Any, answer: Any, outcome: float, reward: float
) -> None:
    score = score_response(kind, target, {"answer": answer})
    assert score.outcome == pytest.approx(outcome)
    assert score.reward == pytest.approx(reward)


def paid_alike(gold: dict[str, Any], answer: Any, reward: float) -> None:
    """In a row and in an episode: the outcome stays the benchmark's, what training pays changes."""
    left = json.dumps({"response": {"answer": answer}}).encode()
    row = {"task": gold, "response": {"answer": answer}}
    for score in (score_row(row), score_episode(gold, "", {ANSWER: left}, False)):
        assert (score.outcome, score.reward) == (1.0, reward)


@pytest.mark.parametrize(
    ("kind", "target", "answer", "reward"),
    TABLES["an_order_that_the_question_fixes_is_paid_and_not_the_outcome"],
)
def test_an_order_that_the_question_fixes_is_paid_and_not_the_outcome(
    kind: str, target: Any, answer: Any, reward: float
) -> None:
    gold = {"answer_type": kind, "answer": target}
    paid_alike(gold | {"ordered": True}, answer, reward)
    paid_alike(gold, answer, 1.0)
    score = score_response(kind, target, {"answer": answer}, ordered=True)
    assert score.parts["in_order"] == reward and (score.why == "wrong_order") == (not reward)


@pytest.mark.parametrize(
    ("answer", "reward"), TABLES["a_text_that_lists_every_name_earns_nothing_where_names_are_asked"]
)
def test_a_text_that_lists_every_name_earns_nothing_where_names_are_asked(
    answer: str, reward: float
) -> None:
    gold = {"answer_type": "string_approximate", "answer": "north, salt"}
    paid_alike(gold | {"names_only": True}, answer, reward)
    paid_alike(gold | {"names_only": False}, answer, 1.0)


def test_reading_a_message_is_linear_in_it() -> None:
    """Openings that are never closed are looked at once."""
    assert read_text("<answer>" * 20_000) == {}
    assert read_text("```json {" * 20_000) == {}
    assert read_text("<answer>1</answer> <answer> 2 </answer><answer>") == {"answer": "2"}
    assert read_text('so ```json\n{"answer": 3}\n``` and ```{"x": 1}```') == {"answer": 3}


def scored(**changes: Any) -> dict[str, Any]:
    row = TABLES["scored_row"] | changes
    (found,) = score_lines([json.dumps({k: v for k, v in row.items() if v is not None})])
    return found


def test_assay_score_rows() -> None:
    assert (scored()["outcome"], scored()["why"]) == (1.0, "ok (equal)")
    assert scored(judge="no")["outcome"] == 0.0
    released = scored(judge="no", reading="release")
    assert 0.5 < released["outcome"] < 1.0  # BLEU opens the gate to ROUGE's partial credit
    for word, change in TABLES["rows_that_cannot_be_scored"]:
        assert word in scored(**change)["error"]


def judge_reply(body: Body) -> str | int | Body | Raw:
    """The model's name says how."""
    if body["model"] == "words alone" and "logprobs" in body:
        return Raw([b'{"error": {"message": "logprobs are not supported"}}'], "text/json", 400)
    if body["model"] == "odds":
        top = [{"token": " No", "logprob": -0.2}, {"token": "Yes", "logprob": -2.0}]
        odds = {"content": [{"top_logprobs": top}]}
        return {"choices": [{"message": {"content": "?"}, "logprobs": odds}]}
    return 400 if body["model"] == "broken" else "Yes." if body["model"][0] == "w" else "?"


@pytest.fixture
def judge_server() -> Iterator[tuple[str, list[Body]]]:
    with serving(judge_reply) as found:
        yield found


def test_endpoint_judge(judge_server: tuple[str, list[Body]]) -> None:
    endpoint, asked = judge_server

    def ask(model: str) -> Any:
        judge = endpoint_judge(ChatEndpoint(endpoint, model, "", patience=Patience(1)))
        first = score_response("string_approximate", "b", {"answer": "a"}, judge=judge)
        assert score_response("string_approximate", "b", {"answer": "a"}, judge=judge) == first
        return first

    assert ask("w").outcome == 1.0
    assert ask("odds").outcome == 0.0
    assert len(asked) == 2  # verdicts are remembered
    assert ask("words alone").outcome == 1.0  # no odds to be had
    for model in ("silent", "broken"):
        score = ask(model)
        assert (score.outcome, score.reward) == (None, None)
        assert score.why.startswith("judge_failed")


def test_a_pipelines_steps_are_judged_one_request_each(
    judge_server: tuple[str, list[Body]],
) -> None:
    endpoint, asked = judge_server
    yes, no = (ChatEndpoint(endpoint, model, "", patience=Patience(1)) for model in ("w", "odds"))
    assert judged_coverage(["Load a", " ", "Sort b"], "print(1)", yes) == 1.0
    assert len(asked) == 2  # a blank step asks nothing
    assert judged_coverage(["Load a"], "print(1)", no) == 0.0
    assert judged_coverage(["Load a"], " ", yes) == 0.0
    assert judged_coverage([], "print(1)", yes) is None


def test_what_is_nearly_right_is_reported_and_earns_a_part() -> None:
    for said, near in ((10.8712, 1.0), (10.88, 0.0)):
        score = score_response("numeric_exact", 10.87, {"answer": said})
        assert (score.outcome, score.parts["right_after_rounding"]) == (0.0, near)
    want = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]
    score = score_response("list_approximate", want, {"answer": [*want[:-1], 1.0]}, ordered=True)
    assert 0.0 < (score.reward or 0.0) < 0.5 and score.parts["in_order"] == 0.0
