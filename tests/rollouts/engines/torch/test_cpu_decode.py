"""Samples that drew the same tokens so far are computed once, and draw what they draw apart."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rollouts.engines.torch import cpu_decode  # noqa: E402
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


@settings(max_examples=25, deadline=None)
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


@pytest.mark.parametrize("heat", [0.0, 0.05, 1.0])
def test_each_beginning_is_fed_once(
    model: Any, heat: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, beginnings = fed(model, Sampling(14, heat), 6, monkeypatch)
    assert steps == beginnings


def test_later_turns_go_on_from_each_sample(model: Any) -> None:
    found: list[Any] = []
    for merges in (True, False):
        engine = TorchEngine(model, [2, 5], 64)
        engine.merges = merges
        first = engine.generate_now(PROMPTS, Sampling(12, 0.05), 4, range(5))
        rows = [[*p, *c.ids, 50] for p, g in zip(PROMPTS, first, strict=True) for c in g]
        before = engine.prefilled
        again = engine.generate_now(rows, Sampling(12, 0.05), 1, range(len(rows)))
        assert engine.prefilled - before == 2 * len(rows)  # the last token and what was heard
        found.append((first, again))
    assert_same(found[0][0], found[1][0])
    assert_same(found[0][1], found[1][1])
