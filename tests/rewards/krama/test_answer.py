"""The answer scorer's laws, the deterministic judge, and the endpoint judge against a server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from chat_server import Body, Raw, serving
from hypothesis import example, given, settings
from hypothesis import strategies as st
from places import tables

from assay.http_client import ChatEndpoint, Patience
from rewards.krama.answer import (
    ANSWER_TYPES,
    READINGS,
    as_list,
    equal,
    pairs_found,
    score_response,
    table3,
)
from rewards.krama.episode import ANSWER, read_text, score_episode, score_row
from rewards.krama.judge import deterministic, endpoint_judge, judged_coverage
from rewards.krama.release import bleu, rouge1
from rewards.score import score_lines

TABLES = tables("krama")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.text(max_size=20),
    st.floats(allow_nan=True, allow_infinity=True),
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=3), v, max_size=2)
)
golds = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs")), min_size=1, max_size=30)
    .map(str.strip)
    .filter(bool),
    st.lists(st.one_of(st.integers(0, 99), st.text("abc XY", min_size=1).filter(str.strip))),
)


@settings(max_examples=30)
@given(st.sampled_from(ANSWER_TYPES), golds, values, st.sampled_from(READINGS))
def test_any_response_gets_a_score_in_range(kind: str, gold: Any, answer: Any, how: str) -> None:
    for response in (answer, {"answer": answer}):
        score = score_response(kind, gold, response, how)  # type: ignore[arg-type]
        assert score == score_response(kind, gold, response, how)  # type: ignore[arg-type]
        assert (score.outcome is None) == (score.reward is None)
        if how == "table3":
            assert score.outcome is not None
        assert score.outcome is None or 0.0 <= score.outcome <= 1.0
        json.dumps(score.to_json(), allow_nan=False)


@given(st.sampled_from(ANSWER_TYPES), golds)
@example("list_exact", "Infinity")
def test_gold_scores_one(kind: str, gold: Any) -> None:
    assert score_response(kind, gold, {"answer": gold}).outcome == 1.0


lists = st.lists(
    st.sampled_from(["a", "A ", "b", 1, 1.0, "1", 2, None, True, ["a", 1]]), max_size=9
)


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


@pytest.mark.parametrize(
    ("said", "target", "yes", "path"),
    [
        ("US Space Force", "U.S. Space Force", True, "equal"),
        ("the great basin", "Great Basin", True, "equal"),
        ("1.5", "15", False, "numbers"),
        ("-0.01", "0.01", False, "numbers"),
        ("Yes, they did", "True", True, "pole"),
        ("No.", "Yes", False, "pole"),
        ("They are different", "same", False, "pole"),
        ("yes and no", "yes", False, "words"),
        ("Northwest, 2021", "Northwest, 2020", False, "numbers"),
        ("It was the Northwest in 2020", "Northwest, 2020", True, "words"),
        ("The Great Basin Area requested the most.", "Great Basin Area", True, "words"),
        ("not the Great Basin Area", "Great Basin Area", False, "words"),
        ("Great Basin", "Great Basin Area", False, "words"),
        ("", "Great Basin", False, "words"),
        ("Basin " * 50 + "Great", "Great Basin", False, "words"),
        ("x" * 10_000, "Great Basin", False, "too_long"),
        ("…", "!", False, "equal"),
        ("Atlanta, Georgia", "Atlanta", True, "words"),
        ("Boston, Dallas, Atlanta", "Atlanta", False, "several answers"),
        ("Atlanta or Boston", "Atlanta", False, "several answers"),
        ("the city of Rome is larger than Milan", "Rome is larger than Milan", True, "words"),
        ("Milan is larger than Rome", "Rome is larger than Milan", False, "order"),
    ],
)
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


@pytest.mark.parametrize(
    ("kind", "target", "answer", "reward"),
    TABLES["an_order_that_the_question_fixes_is_paid_and_not_the_outcome"],
)
def test_an_order_that_the_question_fixes_is_paid_and_not_the_outcome(
    kind: str, target: Any, answer: Any, reward: float
) -> None:
    score = score_response(kind, target, {"answer": answer}, ordered=True)
    assert (score.outcome, score.reward) == (1.0, reward)
    assert score.parts["in_order"] == reward and (score.why == "wrong_order") == (not reward)
    assert score_response(kind, target, {"answer": answer}).reward == 1.0
    gold = {"answer_type": kind, "answer": target, "ordered": True}
    row = {"task": gold, "response": {"answer": answer}}
    assert score_row(row).reward == reward
    left = json.dumps({"response": {"answer": answer}}).encode()
    assert score_episode(gold, "", {ANSWER: left}, False).reward == reward


def test_reading_a_message_is_linear_in_it() -> None:
    """Openings that are never closed are looked at once."""
    assert read_text("<answer>" * 20_000) == {}
    assert read_text("```json {" * 20_000) == {}
    assert read_text("<answer>1</answer> <answer> 2 </answer><answer>") == {"answer": "2"}
    assert read_text('so ```json\n{"answer": 3}\n``` and ```{"x": 1}```') == {"answer": 3}


def test_assay_score_rows() -> None:
    row = {
        "id": 1,
        "family": "answer",
        "reading": "table3",
        "judge": None,
        "task": {"answer_type": "string_approximate", "answer": "Great Basin Area"},
        "response": {"answer": "the Great Basin Area"},
    }
    good = next(score_lines([json.dumps(row)]))
    assert (good["outcome"], good["why"]) == (1.0, "ok (equal)")
    faults: list[tuple[str, dict[str, Any]]] = [
        ("reading", {"reading": "paper"}),
        ("judge", {"judge": "maybe"}),
        ("answer_type", {"task": {"answer": 1}}),
        ("answer_type", {"task": {"answer_type": "number", "answer": 1}}),
        ("task", {"task": 3}),
        ("response", {"response": "left out"}),
    ]
    for word, change in faults:
        bad = {name: value for name, value in (row | change).items() if value != "left out"}
        assert word in next(score_lines([json.dumps(bad)]))["error"]
    no = next(score_lines([json.dumps({**row, "judge": "no"})]))
    assert no["outcome"] == 0.0
    released = next(score_lines([json.dumps({**row, "judge": "no", "reading": "release"})]))
    assert 0.5 < released["outcome"] < 1.0  # BLEU opens the gate to ROUGE's partial credit


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


@pytest.mark.parametrize(
    ("answer", "reward"), TABLES["a_text_that_lists_every_name_earns_nothing_where_names_are_asked"]
)
def test_a_text_that_lists_every_name_earns_nothing_where_names_are_asked(
    answer: str, reward: float
) -> None:
    """The outcome stays the benchmark's; only what training pays is changed."""
    gold = {"answer_type": "string_approximate", "answer": "north, salt", "names_only": True}
    score = score_row({"task": gold, "output": answer})
    assert (score.outcome, score.reward) == (1.0, reward)
    left = {"answer.json": json.dumps({"response": {"answer": answer}}).encode()}
    episode = score_episode(gold, "", left, False)
    assert (episode.outcome, episode.reward) == (1.0, reward)
    assert score_row({"task": gold | {"names_only": False}, "output": answer}).reward == 1.0


