"""Every operator's words against what it does: agreed changes stand, all others are named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from data_gen.cdr.documents import ALL_MAPPERS, CALIBRATED_FILTERS, mapped
from data_gen.cdr.instruct import CONDITIONS, CONDITIONS_TO_THE_LETTER
from data_gen.cdr.instruct import TO_THE_LETTER as LONGER
from data_gen.cdr.said import (
    COUNTED_TO_THE_LETTER,
    COUNTS,
    FIGURES,
    READINGS,
    UNSETTLED,
    decided_in,
    manner_of,
)
from rewards.gold import Step, bind

# (operator, text, which manner of its words says what it does to the text; null: none does)
TEXTS: list[tuple[str, str, int | None]] = json.loads(
    (ROOT / "tests" / "data" / "cdr_said.json").read_text(encoding="utf-8")
)


def test_every_operator_that_rows_are_built_from_is_judged() -> None:
    assert {*READINGS, FIGURES} == set(ALL_MAPPERS)
    longer = {name: len(own) - 1 for name, own in READINGS.items() if len(own) > 1}
    assert longer | {FIGURES: 1} == {name: len(own) for name, own in LONGER.items()}
    assert {name for name, _ in CONDITIONS} == set(COUNTS) == set(CALIBRATED_FILTERS)
    assert {name for name, _ in CONDITIONS_TO_THE_LETTER} == set(COUNTED_TO_THE_LETTER)
    assert {operator for operator, _, manner in TEXTS if manner == 0} == set(ALL_MAPPERS)


@pytest.mark.parametrize(("operator", "text", "manner"), TEXTS)
def test_a_change_is_said_by_the_first_words_that_say_it(
    operator: str, text: str, manner: int | None
) -> None:
    found = manner_of(operator, text, mapped(operator, text))
    assert isinstance(found, str) if manner is None else found == manner


@pytest.mark.parametrize("operator", sorted(ALL_MAPPERS))
@settings(max_examples=15)
@given(st.lists(st.sampled_from([text for _, text, _ in TEXTS] + ["\n", "<", " % "])))
def test_any_text_is_judged_and_an_operator_that_does_nothing_is_found_out(
    operator: str, pieces: list[str]
) -> None:
    text = " ".join(pieces)
    manner_of(operator, text, mapped(operator, text))
    for number, reading in enumerate(READINGS.get(operator, ())):
        if (said := reading(text)) is None:
            continue
        found = manner_of(operator, text, said)
        assert isinstance(found, int) and found <= number
        if not number and said != text:
            assert manner_of(operator, text, text) != 0


RUNS = "abcdefghijk" * 4 + "0123456789zyxwvutsrqponml"  # 33 runs again, 14 of the commonest


@pytest.mark.parametrize(
    ("name", "bound", "text", "keep", "manner"),
    [
        ("words_num_filter", {"min_num": 3}, "one two three four", True, 0),
        ("words_num_filter", {"min_num": 3}, "one two", False, 0),
        ("words_num_filter", {"min_num": 3}, "one two 3", False, 1),  # is 3 a word?
        ("words_num_filter", {"min_num": 3}, "one two 3", True, UNSETTLED),
        ("average_line_length_filter", {"max_len": 4}, "abc\nabc\n", True, 0),
        ("average_line_length_filter", {"max_len": 4}, "abcd\nabcd\n", False, 1),  # 5 with its end
        ("average_line_length_filter", {"max_len": 4}, "abcd\nabcd\n", True, UNSETTLED),
        ("character_repetition_filter", {"max_ratio": 0.2}, "abcdefghijklmnopqrst", True, 0),
        ("character_repetition_filter", {"max_ratio": 0.2}, "-" * 40, False, 0),
        ("character_repetition_filter", {"max_ratio": 0.2}, RUNS, False, 1),
        ("alphanumeric_filter", {"min_ratio": 0.5}, "ab--", False, UNSETTLED),
    ],
)
def test_a_verdict_stands_where_all_ways_of_counting_agree(
    name: str, bound: dict[str, Any], text: str, keep: bool, manner: int | str
) -> None:
    assert decided_in(Step(name, bound), text, keep) == manner


@pytest.mark.parametrize("name", CALIBRATED_FILTERS)
@given(st.text("ab 1.\n", max_size=60), st.integers(0, 40))
@settings(max_examples=30)
def test_a_filter_decides_as_its_longer_words_count(name: str, text: str, bound: int) -> None:
    low, high = bind(Step(name)).operator.bounds
    step = Step(name, {low: None, high: bound / 40 if low.endswith("ratio") else bound})
    keep, _ = bind(step).judge(text)
    manner = decided_in(step, text, keep)
    assert decided_in(step, text, not keep) != 0 or manner != 0
    if name == "character_repetition_filter":
        assert manner != UNSETTLED
