"""Intervals and tests for accuracies measured on the same items. Pure numpy, seeded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z95 = 1.959963984540054


class Interval(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(successes: float, n: int) -> Interval:
    """Wilson's 95 % score interval of a proportion; the whole of [0, 1] when there are no items."""
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    p, z2 = successes / n, Z95 * Z95
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # at p = 0 and 1 the bound is the value itself; rounding would put it just beside
    low = 0.0 if successes <= 0 else max(0.0, middle - half)
    high = 1.0 if successes >= n else min(1.0, middle + half)
    return Interval(p, low, high)


def balanced(outcomes: Sequence[float], classes: Sequence[str]) -> float:
    """Mean of the class means: 0.5 for a model that always answers one of two classes."""
    if not outcomes:
        return math.nan
    values, names = np.asarray(outcomes, float), np.asarray(classes)
    return float(np.mean([values[names == name].mean() for name in sorted(set(classes))]))


def paired_difference(
    a: Sequence[float], b: Sequence[float], resamples: int = 2000, seed: int = 0
) -> Interval:
    """Mean of b − a over the same items, with a percentile bootstrap over items."""
    return balanced_difference(a, b, [""] * len(a), resamples, seed)


def balanced_difference(
    a: Sequence[float],
    b: Sequence[float],
    classes: Sequence[str],
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Balanced mean of b − a with a percentile bootstrap of items, within each class.

    Items are paired (a[i] and b[i] answer the same task, drawn together) and class sizes stay as
    they are, because the measure is conditional on the class. Raises ValueError on unequal lengths.
    """
    if not len(a) == len(b) == len(classes):
        raise ValueError(f"{len(a)}, {len(b)} and {len(classes)} items; wanted the same items")
    if not a:
        return Interval(math.nan, math.nan, math.nan)
    difference, names = np.asarray(b, float) - np.asarray(a, float), np.asarray(classes)
    random = np.random.default_rng(seed)
    means, value = np.zeros(resamples), 0.0
    groups = sorted(set(classes))
    for name in groups:
        own = difference[names == name]
        draws = random.integers(0, len(own), (resamples, len(own)))
        means += own[draws].mean(axis=1) / len(groups)
        value += float(own.mean()) / len(groups)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def mcnemar_exact(gained: int, lost: int) -> float:
    """Two-sided exact p that gains and losses are equally likely; 1 when nothing changed."""
    n = gained + lost
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, i) for i in range(min(gained, lost) + 1)) / 2**n
    return min(1.0, 2 * tail)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Unbiased chance that one of k answers is right, from `correct` of `n` sampled.

    Chen et al. 2021. Raises ValueError when fewer than k were sampled.
    """
    if not 1 <= k <= n or not 0 <= correct <= n:
        raise ValueError(f"pass@{k} from {correct} of {n} samples; sample at least k answers")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)
