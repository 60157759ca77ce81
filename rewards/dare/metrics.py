# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""The four published metrics on two aligned columns. pandas is imported when first called.

They give what the harness's scikit-learn calls give, including its exceptions, which the harness
turns into 0 (spec 8.3); own arithmetic because those calls cost most of a reward's time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Column = Any  # a pandas Series; its own annotations are partial


class MetricRaises(ValueError):
    """The published evaluator raises here, and records the whole example as failed."""


def exact_list(truth: Column, said: Column) -> float:
    """Return 1 if the two columns are equal as Python lists, else 0: `1 == 1.0 == True`, text to
    the letter (the harness's comparison of IF labels, spec 8.3)."""
    return float(truth.tolist() == said.tolist())


def within_tolerance(truth: Column, said: Column) -> float:
    """Return 1 if every row is within 1e-8 + 1e-5·|prediction| (`numpy.allclose`), else 0.
    Raises `MetricRaises` on text."""
    import numpy as np

    try:
        return float(np.allclose(truth.to_numpy(), said.to_numpy()))
    except (TypeError, ValueError):
        raise MetricRaises("text against numbers") from None


def _is_number(column: Column) -> bool:
    return column.dtype.kind in "biuf"


def macro_f1(truth: Column, said: Column) -> float:
    """Compute the macro-averaged F1 over every class in truth or prediction, in [0, 1]
    (scikit-learn's `f1_score`); 0 where scikit-learn would refuse.

    Missing text is one more class; numbers must be whole and present on both sides.
    """
    import numpy as np
    import pandas as pd

    numbers = _is_number(truth)
    if numbers != _is_number(said):
        return 0.0
    both = pd.concat([truth, said], ignore_index=True)
    if numbers:
        values = both.to_numpy(dtype=float)
        if not np.isfinite(values).all() or (values != np.floor(values)).any():
            return 0.0
        codes, classes = pd.factorize(values)
    else:
        codes, classes = pd.factorize(both.to_numpy(dtype=object), use_na_sentinel=False)
        if not all(isinstance(label, str) or pd.isna(label) for label in classes):
            return 0.0
    count, size = len(classes), len(truth)
    if not size:
        return 0.0
    first, second = codes[:size], codes[size:]
    hits = np.bincount(first[first == second], minlength=count).astype(float)
    total = np.bincount(first, minlength=count) + np.bincount(second, minlength=count)
    return float(np.mean(2.0 * hits / total))  # a class is in at least one of the two


def raw_r2(truth: Column, said: Column) -> float | None:
    """Compute R2 without the clip (scikit-learn's `r2_score`), at most 1; None where
    scikit-learn would refuse (missing, infinite, text)."""
    import numpy as np

    try:
        y = truth.to_numpy(dtype=float)
        p = said.to_numpy(dtype=float)
    except (TypeError, ValueError):
        return None
    if len(y) < 2 or not (np.isfinite(y).all() and np.isfinite(p).all()):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        left = float(((y - p) ** 2).sum())
        spread = float(((y - y.mean()) ** 2).sum())
    if spread == 0.0:
        return 1.0 if left == 0.0 else 0.0
    value = 1.0 - left / spread
    return value if np.isfinite(value) else -1e308


def clipped_r2(truth: Column, said: Column) -> float:
    """Compute R2 clipped to [0, 1]; 0 where scikit-learn would refuse."""
    value = raw_r2(truth, said)
    return 0.0 if value is None else min(1.0, max(0.0, value))


METRICS: dict[str, Callable[[Column, Column], float]] = {
    "class-IF": exact_list,
    "reg-IF": within_tolerance,
    "class-MM": macro_f1,
    "reg-MM": clipped_r2,
    "time-XF": clipped_r2,
    "time-CF": clipped_r2,
}
