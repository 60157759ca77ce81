"""Alignments put every text together again, and say who removed what."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from train.view.explain import ANSWER, GOLD, INPUT, NO_STEP, Piece, align, plain_spine, spine

TEXT = st.text(st.sampled_from("ab <>\n@.é\ud800"), max_size=30)


def rebuilt(segments: tuple[tuple[int, int, int], ...], texts: dict[int, str]) -> dict[int, str]:
    """The three texts put together from the segments; fails where two texts that share a segment
    do not agree about its characters."""
    at, found = dict.fromkeys(texts, 0), dict.fromkeys(texts, "")
    for bits, length, _ in segments:
        shared = set[str]()
        for bit in texts:
            if bits & bit:
                piece = texts[bit][at[bit] : at[bit] + length]
                at[bit] += length
                found[bit] += piece
                shared.add(piece)
        assert len(shared) == 1
    return found


@given(st.lists(TEXT, min_size=2, max_size=4), TEXT, st.data())
@settings(deadline=None, max_examples=200)
def test_segments_are_all_of_the_three_texts(
    states: list[str], answer: str, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, len(states) - 1))
    pieces = spine(states, list(range(len(states) - 1)), stop)
    texts = {INPUT: states[0], GOLD: states[stop], ANSWER: answer}
    segments = align(pieces, states[0], states[stop], answer)
    assert rebuilt(segments, texts) == texts
    assert all(length > 0 for _, length, _ in segments)


@given(TEXT, TEXT)
@settings(deadline=None, max_examples=100)
def test_gold_itself_has_no_difference(source: str, gold: str) -> None:
    segments = align(plain_spine(source, gold), source, gold, gold)
    assert {bits for bits, _, _ in segments} <= {INPUT, GOLD | ANSWER, INPUT | GOLD | ANSWER}


def test_a_spine_names_the_step_of_every_removal() -> None:
    states = ["a <b>x</b> y@z.de", "a x y@z.de", "a x "]
    assert spine(states, [0, 3], 2) == (
        Piece(INPUT | GOLD, 2),
        Piece(INPUT, 3, 0),
        Piece(INPUT | GOLD, 1),
        Piece(INPUT, 4, 0),
        Piece(INPUT | GOLD, 1),
        Piece(INPUT, 6, 3),
    )


def test_what_is_left_over_lost_and_added() -> None:
    states = ["keep <i>this</i> text", "keep this text"]
    segments = align(spine(states, [0], 1), *states, "keep <i>this also")
    said = {(bits, step): length for bits, length, step in segments if bits not in (7, 1)}
    assert said[INPUT | ANSWER, 0] == 3  # <i>
    assert said[INPUT | GOLD, NO_STEP] == 4  # text
    assert said[ANSWER, NO_STEP] == 4  # also


def test_a_step_behind_the_stop_that_was_carried_out() -> None:
    states = ["one two", "one"]
    segments = align(spine(states, [1], 0), "one two", "one two", "one")
    assert (INPUT | GOLD, 4, 1) in segments
