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
from rollouts.engines.torch.cpu_decode import GRAMS, GUESSES, Lookup  # noqa: E402
from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402

PROMPTS = [[7, 8, 9, i, *range(30, 31 + 3 * i)] for i in range(5)]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return load_llama(tiny_folder, "float32")


def assert_same(
    ours: list[list[Completion]], theirs: list[list[Completion]], near: float = 2e-4
) -> None:
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert (one.ids, one.stop) == (other.ids, other.stop)
        assert one.logprobs == pytest.approx(other.logprobs, abs=near)
        assert one.sampling_logprobs == pytest.approx(other.sampling_logprobs, abs=near)


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
    found: list[list[list[Completion]]] = []
    for merges in (True, False):
        engine = TorchEngine(model, list(range(0, 259, every)), slots)
        engine.merges = merges
        found.append(engine.generate_now(PROMPTS, Sampling(14, heat, *narrow), n, range(5)))
    assert_same(*found, max(2e-4, 1e-5 / (heat or 1)))


# texts that repeat themselves, one that does not, and one token alone
REPEATING = [[6, 7, 8] * 5, list(range(3, 30)), [9], [44, 3, 17, 44, 3]]


LAWS = [(40, 0.0), (40, 0.3), (25, 1.0, 20, 0.9), (1, 0.0)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: str(law[:2]))
def test_answers_with_every_guess_are_those_of_single_steps(
    model: Any, law: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[list[Completion]]] = []
    for share in (lambda rows, *_: [0] * len(rows), lambda rows, *_: [known for _, known in rows]):
        monkeypatch.setattr(cpu_decode, "share_out", share)
        engine = TorchEngine(model, [2], slots=16)
        found.append(engine.generate_now(REPEATING, Sampling(*law), 2, [3, 1, 4, 1]))
    assert_same(*found)


def test_text_that_repeats_itself_takes_fewer_steps(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy answers of a random model end in a loop, which the lookup finds."""
    steps, feed = list[int](), cpu_decode.feed
    monkeypatch.setattr(cpu_decode, "feed", lambda *args: (steps.append(1), feed(*args))[1])
    engine = TorchEngine(model, [], slots=16)
    ((one,),) = engine.generate_now([[5, 6]], Sampling(120, temperature=0), 1, [0])
    assert len(one.ids) == 120 and len(steps) < 100


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_a_guess_is_what_followed_when_the_end_stood_before(ids: list[int]) -> None:
    text, guess = Lookup(ids[:1]), None
    for size in range(1, len(ids) + 1):
        text.ids = ids[:size]
        guess = text.guess()
    ends = [e for n in GRAMS for e in range(len(ids) - 1, n - 1, -1) if ids[e - n : e] == ids[-n:]]
    assert guess == (ids[ends[0] : ends[0] + GUESSES] if ends else [])
