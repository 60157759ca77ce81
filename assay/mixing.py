"""Numbers spread evenly, for samples by the least hash."""

from __future__ import annotations

from typing import Any


def spread(values: Any) -> Any:
    """Spread 64-bit numbers evenly (splitmix64)."""
    import numpy as np

    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
