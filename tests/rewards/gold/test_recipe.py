"""Recipes: what stops, what chains, what is refused, and what never depends on its neighbours; the
operators they are made of."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from gold_oracle import PAIRS
from gold_texts import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.gold import OPERATORS, GoldError, Step, execute
from rewards.gold.catalog import described

WORDS = ["the", "it"]


def step(name: str, **params: Any) -> Step:
    if name in ("stopwords_filter", "flagged_words_filter"):
        params = {"word_list": WORDS} | params
    return Step(name, params)


# One of them can take seconds on adversarial text, which is what the deadline is for.
NAMES = [n for n in OPERATORS if n != "remove_table_text_mapper"]
RECIPES = st.lists(st.sampled_from(NAMES), max_size=6).map(lambda names: [step(n) for n in names])


@settings(max_examples=50)
@given(text=TEXTS, recipe=RECIPES)
def test_states_chain_and_keep_means_full_run(text: str, recipe: list[Step]) -> None:
    done = execute(text, recipe)
    mappers = [s for s in recipe if OPERATORS[s.operator].kind == "mapper"]
    assert done.states[0] == text
    for one, before, after in zip(mappers, done.states[:-1], done.states[1:], strict=True):
        assert execute(before, [one]).text == after
    assert done.full_run_text == done.states[-1]
    if done.status == "KEEP":
        assert done.text == done.full_run_text
        assert len(done.trace) == len(recipe)
    else:
        cut = recipe[: len(done.trace) - 1]
        assert execute(text, cut).text == done.text
        assert done.trace[-1]["status"] == "DROP"
    assert execute(text, recipe) == done


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ([Step("clean_emal_mapper")], "did you mean 'clean_email_mapper'"),
        ([Step("clean_email_mapper", {"rpl": ""})], "no parameter 'rpl'; did you mean 'repl'"),
        ([Step("clean_email_mapper", {"repl": 1})], "parameter repl=1 is not a string"),
        ([Step("text_length_filter", {"min_len": "9"})], "min_len='9' is not a number or null"),
        ([Step("text_length_filter", {"min_len": float("nan")})], "min_len=nan is not a number"),
        ([Step("text_length_filter", {"min_len": True})], "min_len=True is not a number"),
        ([Step("word_repetition_filter", {"rep_len": 0})], "rep_len=0 is not a whole number of 1"),
        ([Step("stopwords_filter")], "parameter 'word_list' is required"),
        ([Step("fix_unicode_mapper", {"normalization": "NFX"})], "choose one of 'NFC'"),
        ([Step("words_num_filter", {"tokenization": True})], "subword model"),
        ([Step("remove_specific_chars_mapper", {"chars_to_remove": ["z-a"]})], "character class"),
    ],
)
def test_bad_recipe_is_named(recipe: list[Step], message: str) -> None:
    with pytest.raises(GoldError) as caught:
        execute("text", recipe, "dj")
    assert message in str(caught.value)


def test_unknown_profile_is_named() -> None:
    with pytest.raises(GoldError, match="profile 'juicer' is unknown; choose one of bench, dj"):
        execute("x", [Step("clean_ip_mapper")], "juicer")  # type: ignore[arg-type]


def test_importing_loads_no_heavy_library() -> None:
    heavy = ["torch", "numpy", "pandas", "pyarrow", "bs4", "ftfy", "selectolax", "yaml", "ray"]
    code = f"import rewards.gold, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_operator_is_described_with_an_example() -> None:
    for operator in OPERATORS.values():
        assert described(operator)["summary"].endswith(".")
        assert described(operator)["example"]["text"]
        assert (operator.dj is None) == ("difference" not in described(operator))


@pytest.mark.parametrize(("fast", "plain"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])
@settings(max_examples=30)
@given(text=TEXTS)
def test_a_fast_form_gives_what_the_plain_definition_gives(
    fast: Callable[[str], Any], plain: Callable[[str], Any], text: str
) -> None:
    assert fast(text) == plain(text)
