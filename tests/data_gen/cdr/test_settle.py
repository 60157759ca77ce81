"""Which orders of its steps a description allows, and what they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.cdr.settle import MOST, Judged, Outcome, claims, described, in_words, settled
from rewards.gold import RECIPE_PARAMS, Step, bind, execute

MAIL, REPEATS = "clean_email_mapper", "remove_repeat_sentences_mapper"
MAC = "clean_mac_mapper"
LONE, BLANKS = "remove_long_words_mapper", "whitespace_normalization_mapper"
TWICE = "Ask 00:1A:2b:3c:4D:5e now. Bye to all of you. Ask 00:1A:2b:3c:4D:5f now."


def step(name: str, **params: float) -> Step:
    return Step(name, {**RECIPE_PARAMS.get(name, {}), **params})


def apply(mapper: str, text: str) -> str:
    bound = bind(step(mapper))
    return bound.call(text, **bound.params)


def keeps(judging: Step, text: str) -> bool:
    return bind(judging).judge(text)[0]


def allowed(outcome: Outcome, steps: Sequence[Step]) -> list[list[Step]]:
    """Every order of the steps that the words allow, one by one."""
    pairs = outcome.once | outcome.ahead
    found: list[list[Step]] = []
    for order in permutations(steps):
        place = {one.operator: i for i, one in enumerate(order)}
        if any(place[a] > place[b] for a, b in pairs):
            continue
        if outcome.judged:
            at = place[outcome.judged.operator]
            if {one.operator for one in order[:at]} != outcome.before:
                continue
        found.append(list(order))
    return found


PIECES = (
    "Write to a@b.org now. ",
    "Write to c@d.org now. ",
    "See https://x.org/a?b=c@d.org here. ",
    "<b>www.y.com</b> ",
    "-- ",
    "— \t",
    "“ok” ",
    "10.0.0.1 ",
    "/usr/lib/a.txt ",
    "\n",
)
NAMES = (
    MAIL,
    REPEATS,
    LONE,
    BLANKS,
    "clean_links_mapper",
    "clean_html_mapper",
    "punctuation_normalization_mapper",
    "clean_path_mapper",
    "remove_words_with_incorrect_substrings_mapper",
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=9),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    st.none() | st.tuples(st.integers(0, 4), st.integers(1, 120)),
)
def test_all_orders_that_are_allowed_lead_to_gold(
    pieces: list[str], names: list[str], judged: tuple[int, int] | None
) -> None:
    text, steps = "".join(pieces), [step(name) for name in names]
    if judged:
        steps.insert(judged[0], step("text_length_filter", min_len=judged[1]))
    gold = execute(text, steps)
    found = described(text, steps, apply)
    if isinstance(found, str):
        assert found == "not_true_of_its_own_result"
        return
    assert settled(found, text, apply, keeps) == (gold.status, gold.text)
    orders = allowed(found, steps)
    assert steps in orders
    for order in orders:
        done = execute(text, order)
        assert (done.status, done.text, done.full_run_text) == (
            gold.status,
            gold.text,
            gold.full_run_text,
        )
    for name, made in claims(found, text, steps, apply):
        assert apply(name, made) == made


def test_an_order_that_matters_is_said_and_another_is_not() -> None:
    found = described(TWICE, [step(MAC), step(REPEATS)], apply)
    assert isinstance(found, Outcome)
    assert found.once == {(MAC, REPEATS)} and not found.ahead
    unsaid = Outcome(found.states)
    assert settled(unsaid, TWICE, apply, keeps) is None
    once = TWICE.replace("5f", "5e")
    free = described(once, [step(MAC), step(REPEATS)], apply)
    assert isinstance(free, Outcome) and free == unsaid
    assert settled(free, once, apply, keeps) == ("KEEP", "Ask  now. Bye to all of you.")


def test_what_a_later_step_brings_back_is_meant_before_it() -> None:
    steps = [step(REPEATS), step(MAC)]
    found = described(TWICE, steps, apply)
    assert isinstance(found, Outcome)
    assert found.ahead == {(REPEATS, MAC)} and not found.once
    assert REPEATS not in {name for name, _ in claims(found, TWICE, steps, apply)}
    gold = execute(TWICE, steps)
    assert settled(found, TWICE, apply, keeps) == (gold.status, gold.text)


def test_a_step_that_leaves_what_it_takes_out_has_no_description() -> None:
    text = "password: token: abc"
    secret = "clean_secret_mapper"
    assert apply(secret, apply(secret, text)) != apply(secret, text)
    assert described(text, [step(secret)], apply) == "not_true_of_its_own_result"
    assert described(text, [step(MAIL), step(MAIL)], apply) == "a_step_twice"


def test_many_mappers_are_told_in_blocks() -> None:
    steps = [step(name) for name in NAMES]
    assert len(steps) > MOST
    found = described("Plain words alone", steps, apply)
    assert isinstance(found, Outcome)
    half = len(NAMES) // 2
    assert found.once == {(a, b) for a in NAMES[:half] for b in NAMES[half:]}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_text_that_is_judged_and_comes_back_is_said(place: int) -> None:
    steps = [step(MAIL), step(LONE)]
    steps.insert(place, step("text_length_filter", min_len=30))
    text = "To a@b.org -- from c@d.org -- go"
    found = described(text, steps, apply)
    assert isinstance(found, Outcome)
    assert found.before == {one.operator for one in steps[:place]}
    gold = execute(text, steps)
    assert settled(found, text, apply, keeps) == (gold.status, gold.text)
    longer = in_words(found, steps, [1] * 3)
    assert {manner for _, manner in longer.states} == {1} and longer.judged == Judged(
        "text_length_filter", "min_len", 30, 1
    )
