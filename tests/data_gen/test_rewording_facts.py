"""A rewording keeps every fact and brings none: what passes, and what each rule refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.rewording import Facts, lacks, named
from data_gen.tally import Refusal

QUESTION = (
    "Which 3 values of 'Town' have the highest mean of 'Rain, June' in rain_2.csv with 'Area' "
    "above 12.5 and where 'Kind' is 'Fresh water'? Skip rows without a number. Answer with a list "
    "of names, as the file writes them."
)
FACTS = Facts(
    (
        "rain_2.csv",
        "Skip rows without a number.",
        "Answer with a list of names, as the file writes them.",
    ),
    (("'Area'", "above", "12.5"), ("'Kind'", "'Fresh water'")),
    (("'Town'", "'Rain, June'"),),
    ("Acton", "Boston", "Essex"),
)
GOOD = (
    "Take the rows of rain_2.csv with 'Area' above 12.5 where 'Kind' is 'Fresh water'. For which 3 "
    "values of 'Town' is the mean of 'Rain, June' highest? Skip rows without a number. Answer with "
    "a list of names, as the file writes them."
)


def coded(why: Refusal | None) -> str:
    """A refusal in words, "" for none."""
    return why.coded() if why else ""


def test_other_words_with_all_facts_pass() -> None:
    assert lacks(QUESTION, GOOD, FACTS) is None
    assert (
        lacks(QUESTION, GOOD.replace("mean", "average").replace("highest", "largest"), FACTS)
        is None
    )
    assert lacks(QUESTION, QUESTION, FACTS) is None


def test_everything_that_must_stay_is_named() -> None:
    assert named(QUESTION, FACTS) == [
        "3",
        "'Town'",
        "'Rain, June'",
        "rain_2.csv",
        "'Area'",
        "12.5",
        "'Kind'",
        "'Fresh water'",
        *FACTS.literals[1:],
    ]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("12.5", "12", "a new number: 12"),
        (" 3 ", " ", "a number is lost: 3"),
        (" 3 ", " 3 (yes, 3) ", "a number is said again: 3"),
        (" 3 ", " three ", "a number is lost: 3"),
        ("with 'Area'", "with some two of 'Area'", "new word: two"),
        ("with 'Area'", "of the 1990s with 'Area'", "a new number"),
        ("'Town'", "town", "lost: 'Town'"),
        ("'Rain, June'", "'Rain'", "lost: 'Rain, June'"),
        ("rain_2.csv", "rain_2.csv and more.csv", "a new file name"),
        ("rain_2.csv", "the file", "lost: rain_2.csv"),
        ("rain_2.csv", "the 'big' rain_2.csv", "a new quoted value: 'big'"),
        ("rain_2.csv", 'the "big" rain_2.csv', 'a new quoted value: "big"'),
        ("Skip rows without a number.", "", "lost: Skip rows without a number."),
        ("Skip rows without a number.", "Skip empty rows.", "lost: Skip rows without a number."),
        (
            "as the file writes them",
            "in capitals",
            "lost: Answer with a list of names, as the file",
        ),
        ("highest", "lowest", "lost word: highest"),
        ("mean", "median", "lost word: mean"),
        ("above", "below", "lost word: above"),
        ("above", "at least", "new word: at least"),
        ("where 'Kind'", "where the square root of 'Kind'", "new word: square root"),
        ("where 'Kind' is", "where 'Kind' is not", "new word: not"),
        ("where 'Kind' is", "where 'Kind' isn't", "new word: isn't"),
        ("the rows", "the rows (but for Acton)", "the answer is in it"),
        ("the rows", "the rows, see https://x.org,", "more than the question"),
        ("Take the", "Sure! Take the", "more than the question"),
        ("Take the", "Take\nthe", "several lines"),
        ("Take the", "Take\x07the", "control characters"),
        ("Take the", "Take <b>the", "new marks"),
        (
            "'Area' above 12.5 where 'Kind' is 'Fresh water'",
            "'Kind' above 12.5 where 'Area' is 'Fresh water'",
            "parted: 'Area' above 12.5",
        ),
        (
            "'Town' is the mean of 'Rain, June'",
            "'Rain, June' is the mean of 'Town'",
            "another order: 'Town' 'Rain, June'",
        ),
        ("of 'Town' is", "of 'Town', whatever it may be, " * 15 + "is", "too long"),
    ],
)
def test_what_is_refused(old: str, new: str, why: str) -> None:
    assert old in GOOD
    assert coded(lacks(QUESTION, GOOD.replace(old, new), FACTS)).startswith(why)


def test_nothing_and_a_stump_are_refused() -> None:
    assert coded(lacks(QUESTION, " ", FACTS)) == "empty"
    assert coded(lacks(QUESTION, "Which towns?", FACTS)) == "too short"


def test_names_with_quotes_and_numbers_in_them_are_one_fact() -> None:
    question = "Where 'O'Brien's 2nd' is \"it's 5\", what is the mean of `x 7` in a-1.csv?"
    other = "What is the mean of `x 7` in a-1.csv where 'O'Brien's 2nd' is \"it's 5\"?"
    facts = Facts(("a-1.csv",))
    assert named(question, facts) == ["'O'Brien's 2nd'", '"it\'s 5"', "`x 7`", "a-1.csv"]
    assert lacks(question, other, facts) is None
    assert coded(lacks(question, other.replace("`x 7`", "x 7"), facts)).startswith(
        "a new number: 7"
    )


@given(st.text(max_size=300))
def test_any_text_is_judged(text: str) -> None:
    why = lacks(QUESTION, text, FACTS)
    assert why or all(part in text for part in named(QUESTION, FACTS))


@given(st.sampled_from(sorted(GOOD.split())), st.data())
def test_a_fact_that_is_cut_is_missed(word: str, data: st.DataObject) -> None:
    """Whatever word is left out, no accepted text lacks a fact."""
    words = GOOD.split()
    del words[data.draw(st.integers(0, len(words) - 1))]
    text = " ".join(words)
    if not lacks(QUESTION, text, FACTS):
        assert all(part in text for part in named(QUESTION, FACTS))
