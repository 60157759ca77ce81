"""Thoughts before an answer are set apart, whatever marks them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.cdr.refinement import gold_answer, score_refinement
from rewards.cdr.structured import gold_response, score_structured
from rewards.families import score_answer
from rewards.parse import render
from rewards.task import Answer, Task
from rewards.thoughts import answer_after_thoughts

PAIRS = [
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<reasoning>", "</reasoning>"),
]
WORDS = st.text(alphabet="abc <>/{}\n", max_size=30)


@given(st.sampled_from(PAIRS), WORDS, WORDS)
def test_what_follows_a_thought_is_the_answer(
    pair: tuple[str, str], thought: str, answer: str
) -> None:
    said = f"{pair[0]}{thought}{pair[1]}\n\n{answer}"
    assert answer_after_thoughts(said) == answer.lstrip()


@given(st.lists(WORDS, min_size=1, max_size=4), WORDS)
def test_several_thoughts_are_set_apart(thoughts: list[str], answer: str) -> None:
    said = "".join(f"<think>{t}</think>\n" for t in thoughts) + answer
    assert answer_after_thoughts(said) == answer.lstrip()


@given(WORDS, WORDS)
def test_a_template_may_have_opened_the_thought(thought: str, answer: str) -> None:
    assert answer_after_thoughts(f"{thought}</think>\n{answer}") == answer.lstrip()


@given(st.sampled_from(PAIRS), WORDS)
def test_an_unclosed_thought_is_no_answer(pair: tuple[str, str], thought: str) -> None:
    assert answer_after_thoughts(pair[0] + thought) == ""


@given(st.text())
def test_a_text_without_marks_is_left_as_it_is(text: str) -> None:
    if not any(mark in text for pair in PAIRS for mark in pair):
        assert answer_after_thoughts(text) == text


@pytest.mark.parametrize("text", ["a </think> b", "<think>a</think> b", "<think> and no more"])
def test_a_mark_that_gold_holds_is_text(text: str) -> None:
    assert answer_after_thoughts(text, text) == text
    gold = {"input_text": f"  {text}  ", "status": "KEEP", "text": text}
    assert score_refinement(gold, gold_answer(gold)).outcome == 1.0
    task = Task("t", "refinement", "atomic_m", "train", [], gold)
    assert score_answer(task, Answer(gold_answer(gold))).outcome == 1.0


@pytest.mark.parametrize("mark", ["<think></think>", "</think>", "<think>", "[THINK]"])
def test_hostile_repetition_takes_linear_time(mark: str) -> None:
    assert answer_after_thoughts(mark * 200_000) == ""


GOLD = {"input_text": "a  b", "status": "DROP", "text": "a b"}


@pytest.mark.parametrize("parsing", ["strict", "release"])
def test_both_readings_of_a_tagged_answer_pass_over_a_thought(parsing: str) -> None:
    whole = gold_answer(GOLD)
    for thought in ("<think>easy</think>", "<think>KEEP? " + render("KEEP", "x") + "</think>\n"):
        assert score_refinement(GOLD, thought + whole, parsing).outcome == 1.0
    assert score_refinement(GOLD, "<think>" + whole, "strict").reward == 0.0


@pytest.mark.parametrize("parsing", ["strict", "release"])
def test_json_after_a_thought_is_read(parsing: str) -> None:
    row = {"input_text": "x", "reference_text": "", "reference_json": {"safe": True}}
    said = '<think>perhaps {"safe": false}</think>\n' + gold_response(row)
    score = score_structured(row, said, parsing)
    assert (score.outcome, score.reward) == (1.0, 1.0)
