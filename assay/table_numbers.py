# pandas ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Columns of numbers known again in another unit, beside other labels, and in another draw of rows.

A copy of a table may call its rows by numbers instead of names, hold more of them, or give
thousands for units. What stays is the set of values of each measured column. A column is kept as
two small samples of such a set (the least hashes): of the digits of its values, which a change of
unit by a power of ten leaves alone, and of the ratios of neighbours in size, which any factor
leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.mixing import spread

SKETCH = 24  # hashes that are kept of a set
DIGITS = 6  # of a value that count: more of them are lost where a writer rounds
LONG = 100  # from here on a value's digits are its own: shorter ones are in every table
VALUES = 20  # distinct values of a column that says something
FULL = 0.2  # share of the values between its ends that such a column may hold
RARE = 0.05  # share of all values of as many digits that it may hold
APART = 0.003  # neighbours whose ratio is counted are so far apart: nearer ones are all alike
HUGE = 1e12  # ratios from here on are one: as parts of a million they fit into 64 bits
SAME_VALUES, SAME_RATIOS = 0.35, 0.5  # share of two columns' sets that both have, estimated
COLUMNS, SHARE = 2, 0.6  # columns of the narrower table that must be in the other
_MASK = (1 << 63) - 1
_TABLE, _COLUMN, _RATIOS = -1, -2, -3  # before what they say, in a list of sketches

Array = Any  # a numpy array


@dataclass(frozen=True)
class Numbers:
    """A column: `values` and `ratios`, each the `SKETCH` smallest hashes, in order."""

    values: tuple[int, ...]
    ratios: tuple[int, ...]

    def like(self, other: Numbers) -> bool:
        """Whether two columns hold the same quantities, but for a factor and some of the rows."""
        if shared(self.values, other.values) >= SAME_VALUES:
            return True
        return shared(self.ratios, other.ratios) >= SAME_RATIOS


def packed(numbers: Sequence[Numbers]) -> list[int]:
    """The sketches of a table as one list: no hash is below 0, so that negative numbers tell where
    a table, the values and the ratios of a column begin. Empty where nothing can be like it."""
    if len(numbers) < COLUMNS:
        return []
    found = [_TABLE]
    for column in sorted(numbers, key=lambda n: (n.values, n.ratios)):
        found += (_COLUMN, *column.values, _RATIOS, *column.ratios)
    return found


def unpacked(marks: Iterable[int]) -> list[tuple[Numbers, ...]]:
    """The tables of such lists, one behind the other. Raises ValueError for anything else."""
    tables: list[list[tuple[list[int], list[int]]]] = []
    part: list[int] | None = None
    for mark in marks:
        if mark == _TABLE:
            tables.append([])
            part = None
        elif mark == _COLUMN and tables:
            tables[-1].append((part := [], []))
        elif mark == _RATIOS and tables and tables[-1]:
            part = tables[-1][-1][1]
        elif mark >= 0 and part is not None:
            part.append(mark)
        else:
            raise ValueError("sketches of tables are out of order")
    return [tuple(Numbers(tuple(v), tuple(r)) for v, r in table) for table in tables]


def shared(one: Sequence[int], other: Sequence[int]) -> float:
    """The estimated share of two sets' members that are in both (bottom-k Jaccard)."""
    common = {*one} & {*other}
    if not common:
        return 0.0
    both = sorted({*one, *other})[:SKETCH]
    return sum(mark in common for mark in both) / len(both)


def same_numbers(ones: Sequence[Numbers], others: Sequence[Numbers]) -> bool:
    """Whether most columns of the narrower table are columns of the other, `COLUMNS` at least."""
    least = min(len(ones), len(others))
    wanted = max(COLUMNS, SHARE * least)
    if least < wanted:
        return False
    pairs = [(i, j) for i, a in enumerate(ones) for j, b in enumerate(others) if a.like(b)]
    return min(len({i for i, _ in pairs}), len({j for _, j in pairs})) >= wanted


def numbers_of(column: Any) -> Numbers | None:
    """The sketches of a pandas column; None for one that is not of numbers or says nothing."""
    import numpy as np

    if column.dtype.kind not in "iuf":
        return None
    values = np.abs(column.dropna().to_numpy(dtype=float))
    values = np.unique(values[np.isfinite(values) & (values > 0)])
    if len(values) < VALUES or _fills(values):
        return None
    every = _digits(values)
    digits = np.unique(every[every >= LONG])
    as_long = 9 * 10.0 ** np.floor(np.log10(np.median(digits))) if len(digits) else 0.0
    if not VALUES <= len(digits) <= RARE * as_long:
        return None
    ratios = values[1:] / values[:-1] - 1
    kept = (ratios >= APART) & (every[1:] >= 10 * LONG) & (every[:-1] >= 10 * LONG)
    far = np.unique(np.round(np.minimum(ratios[kept], HUGE) * 1e6))
    return Numbers(_least(digits), _least(far) if len(far) >= VALUES else ())


def _digits(values: Array) -> Array:
    """Whole numbers: the first `DIGITS` digits of each, without zeros at the end."""
    import numpy as np

    places = np.floor(np.log10(values))
    found = np.round(values / 10.0 ** (places - DIGITS + 1)).astype(np.int64)
    for _ in range(DIGITS):
        found = np.where(found % 10 == 0, found // 10, found)
    return found


def _fills(values: Array) -> bool:
    """Whether a column holds much of what lies between its ends, in steps of its own: ages, years
    and percentages do, in unrelated tables."""
    import numpy as np

    for places in range(7):
        scaled = values * 10.0**places
        whole = np.round(scaled)
        if np.allclose(scaled, whole, rtol=1e-9, atol=1e-6):
            break
    else:
        return False
    if whole[-1] > HUGE * 1e6:
        return False
    step = float(np.gcd.reduce(np.diff(whole).astype(np.int64))) or 1.0
    return bool(len(whole) > FULL * ((whole[-1] - whole[0]) / step + 1))


def _least(values: Array) -> tuple[int, ...]:
    import numpy as np

    hashes = np.unique(spread(values.astype(np.uint64) + np.uint64(1)) & np.uint64(_MASK))
    return tuple(int(mark) for mark in hashes[:SKETCH])
