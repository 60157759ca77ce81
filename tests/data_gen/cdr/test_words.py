"""Instructions say their recipe, descriptions of a result what they mean; both are read back."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from cdr_copies import orders_allowed
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.cdr.documents import ALL_MAPPERS
from data_gen.cdr.instruct import (
    CONDITIONS,
    CONDITIONS_TO_THE_LETTER,
    FORMS,
    STYLES,
    TO_THE_LETTER,
    InstructionError,
    read_clauses,
    read_instruction,
    variant,
)
from data_gen.cdr.outcome import (
    Judged,
    Outcome,
    OutcomeError,
    claims,
    described,
    read_outcome,
    say_outcome,
    settled,
)
from rewards.cdr.release_files import RESULT_STYLES
from rewards.gold import RECIPE_PARAMS, Step, bind, execute


def step(name: str, **params: float) -> Step:
    return Step(name, {**RECIPE_PARAMS.get(name, {}), **params})


MAPPERS = [step(name) for name in FORMS]
FILTERS = [
    Step(name, {key: value})
    for name, key in CONDITIONS
    for value in ([0.76, 0.001, 1.0] if key.endswith("_ratio") else [5, 100, 1500, 21000])
]
LONGER = {name for name, _ in CONDITIONS_TO_THE_LETTER}
recipes = st.lists(st.sampled_from(MAPPERS + FILTERS), min_size=1, max_size=7)
seeds = st.integers(0, 2**32)


@settings(max_examples=50)
@given(recipes, st.sampled_from(STYLES), seeds, st.integers(0, 400))
def test_an_instruction_reads_back_to_its_recipe_and_a_changed_one_does_not(
    steps: list[Step], style: Any, seed: int, place: int
) -> None:
    rng = Random(seed)
    most = (len(TO_THE_LETTER.get(s.operator, ())) or int(s.operator in LONGER) for s in steps)
    manners = tuple(int(rng.random() * (1 + longest)) for longest in most)
    text = variant(steps, style, "k", seed, manners=manners).user_requirement
    assert read_instruction(text) == (steps, style.id)
    assert tuple(clause.manner for clause in read_clauses(text)) == manners
    assert not re.search(r"_mapper|_filter|regex|min_|max_", text)
    place %= len(text)
    changed = text[:place] + "#" + text[place + 1 :]
    try:
        read, _ = read_instruction(changed)
    except InstructionError:
        return
    assert read != steps or changed == text


# --- descriptions of a result


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
        value = draw(st.sampled_from([0.001, 0.76] if bound.endswith("_ratio") else [5, 21000]))
        judged = Judged(name, bound, value, draw(st.integers(0, int(name in LONGER))))
        before = frozenset(draw(st.sets(st.sampled_from(names)))) if names else before
    return Outcome(states, frozenset(pairs - ahead), frozenset(ahead), judged, before)


@settings(max_examples=50)
@given(outcomes(), st.sampled_from(RESULT_STYLES), seeds, st.integers(0, 900))
def test_a_description_is_read_back_and_a_changed_one_never(
    outcome: Outcome, style: str, seed: int, place: int
) -> None:
    text = say_outcome(outcome, style, Random(seed))
    assert read_outcome(text) == (outcome, style)
    assert not re.search(r"_mapper|_filter|min_|max_", text)
    place %= len(text)
    with pytest.raises(OutcomeError):
        read_outcome(text[:place] + "¤" + text[place + 1 :])  # "#" may stand there already


def test_what_cannot_be_understood_is_refused() -> None:
    told = "The goal is a text that holds no phone numbers, with no other change."
    assert len(read_outcome(told)[0].states) == 1
    for wrong in (
        told.replace(", with no other change", ""),
        told.replace(",", ", and no phone numbers,"),
        f"{told} By the links I mean those there once the phone numbers are gone.",
    ):
        with pytest.raises(OutcomeError):
            read_outcome(wrong)


def apply(mapper: str, text: str) -> str:
    bound = bind(step(mapper))
    return bound.call(text, **bound.params)


def keeps(judging: Step, text: str) -> bool:
    return bind(judging).judge(text)[0]


PIECES = (
    *("Write to a@b.org now. ", "Write to c@d.org now. ", "See https://x.org/a?b=c@d.org here. "),
    *("<b>www.y.com</b> ", "-- ", "— \t", "“ok” ", "10.0.0.1 ", "/usr/lib/a.txt ", "\n"),
)
MAIL, REPEATS, MAC = "clean_email_mapper", "remove_repeat_sentences_mapper", "clean_mac_mapper"
NAMES = (
    *(MAIL, REPEATS, "remove_long_words_mapper", "whitespace_normalization_mapper"),
    *("clean_links_mapper", "clean_html_mapper", "punctuation_normalization_mapper"),
    *("clean_path_mapper", "remove_words_with_incorrect_substrings_mapper"),
)


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=9),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    st.none() | st.tuples(st.integers(0, 4), st.integers(1, 120)),
)
def test_all_orders_that_a_description_allows_lead_to_gold(
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
    orders = orders_allowed(found, steps)
    assert steps in orders
    for order in orders:
        done = execute(text, order)
        assert (done.status, done.text) == (gold.status, gold.text)
    for name, made in claims(found, text, steps, apply):
        assert apply(name, made) == made
