"""Instructions say their recipe in eleven styles; prompt modes."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.cdr.instruct import (
    STYLES,
    InstructionError,
    pool,
    read_instruction,
    say,
    variant,
)
from data_gen.cdr.language import _any_reader, read_clauses, say_step, speakable
from data_gen.cdr.phrases import (
    CONDITIONS,
    CONDITIONS_TO_THE_LETTER,
    MOODS,
    NOUNS,
    SENTENCES,
    TO_THE_LETTER,
)
from rewards.cdr.score import score_refinement
from rewards.gold import OPERATORS, RECIPE_PARAMS, Step, execute
from rewards.parse import render
from rollouts.cdr.prompts import MODES, messages

MAPPERS = [Step(n, dict(RECIPE_PARAMS.get(n, {}))) for n in (*NOUNS, *SENTENCES)]
VALUES = {"ratio": [0.76, 0.001, 0.0003, 0.08, 1.0], "other": [5, 45, 100, 1500, 21000]}
FILTERS = [
    Step(name, {key: value})
    for name, key in CONDITIONS
    for value in VALUES["ratio" if key.endswith("_ratio") else "other"]
]
step_lists = st.lists(st.sampled_from(MAPPERS + FILTERS), min_size=1, max_size=7)


def test_every_operator_of_the_tracks_can_be_spoken() -> None:
    from data_gen.cdr.domains import ALL_MAPPERS
    from data_gen.cdr.facts import CALIBRATED_FILTERS

    assert {s.operator for s in MAPPERS} >= set(ALL_MAPPERS)
    assert {s.operator for s in FILTERS} == set(CALIBRATED_FILTERS)
    assert not speakable(Step("text_length_filter", {"min_len": 5, "max_len": 9}))


@settings(max_examples=150, deadline=None)
@given(step_lists, st.sampled_from(STYLES), st.integers(0, 2**32))
def test_every_instruction_reads_back_to_its_recipe(
    steps: list[Step], style: Any, seed: int
) -> None:
    text = say(steps, style, Random(seed))
    assert read_instruction(text) == (steps, style.id)
    assert not re.search(r"_|mapper|filter\b|regex|min_|max_", text)


def longest_manner(step: Step) -> int:
    filters = {name for name, _ in CONDITIONS_TO_THE_LETTER}
    return len(TO_THE_LETTER.get(step.operator, ())) or int(step.operator in filters)


@settings(max_examples=100, deadline=None)
@given(step_lists, st.sampled_from(STYLES), st.integers(0, 2**32))
def test_longer_words_read_back_to_the_recipe_and_their_manner(
    steps: list[Step], style: Any, seed: int
) -> None:
    rng = Random(seed)
    manners = tuple(int(rng.random() * (1 + longest_manner(step))) for step in steps)
    text = variant(steps, style, "k", seed, manners=manners).user_requirement
    assert read_instruction(text) == (steps, style.id)
    assert tuple(clause.manner for clause in read_clauses(text)) == manners


@settings(max_examples=60, deadline=None)
@given(step_lists, st.sampled_from(STYLES), st.integers(0, 2**32), st.integers(0, 400))
def test_a_changed_instruction_is_not_accepted_as_the_same(
    steps: list[Step], style: Any, seed: int, place: int
) -> None:
    text = say(steps, style, Random(seed))
    place %= len(text)
    changed = text[:place] + "#" + text[place + 1 :]
    try:
        read, _ = read_instruction(changed)
    except InstructionError:
        return
    assert read != steps or changed == text


def test_a_recipe_has_hundreds_of_surface_forms() -> None:
    for steps in ([MAPPERS[0]], [FILTERS[0]], [MAPPERS[-1], FILTERS[3]]):
        seen = {v.user_requirement for i in range(60) for v in pool(steps, str(i))}
        assert len(seen) >= 300


def test_a_single_step_has_no_order() -> None:
    words = [v.user_requirement for step in MAPPERS + FILTERS for v in pool([step], "k", 3)]
    odd = re.compile(
        r"(?i)in (?:this|that|the) (?:order|sequence)|one after the other|^1\. |^first, "
    )
    assert [w for w in words if odd.search(w)] == []


def test_words_depend_on_key_and_seed_alone() -> None:
    steps = [MAPPERS[1], FILTERS[2]]
    assert pool(steps, "k") == pool(steps, "k")
    assert pool(steps, "k") != pool(steps, "k", seed=1)
    assert [v.style_id for v in pool(steps, "k")] == sorted(s.id for s in STYLES)


def test_modes_wrap_requirement_and_input() -> None:
    for mode in MODES:
        system, user = messages("Remove it.", "the text", mode)
        assert system["role"] == "system"
        assert user["content"].count("<input>\nthe text\n</input>") == 1
        assert "Task:\nRemove it." in user["content"]
    assert "no code fences" in messages("Rate.", "x", output_format="json")[1]["content"]
    with pytest.raises(ValueError, match="mode="):
        messages("a", "b", "other")


TEXT = "Mail ana@acme.io, see <b>here</b>."
RECIPE = [
    Step("clean_email_mapper"),
    Step("clean_html_mapper"),
    Step("text_length_filter", {"min_len": 10}),
]


@pytest.mark.parametrize("mode", ["plan_first", "state_aware"])
def test_an_analysis_before_the_result_is_no_part_of_it(mode: str) -> None:
    run = execute(TEXT, RECIPE)
    gold = {"input_text": TEXT, "status": run.status, "text": run.text, "mode": mode}
    answer = render(run.status, run.text)
    assert score_refinement(gold, f"<analyze>\n1. …\n</analyze>\n{answer}").reward == 1.0
    assert score_refinement(gold, answer).reward == 1.0  # a right answer needs no analysis
    assert score_refinement(gold, f"<analyze>{answer}").outcome == 0.0


def test_phrases_name_no_operator() -> None:
    said = [say_step(s, mood, Random(3)) for s in MAPPERS + FILTERS for mood in MOODS]
    assert not [text for text in said if any(name in text for name in OPERATORS)]


@settings(max_examples=120, deadline=None)
@given(
    step_lists,
    st.sampled_from(STYLES),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 500), st.sampled_from("ſKıé#xX1 ")), max_size=3),
)
def test_words_are_read_as_one_pattern_of_all_clauses_reads_them(
    steps: list[Step], style: Any, seed: int, changes: list[tuple[int, str]]
) -> None:
    text = say(steps, style, Random(seed))
    for place, letter in changes:
        place %= len(text)
        text = text[:place] + letter + text[place + 1 :]
    whole = re.compile(r"(?<!\w)" + _any_reader()[0].pattern, re.IGNORECASE)
    spans = [(m.start(), m.end()) for m in whole.finditer(text)]
    assert [(c.start, c.end) for c in read_clauses(text)] == spans
