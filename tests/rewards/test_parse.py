import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from vectors import vectors

from rewards.parse import (
    Parsed,
    edit_distance,
    normalise,
    normalise_lines,
    parse,
    parse_release,
    parse_strict,
    render,
    same_text,
)

settings.register_profile("no deadline", deadline=None)  # a loaded machine is not a failure
settings.load_profile("no deadline")
ANYTHING = st.text(st.characters(), max_size=200)  # surrogates and NUL included
TAGGED = st.lists(
    st.sampled_from(
        ["<status>", "</status>", "<clean_text>", "</clean_text>", "KEEP", "DROP", "keep", " "]
    )
    | ANYTHING,
    max_size=12,
).map("".join)


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
    "output",
    [
        "",
        "KEEP some text",
        "<status>KEEP</status>",
        "<clean_text>a</clean_text>",
        "<status>KEEP</status><clean_text>a",
        "<clean_text>a</clean_text><status>KEEP</status>",
        "<status>KEEP</status><status>KEEP</status><clean_text>a</clean_text>",
        "<status>KEEP</status><clean_text>a</clean_text></clean_text>",
        "<status>KEEP</status><clean_text>a<clean_text>b</clean_text>",
        "Sure! <status>KEEP</status><clean_text>a</clean_text>",
        "<status>KEEP</status> so <clean_text>a</clean_text>",
        "<status>KEEP</status><clean_text>a</clean_text> Hope it helps",
    ],
)
def test_strict_refuses_missing_repeated_misplaced_tags_and_chatter(output):
    assert parse_strict(output).why == "no_answer"


def test_strict_names_a_status_that_is_neither():
    assert parse_strict("<status>MAYBE</status><clean_text>a</clean_text>").why == "bad_status"


def test_release_takes_anything_as_an_answer():
    assert parse_release("  hello ") == Parsed("KEEP", "hello")
    assert parse_release("x <STATUS> drop </STATUS> <clean_text> a </clean_text>") == Parsed(
        "DROP", " a "
    )


def test_an_unknown_reading_is_refused():
    with pytest.raises(ValueError, match="strict, release"):
        parse("x", "loose")


@given(ANYTHING)
def test_normalising_leaves_no_trailing_blanks_and_no_double_spaces(text):
    result = normalise(text)
    assert not any(piece in result for piece in ("  ", "\t", " \n", "\n\n\n", "\r", " ,", " ."))


def test_normalising_a_long_run_of_spaces_takes_linear_time():
    def cost(size: int) -> float:
        text = "a" + " " * size + "b" + "\n" * size
        times: list[float] = []
        for _ in range(3):
            started = time.process_time()
            normalise(text)
            times.append(time.process_time() - started)
        return min(times)

    assert cost(1_600_000) < 64 * cost(100_000)  # 16 where it is linear, 256 where quadratic


def test_release_reading_equals_the_published_parser():
    for row in vectors("scorer", "parse"):
        read = parse_release(row["raw_response"])
        assert {"status": read.status, "clean_text": read.text} == row["expected"]


def test_normalisation_equals_the_published_one():
    for row in vectors("scorer", "normalise"):
        text = row["input_text"]
        assert {"n1": normalise_lines(text), "n2": normalise(text)} == row["expected"]


SPACED = st.text(st.sampled_from(" \t\n\r\x0b\xa0\u3000,.ab"), max_size=12)


@given(SPACED, SPACED)
def test_texts_are_the_same_when_their_normal_forms_are(one: str, other: str) -> None:
    assert same_text(one, other) == (normalise(one) == normalise(other))


@given(SPACED)
def test_a_text_is_the_same_with_other_spaces(text: str) -> None:
    assert same_text(f"a{text} b", f" a{text}   b\n")
    assert not same_text(f"a{text} b", f"a{text} bc")


@given(ANYTHING, ANYTHING)
def test_the_edit_distance_is_that_of_the_library(one: str, other: str) -> None:
    assert edit_distance(one, other) == Levenshtein.distance(one, other)
    assert edit_distance(one * 9, other) == Levenshtein.distance(one * 9, other)
