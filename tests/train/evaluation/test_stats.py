"""Intervals against published values and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.evaluation.stats import (
    balanced,
    balanced_difference,
    mcnemar_exact,
    paired_difference,
    pass_at_k,
    wilson,
)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_matches_newcombe(k: int, n: int, low: float, high: float) -> None:
    got = wilson(k, n)
    assert got.value == k / n
    assert (got.low, got.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_its_value_and_is_symmetric(kn: tuple[int, int]) -> None:
    k, n = kn
    got, mirror = wilson(k, n), wilson(n - k, n)
    assert 0 <= got.low <= got.value <= got.high <= 1
    assert got.low == pytest.approx(1 - mirror.high, abs=1e-12)


def test_wilson_of_nothing_is_everything() -> None:
    assert math.isnan(wilson(0, 0).value) and wilson(0, 0)[1:] == (0.0, 1.0)


def test_always_one_class_is_half_balanced() -> None:
    classes = ["KEEP"] * 90 + ["DROP"] * 10
    assert balanced([1.0] * 90 + [0.0] * 10, classes) == 0.5
    assert balanced([1.0, 0.0, 1.0], ["KEEP", "KEEP", "DROP"]) == 0.75


def test_a_certain_gain_has_a_point_interval() -> None:
    got = paired_difference([0.0] * 30, [1.0] * 30)
    assert got == (1.0, 1.0, 1.0)
    assert paired_difference([1.0, 0.0], [1.0, 0.0]) == (0.0, 0.0, 0.0)


def test_bootstrap_interval_is_that_of_the_normal_theory() -> None:
    random = np.random.default_rng(1)
    a, b = random.normal(0, 1, 400), random.normal(0.2, 1, 400)
    got = paired_difference(a.tolist(), b.tolist(), 4000)
    spread = 1.96 * (b - a).std(ddof=1) / 20
    assert got.low == pytest.approx(got.value - spread, abs=0.012)
    assert got.high == pytest.approx(got.value + spread, abs=0.012)


def test_bootstrap_covers_the_truth_about_95_times_in_100() -> None:
    random, hits = np.random.default_rng(5), 0
    for trial in range(300):
        a, b = random.random(120) < 0.3, random.random(120) < 0.45
        got = paired_difference(a.tolist(), b.tolist(), 400, seed=trial)
        hits += got.low <= 0.15 <= got.high
    assert 0.90 <= hits / 300 <= 0.99


def test_balanced_difference_weighs_classes_not_items() -> None:
    classes = ["KEEP"] * 90 + ["DROP"] * 10
    a, b = [1.0] * 90 + [0.0] * 10, [1.0] * 90 + [1.0] * 10
    assert balanced_difference(a, b, classes).value == pytest.approx(0.5)
    assert paired_difference(a, b).value == pytest.approx(0.1)


def test_the_seed_fixes_the_interval() -> None:
    a, b = [0.0, 1.0] * 20, [1.0, 1.0, 0.0, 1.0] * 10
    assert paired_difference(a, b, seed=1) == paired_difference(a, b, seed=1)
    with pytest.raises(ValueError, match="wanted the same items"):
        paired_difference([1.0], [1.0, 0.0])


def test_mcnemar_by_hand() -> None:
    assert mcnemar_exact(31, 14) == pytest.approx(0.0160, abs=2e-4)
    assert mcnemar_exact(5, 0) == 2 / 32 == mcnemar_exact(0, 5)
    assert mcnemar_exact(0, 0) == mcnemar_exact(4, 4) == 1.0


def test_pass_at_k_is_the_chance_over_all_subsets() -> None:
    from itertools import combinations

    answers = [1, 0, 0, 1, 0]
    for k in range(1, 6):
        chosen = list(combinations(answers, k))
        assert pass_at_k(5, 2, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))
    with pytest.raises(ValueError, match="sample at least k"):
        pass_at_k(4, 1, 8)
