"""Alignments put every text together again; the step that went wrong, on recipes whose every state
is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import INPUT as SOURCE
from small_run import refinement

from assay.task import Answer, Task
from rewards.parse import render
from train.view.explain import ANSWER, GOLD, INPUT, NO_STEP, align, spine
from train.view.explain_cdr import explain

TEXT = st.text(st.sampled_from("ab <>\n@.é\ud800"), max_size=30)


@given(st.lists(TEXT, min_size=2, max_size=4), TEXT, st.data())
@settings(deadline=None, max_examples=200)
def test_segments_are_all_of_the_three_texts(
    states: list[str], answer: str, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, len(states) - 1))
    pieces = spine(states, list(range(len(states) - 1)), stop)
    texts = {INPUT: states[0], GOLD: states[stop], ANSWER: answer}
    at, found = dict.fromkeys(texts, 0), dict.fromkeys(texts, "")
    for bits, length, _ in align(pieces, states[0], states[stop], answer):
        assert length > 0
        shared = set[str]()  # texts that share a segment agree about its characters
        for bit in texts:
            if bits & bit:
                piece = texts[bit][at[bit] : at[bit] + length]
                at[bit] += length
                found[bit] += piece
                shared.add(piece)
        assert len(shared) == 1
    assert found == texts


def test_who_left_over_lost_and_added_what() -> None:
    states = ["keep <i>this</i> text", "keep this text"]
    segments = align(spine(states, [0], 1), *states, "keep <i>this also")
    said = {(bits, step): length for bits, length, step in segments if bits not in (7, 1)}
    # <i>, text and also
    assert said == {(INPUT | ANSWER, 0): 3, (INPUT | GOLD, NO_STEP): 4, (ANSWER, NO_STEP): 4}
    states = ["one two", "one"]  # a step behind the stop that was carried out
    segments = align(spine(states, [1], 0), "one two", "one two", "one")
    assert (INPUT | GOLD, 4, 1) in segments


# --- the step that went wrong --------------------------------------------------------------------

HTML, MAIL, WORDS = 0, 1, 2
KEPT, DROPPED = refinement(0), refinement(1, least=30)
GOLD_TEXT = KEPT.gold["text"]
WITH_MAILS = "Ask tom at tom@acme.io or at ann@acme.io now."
STOPPED_FIRST = replace(
    DROPPED,
    gold=DROPPED.gold | {"recipe": [DROPPED.gold["recipe"][n] for n in (2, 0, 1)], "text": SOURCE},
)


@pytest.mark.parametrize(
    ("task", "status", "text", "wrong", "said"),
    [
        (KEPT, "KEEP", GOLD_TEXT, (), ""),
        (KEPT, "KEEP", WITH_MAILS, (MAIL,), "when clean_email_mapper is left out"),
        (KEPT, "KEEP", "Ask <b>tom</b> at  or at  now.", (HTML,), "clean_html_mapper is left out"),
        (
            *(KEPT, "KEEP", "Ask tom at  or at ann@acme.io now.", (MAIL,)),
            "Step 2 (clean_email_mapper) removes 11 characters still there.",
        ),
        (KEPT, "KEEP", SOURCE, (HTML, MAIL), "when nothing is changed"),
        (STOPPED_FIRST, "KEEP", GOLD_TEXT, (0,), "when the filter is ignored"),
        (KEPT, "DROP", WITH_MAILS, (MAIL, WORDS), "it stops after its first mapper and says DROP"),
        (DROPPED, "KEEP", DROPPED.gold["text"], (WORDS,), "Step 3 (words_num_filter) rejects"),
        (KEPT, "DROP", GOLD_TEXT, (WORDS,), "keeps the text, and the answer says DROP"),
        (STOPPED_FIRST, "DROP", WITH_MAILS, (1,), "was not reached, and the answer carries it out"),
        (KEPT, "KEEP", GOLD_TEXT.replace("now", "soon, I think"), (), "that no step removes"),
    ],
)
def test_the_step_that_went_wrong_is_named(
    task: Task, status: str, text: str, wrong: tuple[int, ...], said: str
) -> None:
    finding = explain(task, Answer(render(status, text))).finding
    assert finding.wrong == wrong and said in finding.said


def test_what_is_no_fault_or_has_no_form_names_no_step() -> None:
    finding = explain(KEPT, Answer(render("KEEP", "Ask tom at or at now."))).finding
    assert (finding.wrong, finding.spaces_only) == ((), True)
    assert explain(KEPT, Answer("I cannot")).finding.wrong == ()
    for change, why in (({"recipe": None}, "carries no recipe"), ({"text": "x"}, "another text")):
        task = replace(KEPT, gold=KEPT.gold | change)
        got = explain(task, Answer(render("KEEP", "Ask tom")))
        assert why in got.work.unknown and got.work.steps == () and got.finding.wrong == ()


@given(st.text(max_size=60), st.sampled_from(["KEEP", "DROP"]))
@settings(deadline=None, max_examples=60)
def test_nothing_that_a_model_writes_raises(text: str, status: str) -> None:
    for answer in (text, render(status, text), SOURCE + text):
        got = explain(KEPT, Answer(answer))
        assert all(0 <= i < len(got.work.steps) for i in got.finding.wrong)
