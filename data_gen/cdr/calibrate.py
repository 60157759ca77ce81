"""Thresholds from statistics: percentiles, rounding to numbers people say, target drop rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

ZeroPolicy = Literal["min-positive", "skip"]

# filter -> (the one bound that is calibrated, its direction). "min": texts below are dropped.
BOUNDS: dict[str, tuple[str, Literal["min", "max"]]] = {
    "alphanumeric_filter": ("min_ratio", "min"),
    "average_line_length_filter": ("max_len", "max"),
    "character_repetition_filter": ("max_ratio", "max"),
    "flagged_words_filter": ("max_ratio", "max"),
    "maximum_line_length_filter": ("max_len", "max"),
    "stopwords_filter": ("min_ratio", "min"),
    "text_length_filter": ("min_len", "min"),
    "word_repetition_filter": ("max_ratio", "max"),
    "words_num_filter": ("min_num", "min"),
}
LEAST_RATIO = 0.001


@dataclass(frozen=True)
class Threshold:
    """A calibrated filter: `params` is None when the policy drops the variant."""

    params: dict[str, float] | None
    raw: float
    meta: dict[str, Any]


def percentile(values: Sequence[float] | np.ndarray[Any, Any], q: float) -> float:
    """Percentile q in [0, 1] by linear interpolation; one value is its own percentile.

    In exactly this form, because published thresholds depend on the last bit (spec section 17).
    """
    position = (len(values) - 1) * q
    low = int(position)
    high = min(low + 1, len(values) - 1)
    ordered = np.partition(np.asarray(values), (low, high))
    if len(values) == 1:
        return float(ordered[0])
    weight = position - low
    return float(ordered[low]) * (1 - weight) + float(ordered[high]) * weight


def round_threshold(value: float, key: str) -> float | int:
    """A threshold as it is spoken (spec section 7.1): a count, or a ratio within [0, 1]."""
    if key.endswith("_ratio"):
        return _round_ratio(value)
    steps = ((50, 5), (100, 10), (1000, 50), (10000, 100))
    step = next((s for limit, s in steps if value <= limit), 1000)
    rounded = int(round(value / step) * step)
    return max(5, rounded) if value > 0 else rounded


def _round_ratio(value: float) -> float:
    step, digits = (0.0001, 4) if value < 0.001 else (0.001, 3) if value < 0.01 else (0.01, 2)
    rounded = round(value / step) * step
    if value > 0 and rounded == 0:
        rounded = step
    return round(min(1.0, max(0.0, rounded)), digits)


def initial_threshold(values: Sequence[float], filter_name: str) -> dict[str, float]:
    """The library's first guess: 20th percentile for a minimum, 80th for a maximum."""
    key, direction = BOUNDS[filter_name]
    return {key: round_threshold(percentile(values, 0.2 if direction == "min" else 0.8), key)}


def quantile_of(filter_name: str, drop_rate: float) -> float:
    """Which quantile of its statistics a filter's threshold is made from."""
    return drop_rate if BOUNDS[filter_name][1] == "min" else 1 - drop_rate


def calibrated(
    filter_name: str, raw: float, drop_rate: float, zero_policy: ZeroPolicy
) -> Threshold:
    """The threshold that drops about `drop_rate` of the texts whose statistics have the percentile
    `raw` at `quantile_of`.

    Only the calibrated bound is set; the opposite one falls back to the operator's default
    (the hidden lower bounds of spec section 2).
    """
    key, direction = BOUNDS[filter_name]
    quantile = quantile_of(filter_name, drop_rate)
    value = round_threshold(raw, key)
    zero = key.endswith("_ratio") and value == 0
    if zero and zero_policy == "min-positive":
        value = LEAST_RATIO
    meta: dict[str, Any] = {
        "threshold_source": "instance_balanced_quantile",
        "target_drop_rate": drop_rate,
        "threshold_quantile": quantile,
        "threshold_direction": direction,
        "threshold_raw_value": round(raw, 6),
        "threshold_value": value,
        "threshold_param_key": key,
        "zero_ratio_threshold": zero,
        "zero_ratio_action": zero_policy if zero else None,
    }
    skipped = zero and zero_policy == "skip"
    return Threshold(None if skipped else {key: value}, round(raw, 6), meta)
