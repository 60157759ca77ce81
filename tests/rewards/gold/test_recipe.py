"""Recipes: what stops, what chains, what is refused, and what never depends on its neighbours; the
operators they are made of, held against the same written the slow and obvious way."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import ftfy
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from rewards.gold import OPERATORS, GoldError, Step, execute, filters, privacy, web
from rewards.gold.core import SPECIAL_BENCH, SPECIAL_DJ

# Fragments that operators look for, broken ones, and characters the two engines class differently.
PIECES = [*chain(*tables("gold")["fragments"]), " ", "\n", "", "  ", ". "]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=30).map(
    lambda parts: "".join(p + s for p, s in zip(parts, [" ", "", "\n"] * 10, strict=False))
)


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


@pytest.mark.parametrize(("operator", "params", "message"), tables("gold")["bad_recipe_is_named"])
def test_bad_recipe_is_named(operator: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(GoldError) as caught:
        execute("text", [Step(operator, params)], "dj")
    assert message in str(caught.value)


# --- the operators with a fast form, written the slow and obvious way

V0 = regex.V0


def words(text: str, special: frozenset[str], lower: bool) -> list[str]:
    found: list[str] = []
    for word in re.split("[ \n\t]", text):
        word = word.lower() if lower else word
        while word and word[0] in special:
            word = word[1:]
        while word and word[-1] in special:
            word = word[:-1]
        if word:
            found.append(word)
    return found


def char_rep(text: str, rep_len: int) -> float:
    counts = Counter(text[i : i + rep_len] for i in range(len(text) - rep_len + 1))
    if not counts:
        return 0.0
    ordered = sorted(counts.values(), reverse=True)
    top = min(int(math.sqrt(len(ordered))), sum(1 for c in ordered if c > 1))
    return sum(ordered[:top]) / sum(ordered)


def word_rep(text: str, rep_len: int, special: frozenset[str]) -> float:
    found = words(text, special, lower=True)
    counts = Counter(" ".join(found[i : i + rep_len]) for i in range(len(found) - rep_len + 1))
    repeated = sum(c for c in counts.values() if c > 1)
    return repeated / sum(counts.values()) if counts else 0.0


def ratio(text: str, belongs: Callable[[str], bool]) -> float:
    return sum(1 for c in text if belongs(c)) / len(text) if text else 0.0


def fixed(text: str, form: Any) -> str:
    return ftfy.fix_text(text, normalization=form)


def by(*patterns: str, group: str = "", flags: int = 0, engine: Any = regex) -> Any:
    def plain(text: str, repl: str) -> str:
        for pattern in patterns:
            text = engine.sub(pattern, group + repl, text, flags=flags)
        return text

    return plain


FIRST, IC = r"\g<1>", regex.IGNORECASE | V0


def channel_id(text: str, repl: str) -> str:
    text = by(privacy.CHANNEL_NAME, group=FIRST, flags=IC)(text, repl)
    text = by(privacy.CHANNEL_OPEN_ID, flags=IC)(text, repl)
    return by(privacy.CHANNEL_USER_ID, flags=V0)(text, repl)


# (fast form, plain form, their parameters)
REPLACED: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (privacy.clean_email, by(privacy.EMAIL, flags=V0)),
    (privacy.clean_ip, by(privacy.IP, flags=V0)),
    (privacy.clean_mac, by(privacy.MAC, flags=V0)),
    (privacy.clean_secret, by(privacy.SECRET, flags=IC, group=FIRST)),
    (privacy.clean_path, by(*privacy.PATH_BENCH, engine=re)),
    (privacy.clean_path_dj, by(*privacy.PATH_DJ, flags=V0, group=FIRST)),
    (privacy.clean_phone, by(privacy.PHONE_BENCH, engine=re)),
    (privacy.clean_phone_dj, by(*privacy.PHONE_DJ, flags=V0)),
    (privacy.clean_id_card, by(privacy.ID_CARD, flags=V0)),
    (privacy.clean_jwt, by(privacy.JWT, flags=V0)),
    (privacy.clean_pem, by(privacy.PEM, flags=V0)),
    (privacy.clean_channel_id, channel_id),
    (web.clean_links, by(web.LINK_BENCH, flags=re.IGNORECASE, engine=re)),
    (web.clean_links_dj, by(web.LINK_DJ, flags=regex.DOTALL | V0)),
]
PAIRS: list[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    *((fast, plain, ("<X>",)) for fast, plain in REPLACED),
    *((web.fix_unicode, fixed, (form,)) for form in ("NFC", "NFD")),
    (filters.alnum_ratio, partial(ratio, belongs=str.isalnum), ()),
    (filters.special_char_ratio, partial(ratio, belongs=SPECIAL_BENCH.__contains__), ()),
    (filters.special_char_ratio_dj, partial(ratio, belongs=SPECIAL_DJ.__contains__), ()),
    (filters.num_words, lambda text: len(words(text, SPECIAL_BENCH, False)), ()),
    (filters.num_words_dj, lambda text: len(words(text, SPECIAL_DJ, False)), ()),
    *((filters.char_rep_ratio, char_rep, (n,)) for n in (1, 2, 3, 5, 10)),
    *((filters.word_rep_ratio, partial(word_rep, special=SPECIAL_BENCH), (n,)) for n in (1, 2, 3)),
    (filters.word_rep_ratio_dj, partial(word_rep, special=SPECIAL_DJ), (2,)),
]


@pytest.mark.parametrize(("fast", "plain", "given_as"), PAIRS)
@settings(max_examples=30)
@given(text=TEXTS)
def test_a_fast_form_gives_what_the_plain_definition_gives(
    fast: Callable[..., Any], plain: Callable[..., Any], given_as: tuple[Any, ...], text: str
) -> None:
    assert fast(text, *given_as) == plain(text, *given_as)
