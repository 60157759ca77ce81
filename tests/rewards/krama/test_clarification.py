"""What counts as asking the user back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.krama.clarification import asks_back
from rewards.krama.failure import category


@pytest.mark.parametrize(
    "text",
    [
        "Before I start: could you clarify which of the two towns is meant?",
        "Please provide the file for 2021.",
        "I found two columns. Do you want the mean of Jun or of Jul?",
        "Should I treat M as missing?",
        "I need clarification on the units",
        "<think>Should I ask?</think>The question is not clear. Can you tell me the year?",
        "```python\nprint(1)\n```\nWould you like the raw number instead?",
    ],
)
def test_a_message_to_the_user_asks_back(text: str) -> None:
    assert asks_back(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Which column holds the year? It is 'Year'.",
        "Let me look at the files first. What do they hold?",
        "```python\n# could you clarify this?\nprint('please provide a file')\n```",
        "<think>Should I ask? Could you clarify?</think>The mean is 1.5.",
        "I need more rows of this file, so I read them.",
        'Plan:\n```json\n[{"query": "Should I drop M?"}]\n```\nDone.',
        "The units are clear. I should compute the mean.",
    ],
)
def test_work_and_thoughts_do_not(text: str) -> None:
    assert not asks_back(text)


@given(st.text(max_size=400))
def test_any_text_is_decided(text: str) -> None:
    assert asks_back(text) in (True, False)
    assert not asks_back(f"```\n{text.replace('`', '')}")


def test_long_texts_take_no_long_time() -> None:
    for part in ("should I ", "could you please ", "```", "<think>", "?", "I need "):
        asks_back(part * 20_000)


def test_the_cause_of_a_failure_names_it() -> None:
    gold = {"answer_type": "numeric_exact", "answer": 3}
    question = "Could you tell me which year is meant?"
    assert category(gold, None, 0.0, "no_code", "", [], True) == "asked_back"
    assert category(gold, question, 0.0, "answered", "", [], True) == "asked_back"
    assert category(gold, None, 0.0, "no_code", "", []) == "contract_broken"
    assert category(gold, 300, 0.0, "answered", "", [], True) == "scale_slip"
    assert category(gold, 3, 1.0, "answered", "", [], True) == "right"
