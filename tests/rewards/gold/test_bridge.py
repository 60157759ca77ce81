"""Operators of an installed py-data-juicer as recipe steps."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from rewards.gold import GoldError, Step, execute

INSTALLED = importlib.util.find_spec("data_juicer") is not None
needs_juicer = pytest.mark.skipif(not INSTALLED, reason="needs the datajuicer extra")


@needs_juicer
def test_their_operator_runs_by_its_name() -> None:
    done = execute("中é文 b", [Step("remove_non_chinese_character_mapper"), Step("suffix_filter")])
    assert (done.status, done.text) == ("KEEP", "中文 b")
    assert [t["kind"] for t in done.trace] == ["mapper", "filter"]


@needs_juicer
def test_the_prefix_asks_for_theirs_where_both_have_one() -> None:
    theirs = execute(
        "a\n\nb  www.x.org", [Step("data_juicer:remove_words_with_incorrect_substrings_mapper")]
    )
    ours = execute("a\n\nb  www.x.org", [Step("remove_words_with_incorrect_substrings_mapper")])
    assert (theirs.text, ours.text) == ("a\nb", "a\n\nb  ")
    done = execute("four", [Step("data_juicer:text_length_filter", {"min_len": 5})])
    assert (done.status, done.trace[0]["stats"]) == ("DROP", {"text_len": 4})


@needs_juicer
@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("data_juicer:clean_emal_mapper", {}, "did you mean 'clean_email_mapper'"),
        ("data_juicer:clean_email_mapper", {"rpl": ""}, "no parameter 'rpl'; did you mean 'repl'"),
        ("document_deduplicator", {}, "only mappers and filters"),
        ("text_chunk_mapper", {"max_len": 2}, "made 2 texts of one"),
        ("text_chunk_mapper", {"max_len": -1, "split_pattern": None}, "cannot be built"),
    ],
)
def test_misuse_is_named(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(GoldError, match=message):
        execute("some", [Step(name, params)])


@pytest.mark.skipif(INSTALLED, reason="py-data-juicer is installed")
def test_without_it_the_message_says_how_to_get_it() -> None:
    with pytest.raises(GoldError, match=r"pip install -e '\.\[datajuicer\]'"):
        execute("x", [Step("data_juicer:clean_email_mapper")])