def test_a_rounded_target_is_reported_but_not_paid() -> None:
    score = score_response("numeric_exact", 10.87, {"answer": 10.8712})
    assert (score.outcome, score.parts["right_after_rounding"]) == (0.0, 1.0)
    assert (
        score_response("numeric_exact", 10.87, {"answer": 10.88}).parts["right_after_rounding"]
        == 0.0
    )


def test_bleu_and_rouge_by_hand() -> None:
    assert bleu("abcd", "abcd") == 1.0
    assert bleu("", "abc") == 0
    # orders 1 to 3 are perfect, order 4 too, but three characters of seven are missing
    assert bleu("abcd", "abcdefg") == pytest.approx(math.exp(1 - 7 / 4))
    assert bleu({"abcd": 1}, "abcd") == 0  # an object's items are its keys
    assert 0 < bleu({"a": 1}, "a") < 1e-200
    assert rouge1("Space Force!", "U.S. Space Force") == (1.0, 0.5, pytest.approx(2 / 3))


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


def test_a_list_in_its_order_but_for_one_earns_a_part() -> None:
    want = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]
    score = score_response("list_approximate", want, {"answer": [*want[:-1], 1.0]}, ordered=True)
    assert 0.0 < (score.reward or 0.0) < 0.5 and score.parts["in_order"] == 0.0
