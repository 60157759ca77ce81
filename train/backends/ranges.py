"""Low and high ends of an estimate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """From the least to the most that is likely. What is known exactly has one value."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)

    def over(self, rate: Range) -> Range:
        """Work at a rate: the least work at the best rate, the most at the worst."""
        return Range(self.low / rate.high, self.high / rate.low)

    def text(self, form: str = ".1f") -> str:
        """`3.1–12.4`, or one number where both ends are printed alike."""
        low, high = format(self.low, form), format(self.high, form)
        return low if low == high else f"{low}–{high}"


def known(value: float) -> Range:
    return Range(value, value)


def total(parts: Iterable[Range]) -> Range:
    return sum(parts, start=known(0.0))
