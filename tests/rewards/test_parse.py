import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables
from rapidfuzz.distance import Levenshtein

from rewards.parse import (
    Parsed,
    edit_distance,
    normalise,
    parse,
    parse_release,
    parse_strict,
    render,
    same_text,
)

TABLES = tables("rewards")

ANYTHING = st.text(st.characters(), max_size=200)  # surrogates and NUL included
TAGS = ["<status>", "</status>", "<clean_text>", "</clean_text>", "KEEP", "DROP", "keep", " "]
TAGGED = st.lists(st.sampled_from(TAGS) | ANYTHING, max_size=12).map("".join)


@given(st.sampled_from(["KEEP", "DROP"]), ANYTHING.filter(lambda text: "<" not in text))
def test_what_is_rendered_reads_back_in_both_readings(status, text):
    answer = render(status, text)
    assert parse_release(answer) == Parsed(status, text)
    assert parse_strict(f"\n {answer}\n") == Parsed(status, text)


@given(TAGGED)
def test_strict_accepts_only_what_release_reads_alike(output):
    strict = parse_strict(output)
    if strict.why == "ok":
        assert parse_release(output) == strict
    else:
        assert (strict.status, strict.text) == ("", "")


@pytest.mark.parametrize(
    "output", TABLES["strict_refuses_missing_repeated_misplaced_tags_and_chatter"]
)
def test_strict_refuses_missing_repeated_misplaced_tags_and_chatter(output):
    assert parse_strict(output).why == "no_answer"


def test_an_unknown_reading_is_refused():
    with pytest.raises(ValueError, match="strict, release"):
        parse("x", "loose")


def test_a_long_run_of_spaces_is_normalised_in_linear_time():
    """In quadratic time this would not end."""
    text = "a" + " " * 1_600_000 + "b" + "\n" * 1_600_000
    assert normalise(text) == normalise("a b")


SPACED = st.text(st.sampled_from(" \t\n\r\x0b\xa0\u3000,.ab"), max_size=12)


@given(SPACED, SPACED)
def test_texts_are_the_same_when_their_normal_forms_are(one: str, other: str) -> None:
    assert same_text(one, other) == (normalise(one) == normalise(other))


@given(ANYTHING, ANYTHING)
def test_the_edit_distance_is_that_of_the_library(one: str, other: str) -> None:
    assert edit_distance(one, other) == Levenshtein.distance(one, other)
    assert edit_distance(one * 9, other) == Levenshtein.distance(one * 9, other)
