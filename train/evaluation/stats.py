# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false
"""Intervals and tests for accuracies measured on the same items. Pure numpy, seeded.

Items drawn from one source (a document, a table, a lake) resemble each other: intervals resample
whole sources, never single items.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Z95 = 1.959963984540054
RESAMPLES = 2000
MANY = 2000  # sources, above which a quarter of the resamples is enough
_BLOCK = 4_000_000  # numbers drawn at once
_KEPT = 1_000_000  # and kept for the next table: 8 MB each


class Interval(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


NOTHING = Interval(math.nan, math.nan, math.nan)


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


def mean_interval(
    values: Sequence[float],
    sources: Sequence[Hashable],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """The mean of outcomes in [0, 1], with an interval clustered by source.

    Wilson's interval where each source has one item and every outcome is 0 or 1, and, over the
    number of sources, where all outcomes are 0 or all are 1: a bootstrap sees no spread there.
    The bounds are NaN where there is a single source with anything in between.
    """
    if not values:
        return NOTHING
    distinct, kinds = len(set(sources)), set(values)
    if kinds <= {0.0, 1.0} and distinct == len(values):
        return wilson(sum(values), len(values))
    if kinds in ({0.0}, {1.0}):
        return wilson(distinct * values[0], distinct)
    return clustered_mean(values, sources, resamples=resamples, seed=seed)


def clustered_mean(
    values: Sequence[float],
    sources: Sequence[Hashable],
    classes: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Mean of the values (with `classes`: mean of the class means) and its percentile bootstrap
    over sources: C sources are drawn from C with replacement, each with all its items.

    Raises ValueError on unequal lengths. The bounds are NaN for a single source.
    """
    names = [""] * len(values) if classes is None else list(classes)
    if not len(values) == len(sources) == len(names):
        raise ValueError(
            f"{len(values)}, {len(sources)} and {len(names)} items; wanted the same items"
        )
    if not values:
        return NOTHING
    sums_CG, counts_CG = _by_source(values, sources, names)
    value = float(np.mean(sums_CG.sum(axis=0) / counts_CG.sum(axis=0)))
    if len(sums_CG) == 1:
        return Interval(value, math.nan, math.nan)
    if len(sums_CG) > MANY:
        resamples = max(1, resamples // 4)
    means_B = _resampled(sums_CG, counts_CG, resamples, seed)
    low, high = np.nanquantile(means_B, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def _by_source(
    values: Sequence[float], sources: Sequence[Hashable], names: Sequence[str]
) -> tuple[Any, Any]:
    """Sums and counts of the values, by source (C) and class (G)."""
    row_of = {source: i for i, source in enumerate(dict.fromkeys(sources))}
    column_of = {name: i for i, name in enumerate(sorted(set(names)))}
    at = [row_of[s] * len(column_of) + column_of[n] for s, n in zip(sources, names, strict=True)]
    size, shape = len(row_of) * len(column_of), (len(row_of), len(column_of))
    sums = np.bincount(at, np.asarray(values, float), size).reshape(shape)
    return sums, np.bincount(at, minlength=size).reshape(shape).astype(float)


def _resampled(sums_CG: Any, counts_CG: Any, resamples: int, seed: int) -> Any:
    """The statistic of each resample (B)."""
    clusters = len(sums_CG)
    block = max(1, _BLOCK // clusters)
    random = np.random.default_rng(seed)
    found: list[Any] = []
    for at in range(0, resamples, block):
        size = min(block, resamples - at)
        keep = size == resamples and size * clusters <= _KEPT
        weights = _cached(clusters, size, seed) if keep else _draw(random, clusters, size)
        with np.errstate(invalid="ignore"):  # a class may be absent from a resample
            means_BG = (weights @ sums_CG) / (weights @ counts_CG)
        present = ~np.isnan(means_BG)
        found.append(np.where(present, means_BG, 0.0).sum(axis=1) / present.sum(axis=1))
    return np.concatenate(found)


@lru_cache(maxsize=16)
def _cached(clusters: int, size: int, seed: int) -> Any:
    """All models of a table have the same sources: drawn once for all of them."""
    return _draw(np.random.default_rng(seed), clusters, size)


def _draw(random: Any, clusters: int, size: int) -> Any:
    """How often each source is drawn (B, C)."""
    drawn = random.integers(0, clusters, (size, clusters))
    drawn += clusters * np.arange(size)[:, None]
    return np.bincount(drawn.ravel(), minlength=size * clusters).reshape(size, clusters) * 1.0


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
