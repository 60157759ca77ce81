"""Thoughts before an answer are set apart, whatever marks them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables
from thought_forms import FORMS, UNENDED, filled

from assay.family import THOUGHT, score_answer
from assay.task import Answer, Task
from assay.thoughts import MARKS, answer_after_thoughts, parted
from rewards.cdr.score import gold_answer, score_refinement

TABLES = tables("assay")

ANSWERS = TABLES["thoughts_answers"]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("form", FORMS)
def test_the_answer_of_every_form(form: str, answer: str) -> None:
    found = parted(filled(FORMS[form], answer))
    assert (found.answer, found.ended) == (answer, True)


PIECES = [mark for pair in MARKS for mark in pair]
PIECES += ["<answer>", "</answer>", "<|return|>", "```\n", "`", '"', "a", " ", "Here is my"]
PIECES += ["Here is my thought process:", "Here is my response:", "analysis", "assistantfinal"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_row_of_marks_is_read(text: str) -> None:
    """It never raises, and what it calls the answer stands in the message."""
    found = parted(text)
    assert found.answer in text and (found.ended or not found.answer)
    assert parted(text, found.answer) == parted(text, lambda: found.answer)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_gold_with_marks_is_its_own_answer(text: str) -> None:
    assert answer_after_thoughts(text, text).strip() == text.strip()


@pytest.mark.parametrize("text", ["a </think> b", "<think>a</think> b", "<think> and no more"])
def test_a_mark_that_gold_holds_is_text(text: str) -> None:
    assert answer_after_thoughts(text, text) == text
    gold = {"input_text": f"  {text}  ", "status": "KEEP", "text": text}
    task = Task("t", "refinement", "atomic_m", "train", [], gold)
    for thought in ("", "<think>hm</think>\n", "<thinking>hm</thinking>"):
        said = thought + gold_answer(gold)
        assert score_refinement(gold, said).outcome == 1.0
        assert score_refinement(gold, said, "release").outcome == 1.0
        assert score_answer(task, Answer(said)).outcome == 1.0


def test_tags_that_the_prompt_asks_for_stay() -> None:
    said = "<think>hm</think><answer>5</answer>"
    assert answer_after_thoughts(said) == "5"
    assert answer_after_thoughts(said, "<answer>4</answer>") == "<answer>5</answer>"
    assert answer_after_thoughts(said, "4", "Write <answer>…</answer>.") == "<answer>5</answer>"


HOSTILE = ["<think></think>", "</think>", "<think> a ", "[THINK]", "```\n<think></think>\n```\n"]
HOSTILE += ['"<think>"</think>', "analysisassistantfinal", "<answer>"]


@pytest.mark.parametrize("mark", HOSTILE)
def test_hostile_repetition_takes_linear_time(mark: str) -> None:
    assert len(parted("<think>" + mark * 200_000).answer) < 9


GOLD = {"input_text": "a  b", "status": "DROP", "text": "a b"}


@pytest.mark.parametrize("form", UNENDED)
def test_a_score_says_that_the_thought_did_not_end(form: str) -> None:
    row = {"input_text": "x", "reference_text": "", "reference_json": {"safe": True}}
    for task in (
        Task("t", "refinement", "atomic_m", "train", [], GOLD),
        Task("t", "structured", "s", "train", [], row),
        Task("t", "answer", "a", "train", [], {"answer": 5, "answer_type": "numeric_exact"}),
    ):
        for cut in (False, True):
            score = score_answer(task, Answer(UNENDED[form], cut))
            assert (score.outcome, score.reward, score.why) == (0.0, 0.0, THOUGHT)
    left = {"answer.json": b'{"response": {"answer": 5}}'}  # what an agent handed in stands
    score = score_answer(task, Answer(UNENDED[form], files=left))
    assert score.outcome == 1.0
