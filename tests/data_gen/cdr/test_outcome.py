"""Requests for a result say what they mean, and are read back clause by clause."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.instruct import STYLES as ALL_STYLES
from data_gen.cdr.outcome import OutcomeError, read_outcome, say_outcome
from data_gen.cdr.phrases import CONDITIONS, CONDITIONS_TO_THE_LETTER, TO_THE_LETTER
from data_gen.cdr.settle import Judged, Outcome
from rewards.cdr.release_files import RESULT_STYLES as STYLES

LONGER = {name for name, _ in CONDITIONS_TO_THE_LETTER}


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    names = draw(st.lists(st.sampled_from(ALL_MAPPERS), max_size=8, unique=True))
    states = frozenset(
        (name, draw(st.integers(0, len(TO_THE_LETTER.get(name, ()))))) for name in names
    )
    couples = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    pairs = draw(st.sets(st.sampled_from(couples), max_size=5)) if couples else set()
    ahead = {pair for pair in pairs if draw(st.booleans())}
    judged = None
    before: frozenset[str] = frozenset()
    if not names or draw(st.booleans()):
        name, bound = draw(st.sampled_from(sorted(CONDITIONS)))
        ratio = bound.endswith("_ratio")
        value = draw(st.sampled_from([0.001, 0.76] if ratio else [5, 21000]))
        judged = Judged(name, bound, value, draw(st.integers(0, int(name in LONGER))))
        before = frozenset(draw(st.sets(st.sampled_from(names)))) if names else before
    return Outcome(states, frozenset(pairs - ahead), frozenset(ahead), judged, before)


@settings(max_examples=200, deadline=None)
@given(outcomes(), st.sampled_from(STYLES), st.integers(0, 2**32))
def test_every_request_is_read_back_to_what_it_says(
    outcome: Outcome, style: str, seed: int
) -> None:
    text = say_outcome(outcome, style, Random(seed))
    assert read_outcome(text) == (outcome, style)
    assert not re.search(r"_mapper|_filter|min_|max_", text)


@settings(max_examples=100, deadline=None)
@given(outcomes(), st.sampled_from(STYLES), st.integers(0, 2**32), st.integers(0, 900))
def test_a_changed_request_is_never_read_as_the_same(
    outcome: Outcome, style: str, seed: int, place: int
) -> None:
    text = say_outcome(outcome, style, Random(seed))
    place %= len(text)
    with pytest.raises(OutcomeError):
        read_outcome(text[:place] + "#" + text[place + 1 :])


EMAIL, LINKS = ("clean_email_mapper", 0), ("clean_links_mapper", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The goal is a text that holds no phone numbers.",
        "The goal is a text that holds no phone numbers, with no other change. ",
        "The goal is a text that holds no phone numbers, and no phone numbers, all else left as it "
        "is.",
        "The goal is a text that holds no phone numbers, with no other change. By the links I mean "
        "those there once the phone numbers are gone.",
        "The goal is a verdict, with the text left as it is.",
        "The goal is a text that , with no other change.",
    ],
)
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(OutcomeError):
        read_outcome(text)


def test_the_sentences_about_order_name_which_is_meant_when() -> None:
    once = Outcome(frozenset({EMAIL, LINKS}), once=frozenset({(EMAIL[0], LINKS[0])}))
    ahead = Outcome(frozenset({EMAIL, LINKS}), ahead=frozenset({(EMAIL[0], LINKS[0])}))
    said = [say_outcome(one, "goal_oriented", Random(1)) for one in (once, ahead)]
    assert "By the links I mean those there once the e-mail addresses are gone." in said[0]
    assert "By the e-mail addresses I mean those there before the links are" in said[1]


def test_the_list_of_states_says_no_order() -> None:
    outcome = Outcome(frozenset({EMAIL, ("remove_bibliography_mapper", 0), ("clean_ip_mapper", 0)}))
    said = [say_outcome(outcome, "goal_oriented", Random(seed), 1) for seed in range(40)]
    places = {tuple(text.index(word) for word in ("e-mail", "IP", "ends where")) for text in said}
    assert len({tuple(sorted(range(3), key=one.__getitem__)) for one in places}) >= 4


def test_its_styles_are_two_of_the_eleven() -> None:
    assert {*STYLES} < {style.id for style in ALL_STYLES}
