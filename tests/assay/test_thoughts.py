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

WORDS = st.text(alphabet="abc <>/{}\n", max_size=30)
ANSWERS = TABLES["thoughts_answers"]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("form", FORMS)
def test_the_answer_of_every_form(form: str, answer: str) -> None:
    found = parted(filled(FORMS[form], answer))
    assert (found.answer, found.ended) == (answer, True)


@pytest.mark.parametrize("form", [f for f in FORMS if "hm" in FORMS[f] and "long" not in f])
def test_what_was_thought_is_kept_without_its_marks(form: str) -> None:
    thought = parted(filled(FORMS[form], "5")).thought
    assert "hm" in thought and "5" not in thought
    assert not thought.startswith(tuple(opening for opening, _ in MARKS if "twice" not in form))


@given(st.sampled_from(MARKS), WORDS, WORDS)
def test_what_follows_a_thought_is_the_answer(
    pair: tuple[str, str], thought: str, answer: str
) -> None:
    said = f"{pair[0]}{thought}{pair[1]}\n\n{answer}"
    assert answer_after_thoughts(said) == answer.lstrip()


@given(st.sampled_from(MARKS), WORDS)
def test_an_unclosed_thought_is_no_answer(pair: tuple[str, str], thought: str) -> None:
    assert parted(pair[0] + thought).answer == ""
    assert not parted(pair[0] + thought).ended


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


HOSTILE = ["<think></think>", "</think>", "<think>", "[THINK]", "a<think></think>", "<think> a "]
HOSTILE += [
    "```\n<think></think>\n```\n",
    '"<think>"</think>',
    "analysisassistantfinal",
    "<answer>",
]


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("said", ['{"answer": 5}', "<answer>5</answer>", "so: <answer>5</answer>"])
def test_an_answer_in_words_is_read_after_a_thought(said: str, form: str) -> None:
    if "<answer>" in FORMS[form]:
        said = '{"answer": 5}'
    gold = {"answer": 5, "answer_type": "numeric_exact"}
    task = Task("t", "answer", "a", "train", [], gold)
    assert score_answer(task, Answer(filled(FORMS[form], said))).outcome == 1.0
