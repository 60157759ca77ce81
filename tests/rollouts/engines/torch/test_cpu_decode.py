"""Samples that drew the same tokens so far are computed once, and draw what they draw apart; tokens
that are guessed from the text before give the same answers, in fewer steps."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rollouts.engines.torch import cpu_decode  # noqa: E402
from rollouts.engines.torch.cpu_decode import GRAMS, GUESSES, Lookup, share_out  # noqa: E402
from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402

PROMPTS = [[7, 8, 9, i, *range(30, 31 + 3 * i)] for i in range(5)]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return load_llama(tiny_folder, "float32")


def answers(
    model: Any, merges: bool, sampling: Sampling, n: int, **more: Any
) -> list[list[Completion]]:
    engine = TorchEngine(model, more.get("stops", [2]), more.get("slots", 64))
    engine.merges = merges
    return engine.generate_now(PROMPTS, sampling, n, range(len(PROMPTS)))


def assert_same(
    ours: list[list[Completion]], theirs: list[list[Completion]], near: float = 2e-4
) -> None:
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert (one.ids, one.stop) == (other.ids, other.stop)
        for name in ("logprobs", "sampling_logprobs"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=near)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([0.0, 0.01, 0.03, 0.1, 1.0]),
    st.sampled_from([(0, 1.0), (5, 1.0), (20, 0.8)]),
    st.integers(1, 6),
    st.sampled_from([3, 8, 64]),
    st.integers(3, 40),
)
def test_merged_samples_draw_what_they_draw_apart(
    model: Any, heat: float, narrow: tuple[int, float], n: int, slots: int, every: int
) -> None:
    sampling = Sampling(14, heat, *narrow)
    more = {"slots": slots, "stops": list(range(0, 259, every))}
    ours, theirs = (answers(model, merges, sampling, n, **more) for merges in (True, False))
    assert_same(ours, theirs, max(2e-4, 1e-5 / (heat or 1)))


def fed(model: Any, sampling: Sampling, n: int, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """(tokens that were fed in all steps, different beginnings of the answers that need one)."""
    rows: list[int] = []
    feed = cpu_decode.feed

    def counted(*args: Any) -> Any:
        rows.append(sum(len(part.ids) for part in args[2]))
        return feed(*args)

    patch.setattr(cpu_decode, "share_out", lambda rows, *_: [0] * len(rows))  # no guesses
    patch.setattr(cpu_decode, "feed", counted)
    found = answers(model, True, sampling, n)
    begun = {
        (at, *c.ids[:size])
        for at, group in enumerate(found)
        for c in group
        for size in range(1, len(c.ids))
    }
    return sum(rows), len(begun)


def test_each_beginning_is_fed_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, beginnings = fed(model, Sampling(14, 0.05), 6, monkeypatch)
    assert steps == beginnings


# texts that repeat themselves, one that does not, and one token alone
REPEATING = [[6, 7, 8] * 5, list(range(3, 30)), [9], [44, 3, 17, 44, 3]]


@pytest.mark.parametrize(
    "law", [(40, 0.0), (40, 0.3), (25, 1.0, 20, 0.9), (1, 0.0)], ids=lambda law: str(law[:2])
)
def test_answers_with_every_guess_are_those_of_single_steps(
    model: Any, law: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[list[Completion]]] = []
    for share in (lambda rows, *_: [0] * len(rows), lambda rows, *_: [known for _, known in rows]):
        monkeypatch.setattr(cpu_decode, "share_out", share)
        engine = TorchEngine(model, [2], slots=16)
        found.append(engine.generate_now(REPEATING, Sampling(*law), 2, [3, 1, 4, 1]))
    assert_same(*found)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_a_guess_is_what_followed_when_the_end_stood_before(ids: list[int]) -> None:
    text, guess = Lookup(ids[:1]), None
    for size in range(1, len(ids) + 1):
        text.ids = ids[:size]
        guess = text.guess()
    ends = [e for n in GRAMS for e in range(len(ids) - 1, n - 1, -1) if ids[e - n : e] == ids[-n:]]
    assert guess == (ids[ends[0] : ends[0] + GUESSES] if ends else [])


@given(st.lists(st.integers(0, 3), min_size=3, max_size=30), st.integers(0, 3), st.integers(0, 3))
def test_texts_that_part_do_not_meet_again(ids: list[int], one: int, other: int) -> None:
    text = Lookup(list(ids))
    text.guess()
    apart = text.fork([one])
    text.ids.append(other)
    assert apart.guess() == Lookup([*ids, one]).guess()
    assert text.guess() == Lookup([*ids, other]).guess()


ROWS = st.lists(st.tuples(st.floats(0.05, 0.99), st.integers(0, GUESSES)), min_size=1, max_size=40)


@given(ROWS, st.sampled_from([1, 16]), st.floats(0.05, 0.9), st.integers(1, 300))
def test_guesses_fill_blocks_and_are_worth_their_price(
    rows: list[tuple[float, int]], block: int, price: float, most: int
) -> None:
    counts = share_out(rows, block, price, most)
    assert all(0 <= count <= known for count, (_, known) in zip(counts, rows, strict=True))
    total = len(rows) + sum(counts)
    assert sum(counts) == 0 or total <= most
    fed = [
        sure**n for (sure, _), count in zip(rows, counts, strict=True) for n in range(1, count + 1)
    ]
    left = [
        sure**n
        for (sure, known), count in zip(rows, counts, strict=True)
        for n in range(count + 1, known + 1)
    ]
    assert not fed or not left or min(fed) >= max(left)  # the best ones
    free = -len(rows) % block
    if len(fed) > free:  # what is not free is worth it
        assert sum(sorted(fed, reverse=True)[free:]) >= price * (len(fed) - free)
    if total < most - block and left:  # and no more would be
        assert total % block == 0
        assert sum(sorted(left, reverse=True)[:block]) < price * block


def test_text_that_repeats_itself_takes_fewer_steps(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    feed = cpu_decode.feed

    def counted(*args: Any) -> Any:
        steps.append(len(args[2][0].ids))
        return feed(*args)

    monkeypatch.setattr(cpu_decode, "feed", counted)
    # greedy answers of a random model end in a loop, which the lookup finds
    engine = TorchEngine(model, [], slots=16)
    ((one,),) = engine.generate_now([[5, 6]], Sampling(120, temperature=0), 1, [0])
    assert len(one.ids) == 120
    assert len(steps) < 100 and max(steps) > 2
