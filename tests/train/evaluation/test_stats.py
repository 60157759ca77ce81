"""Intervals against published values and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from train.evaluation.stats import (
    clustered_mean,
    mcnemar_exact,
    mean_interval,
    pass_at_k,
    wilson,
)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (20, 20, 0.8389, 1.0),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_matches_newcombe(k: int, n: int, low: float, high: float) -> None:
    got = wilson(k, n)
    assert got.value == k / n
    assert (got.low, got.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert 0 <= got.low <= got.value <= got.high <= 1
    assert math.isnan(wilson(0, 0).value) and wilson(0, 0)[1:] == (0.0, 1.0)


def test_a_difference_is_a_mean_of_pairs() -> None:
    assert clustered_mean([1.0] * 30, range(30)) == (1.0, 1.0, 1.0)
    random = np.random.default_rng(1)
    gains = random.normal(0.2, 1, 400) - random.normal(0, 1, 400)
    got = clustered_mean(gains.tolist(), range(400), resamples=4000)
    spread = 1.96 * gains.std(ddof=1) / 20  # as by the normal theory
    assert got.low == pytest.approx(got.value - spread, abs=0.012)
    assert got.high == pytest.approx(got.value + spread, abs=0.012)
    assert got == clustered_mean(gains.tolist(), range(400), resamples=4000)  # the seed fixes it
    with pytest.raises(ValueError, match="wanted the same items"):
        clustered_mean([1.0], [1, 2])
    with pytest.raises(ValueError, match="sample at least k"):
        pass_at_k(4, 1, 8)


def test_mcnemar_by_hand() -> None:
    assert mcnemar_exact(31, 14) == pytest.approx(0.0160, abs=2e-4)
    assert mcnemar_exact(5, 0) == 2 / 32 == mcnemar_exact(0, 5)
    assert mcnemar_exact(0, 0) == mcnemar_exact(4, 4) == 1.0


def plain_bootstrap(
    values: list[float], sources: list[int], classes: list[str], resamples: int
) -> tuple[float, float]:
    """The clustered bootstrap as its definition says it: draw sources, take all their items."""
    random = np.random.default_rng(17)
    names = sorted(set(sources))
    found: list[float] = []
    for _ in range(resamples):
        drawn = [i for s in random.choice(names, len(names)) for i in items(sources, int(s))]
        by_class: dict[str, list[float]] = {}
        for i in drawn:
            by_class.setdefault(classes[i], []).append(values[i])
        found.append(float(np.mean([np.mean(own) for own in by_class.values()])))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def items(sources: list[int], source: int) -> list[int]:
    return [i for i, other in enumerate(sources) if other == source]


@settings(max_examples=2, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from("KD")),
        min_size=20,
        max_size=60,
    )
)
def test_the_clustered_bootstrap_is_a_plain_simulation(
    rows: list[tuple[int, float, str]],
) -> None:
    sources, values, classes = (list(part) for part in zip(*rows, strict=True))
    assume(len(set(sources)) > 3)
    for names in (classes, [""] * len(rows)):
        got = clustered_mean(values, sources, names, 4000)
        low, high = plain_bootstrap(values, sources, names, 1500)
        by_class = (
            np.mean([v for v, n in zip(values, names, strict=True) if n == name])
            for name in set(names)
        )
        assert got.value == pytest.approx(np.mean(list(by_class)))
        assert got.low == pytest.approx(low, abs=0.07)
        assert got.high == pytest.approx(high, abs=0.07)


def test_items_of_one_source_count_as_one() -> None:
    """Ten copies of every item tell nothing new: the interval stays as wide."""
    random = np.random.default_rng(2)
    values = (random.random(80) < 0.4).astype(float).tolist()
    alone = clustered_mean(values, list(range(80)))
    copied = clustered_mean(values * 10, list(range(80)) * 10)
    assert copied == pytest.approx(alone)
    naive = clustered_mean(values * 10, list(range(800)))
    assert naive.high - naive.low < 0.5 * (copied.high - copied.low)


def test_one_item_a_source_is_wilson_and_one_source_has_no_interval() -> None:
    assert mean_interval([1.0, 0.0, 1.0], ["a", "b", "c"]) == wilson(2, 3)
    assert mean_interval([1.0] * 6, ["a", "b", "c"] * 2) == wilson(3, 3)
    assert math.isnan(mean_interval([1.0, 0.0], ["a", "a"]).low)
    graded = mean_interval([0.2, 0.4, 0.9], ["a", "b", "c"])
    assert graded.low < graded.value < graded.high and graded.value == pytest.approx(0.5)
    assert math.isnan(mean_interval([], []).value)


def test_many_sources_are_drawn_in_blocks() -> None:
    values = [float(i % 4 == 0) for i in range(9000)]
    got = clustered_mean(values, [i // 2 for i in range(9000)])
    spread = 1.96 * np.std([np.mean(values[i : i + 2]) for i in range(0, 9000, 2)]) / 4500**0.5
    assert got.high - got.low == pytest.approx(2 * spread, rel=0.15)
