"""Every operator's words against what it does: agreed changes stand, all others are named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT, tables

from data_gen.cdr.documents import ALL_MAPPERS, CALIBRATED_FILTERS, mapped
from data_gen.cdr.said import (
    READINGS,
    UNSETTLED,
    decided_in,
    manner_of,
)
from rewards.gold import Step, bind

VERDICTS = tables("cdr_build")["a_verdict_stands_where_all_ways_of_counting_agree"]
# (operator, text, which manner of its words says what it does to the text; null: none does)
TEXTS: list[tuple[str, str, int | None]] = json.loads(
    (ROOT / "tests" / "data" / "cdr_said.json").read_text(encoding="utf-8")
)


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


@pytest.mark.parametrize(("name", "bound", "text", "keep", "manner"), VERDICTS)
def test_a_verdict_stands_where_all_ways_of_counting_agree(
    name: str, bound: dict[str, Any], text: str, keep: bool, manner: int | None
) -> None:
    assert decided_in(Step(name, bound), text, keep) == (UNSETTLED if manner is None else manner)


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
