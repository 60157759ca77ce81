"""Tokens that are guessed from the text before: the same answers, in fewer steps."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rollouts.engines.torch import cpu_decode  # noqa: E402
from rollouts.engines.torch.cpu_decode import GRAMS, GUESSES, Lookup, share_out  # noqa: E402
from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402

# texts that repeat themselves, one that does not, and one token alone
PROMPTS = [[6, 7, 8] * 5, list(range(3, 30)), [9], [44, 3, 17, 44, 3]]
SEEDS = [3, 1, 4, 1]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return load_llama(tiny_folder, "float32")


def none(rows: Any, *_: Any) -> list[int]:
    return [0] * len(rows)


def everything(rows: Any, *_: Any) -> list[int]:
    return [known for _, known in rows]


def answers(
    model: Any, sampling: Sampling, share: Any, patch: pytest.MonkeyPatch
) -> tuple[list[list[Completion]], TorchEngine]:
    """Answers where `share` says how many of a row's guesses are fed."""
    patch.setattr(cpu_decode, "share_out", share)
    engine = TorchEngine(model, [2], slots=16)
    return engine.generate_now(PROMPTS, sampling, 2, SEEDS), engine


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(40, temperature=0),
        Sampling(40, temperature=0.3),
        Sampling(25, temperature=1.0, top_k=20, top_p=0.9),
        Sampling(1, temperature=0),
    ],
)
@pytest.mark.parametrize("share", [share_out, everything])
def test_answers_are_those_of_single_steps(
    model: Any, sampling: Sampling, share: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = answers(model, sampling, none, monkeypatch)
    found, _ = answers(model, sampling, share, monkeypatch)
    for one, other in zip(chain(*plain), chain(*found), strict=True):
        assert (one.ids, one.stop) == (other.ids, other.stop)
        for name in ("logprobs", "sampling_logprobs"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-4)


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


def test_the_next_turn_finds_the_keys_that_guesses_left(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = Sampling(30, temperature=0.5)
    _, plain = answers(model, sampling, none, monkeypatch)
    groups, engine = answers(model, sampling, everything, monkeypatch)
    pairs = zip(PROMPTS, groups, strict=True)
    turns = [[*p, *c.ids, 8, 9, 10] for p, group in pairs for c in group[:1]]
    before = engine.prefilled, plain.prefilled
    after = engine.generate_now(turns, Sampling(12, temperature=0), 1, SEEDS)
    again = plain.generate_now(turns, Sampling(12, temperature=0), 1, SEEDS)
    assert engine.prefilled - before[0] == plain.prefilled - before[1] <= 4 * len(turns)
    assert [g[0].ids for g in after] == [g[0].ids for g in again]


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


@given(st.lists(st.tuples(st.integers(1, GUESSES), st.integers(0, GUESSES)), max_size=30))
def test_right_guesses_make_sure_and_wrong_ones_unsure(steps: list[tuple[int, int]]) -> None:
    text = Lookup([1])
    for guessed, kept in steps:
        before = text.sure
        text.learn(guessed, min(kept, guessed))
        assert 0 < text.sure < 1
        if kept == 0:
            assert text.sure < before
        assert kept < guessed or text.sure >= min(before, 0.9)
    before = text.sure
    text.learn(0, 0)
    assert text.sure == before


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
