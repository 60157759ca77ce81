"""The last rows of a call, several tokens a step: the same answers, in fewer steps."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rollouts.engines.torch import tail  # noqa: E402
from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.load import load_llama  # noqa: E402
from rollouts.engines.torch.tail import GUESSES, Lookup  # noqa: E402
from rollouts.trajectory import Completion, Sampling  # noqa: E402

# texts that repeat themselves, one that does not, and one token alone
PROMPTS = [[6, 7, 8] * 5, list(range(3, 30)), [9], [44, 3, 17, 44, 3]]
SEEDS = [3, 1, 4, 1]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return load_llama(tiny_folder, "float32")


def answers(
    model: Any, sampling: Sampling, rows: int, patch: pytest.MonkeyPatch, prompts: Any = PROMPTS
) -> tuple[list[list[Completion]], TorchEngine]:
    """Answers where the tail begins at `rows` live rows; 0: never."""
    patch.setattr(tail, "ROWS", rows)
    engine = TorchEngine(model, [2], slots=16)
    return engine.generate_now(prompts, sampling, 2, SEEDS), engine


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(40, temperature=0),
        Sampling(40, temperature=0.3),
        Sampling(25, temperature=1.0, top_k=20, top_p=0.9),
        Sampling(1, temperature=0),
    ],
)
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_answers_are_those_of_single_steps(
    model: Any, sampling: Sampling, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = answers(model, sampling, 0, monkeypatch)
    found, _ = answers(model, sampling, rows, monkeypatch)
    for one, other in zip(chain(*plain), chain(*found), strict=True):
        assert (one.ids, one.stop) == (other.ids, other.stop)
        for name in ("logprobs", "sampling_logprobs"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-4)


def test_text_that_repeats_itself_takes_fewer_steps(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    forward = tail._forward  # pyright: ignore[reportPrivateUsage]

    def counted(*args: Any) -> Any:
        steps.append(args[2].shape[1])
        return forward(*args)

    monkeypatch.setattr(tail, "_forward", counted)
    # greedy answers of a random model end in a loop, which the lookup finds
    monkeypatch.setattr(tail, "ROWS", 4)
    engine = TorchEngine(model, [], slots=16)
    ((one,),) = engine.generate_now([[5, 6]], Sampling(120, temperature=0), 1, [0])
    assert len(one.ids) == 120
    assert len(steps) < 100 and max(steps) > 2


def test_the_next_turn_finds_the_keys_that_the_tail_made(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = Sampling(30, temperature=0.5)
    _, plain = answers(model, sampling, 0, monkeypatch)
    groups, engine = answers(model, sampling, 16, monkeypatch)
    pairs = zip(PROMPTS, groups, strict=True)
    turns = [[*p, *c.ids, 8, 9, 10] for p, group in pairs for c in group[:1]]
    before = engine.prefilled, plain.prefilled
    after = engine.generate_now(turns, Sampling(12, temperature=0), 1, SEEDS)
    again = plain.generate_now(turns, Sampling(12, temperature=0), 1, SEEDS)
    assert engine.prefilled - before[0] == plain.prefilled - before[1] <= 4 * len(turns)
    assert [g[0].ids for g in after] == [g[0].ids for g in again]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, GUESSES))
def test_a_guess_is_what_followed_when_the_end_stood_before(ids: list[int], width: int) -> None:
    text, guess = Lookup(ids[:1], width), None
    for size in range(1, len(ids) + 1):
        text.ids = ids[:size]
        guess = text.guess()
    ends = [
        e for n in tail.GRAMS for e in range(len(ids) - 1, n - 1, -1) if ids[e - n : e] == ids[-n:]
    ]
    ends = [e for e in ends if len(ids) >= 2]
    assert guess == (ids[ends[0] : ends[0] + width] if ends else [])


@given(st.integers(1, GUESSES), st.integers(0, GUESSES))
def test_wrong_guesses_make_the_next_ones_short(guessed: int, kept: int) -> None:
    text = Lookup([1], width=4)
    text.learn(guessed, min(kept, guessed))
    assert 1 <= text.width <= GUESSES
    assert text.width == (8 if kept >= guessed else kept + 1)
    text.learn(0, 0)
    assert text.width == (8 if kept >= guessed else kept + 1)
