"""Reading clauses out of a model's words: fast, and without keeping every word it ever wrote."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.cdr import language
from data_gen.cdr.language import _any_reader, read_clauses
from rewards.gold import Step

PLAIN = ("remove", "all", "e-mail", "addresses", "Delete", "every", "drop it if", "over 20 words")
ODD = ("é", "ſ", "\u212a", "İ", "\u0131", "no", "links", "reject", ",", "numbers", "\u017fcrub")
WORDS = st.sampled_from((*PLAIN, *ODD))


def plainly(text: str) -> list[Step]:
    """Every word tried against every clause."""
    found: list[Step] = []
    at = 0
    while word := re.compile(r"\w+").search(text, at):
        at = word.end()
        match = _any_reader()[0].match(text, word.start())
        if match is not None:
            at = match.end()
            meaning = _any_reader()[1][int(match.lastindex or 1) - 1]
            found.append(language._meant(meaning, match.group())[0])
    return found


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_words_that_begin_no_clause_are_passed_over_and_nothing_else(text: str) -> None:
    assert [clause.step for clause in read_clauses(text)] == plainly(text)


@pytest.mark.parametrize("word", ["e", "é", "ſ"])
def test_what_a_model_writes_is_not_kept(word: str) -> None:
    read_clauses("remove all links")
    before = language._reader.cache_info().currsize
    read_clauses(" ".join(f"{word}{i}" for i in range(500)))
    assert language._reader.cache_info().currsize == before


def test_words_beyond_ascii_cost_no_pattern() -> None:
    """Each used to be matched against every clause: 100,000 of them took 10 seconds."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "c_call" and getattr(argument, "__name__", "") == "match"

    sys.setprofile(count)
    try:
        read_clauses("é\n" * 200)
    finally:
        sys.setprofile(None)
    assert calls == 0
