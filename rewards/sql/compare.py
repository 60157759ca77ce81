"""Whether two results of queries are equal.

The outcome reads as the test-suite evaluation of Spider does (Zhong, Yu, Klein 2020,
github.com/taoyds/test-suite-sql-eval, `exec_eval.result_eq`): names of columns do not count, nor
does their order (one exchange of columns must fit all rows), duplicates count, and the order of
rows counts where the question asks for one. Two empty results are equal. `bird_equal` is the
reading of BIRD: two sets of rows.

One thing is read more kindly than there: numbers are equal within `TOLERANCE`, and a date at
midnight is its date. `published=True` turns both off.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]

TOLERANCE = 1e-6  # relative; as for exact numbers of the other families
_LEAST = 1e-9  # absolute, about zero: sums of numbers that cancel
_TRIES = 2_000  # exchanges of columns that are tried
_PAIRED = 2_000  # rows up to which every pair of unequal rows may be looked at
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?")


def same_cell(one: Cell, two: Cell, published: bool = False) -> bool:
    """NULL equals NULL alone, bytes equal bytes, text equals text (never a number)."""
    if isinstance(one, int | float) and isinstance(two, int | float):
        if one == two or published:
            return one == two
        try:
            return math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=_LEAST)
        except OverflowError:  # a whole number beyond every float
            return False
    if type(one) is not type(two):
        return False
    if isinstance(one, str) and isinstance(two, str) and not published:
        return one == two or _date(one) == _date(two)
    return one == two


def _date(text: str) -> str:
    found = _MIDNIGHT.fullmatch(text)
    return found.group(1) if found else text


def same_row(one: Row, two: Row, published: bool = False) -> bool:
    return len(one) == len(two) and all(
        same_cell(a, b, published) for a, b in zip(one, two, strict=True)
    )


def equal(gold: Sequence[Row], said: Sequence[Row], ordered: bool, published: bool = False) -> bool:
    """Whether the rows are the same under some exchange of the columns of `said`; `ordered`: in
    the same order, else as a multiset."""
    if not gold and not said:
        return True
    if len(gold) != len(said) or len(gold[0]) != len(said[0]):
        return False
    check = _in_order if ordered else _as_multiset
    columns = len(gold[0])
    if columns == 1:
        return check(gold, said, published)
    for exchange in islice(_exchanges(gold, said, published), _TRIES):
        if check(gold, [tuple(row[at] for at in exchange) for row in said], published):
            return True
    return False


def bird_equal(gold: Sequence[Row], said: Sequence[Row]) -> bool:
    """BIRD's execution accuracy: the sets of rows are equal, columns in their order."""
    return set(gold) == set(said)


def _exchanges(
    gold: Sequence[Row], said: Sequence[Row], published: bool
) -> Iterator[tuple[int, ...]]:
    """For every column of gold a column of `said` that holds the same values, each once. Of
    columns that are the same throughout, one order is enough."""
    theirs = list(zip(*said, strict=True))
    fits = [
        [at for at, own in enumerate(theirs) if _same_values(column, own, published)]
        for column in zip(*gold, strict=True)
    ]

    def rest(place: int, taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if place == len(fits):
            yield taken
            return
        tried: list[tuple[Cell, ...]] = []
        for at in fits[place]:
            if at in taken or any(_identical(theirs[at], other) for other in tried):
                continue
            tried.append(theirs[at])
            yield from rest(place + 1, (*taken, at))

    yield from rest(0, ())


def _identical(one: Sequence[Cell], two: Sequence[Cell]) -> bool:
    return all(type(a) is type(b) and a == b for a, b in zip(one, two, strict=True))


def _same_values(one: Sequence[Cell], two: Sequence[Cell], published: bool) -> bool:
    return _as_multiset([(v,) for v in one], [(v,) for v in two], published)


def _in_order(gold: Sequence[Row], said: Sequence[Row], published: bool) -> bool:
    return all(same_row(a, b, published) for a, b in zip(gold, said, strict=True))


def _as_multiset(gold: Sequence[Row], said: Sequence[Row], published: bool) -> bool:
    """Rows pair up one to one. What is not exactly equal is paired within the tolerance."""
    left, right = Counter(gold), Counter(said)
    mine, theirs = list((left - right).elements()), list((right - left).elements())
    if not mine or published:
        return not mine
    if len(mine) > _PAIRED:  # so many rows of computed numbers: side by side in their order
        mine, theirs = sorted(mine, key=_sort_key), sorted(theirs, key=_sort_key)
        return all(same_row(a, b) for a, b in zip(mine, theirs, strict=True))
    return _all_paired(mine, theirs)


def _sort_key(row: Row) -> list[tuple[int, float, str]]:
    return [_cell_key(cell) for cell in row]


def _cell_key(cell: Cell) -> tuple[int, float, str]:
    if isinstance(cell, int | float):
        try:
            return (1, float(cell), "")
        except OverflowError:
            return (1, math.inf if cell > 0 else -math.inf, "")
    return (
        (0, 0.0, "")
        if cell is None
        else (2, 0.0, _date(cell) if isinstance(cell, str) else repr(cell))
    )


def _all_paired(mine: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Whether a matching of equal rows covers all. By augmenting paths: equality within a
    tolerance is not transitive, so the first partner that fits may be another's only one."""
    order = sorted(range(len(theirs)), key=lambda at: _sort_key(theirs[at]))
    fits: list[list[int]] = []
    for row in mine:
        found = [at for at in order if same_row(row, theirs[at])]
        if not found:
            return False
        fits.append(found)
    partner: dict[int, int] = {}

    def place(start: int) -> bool:
        seen: set[int] = set()
        path: list[tuple[int, Iterator[int]]] = [(start, iter(fits[start]))]
        chosen: list[int] = []
        while path:
            _, ways = path[-1]
            at = next((a for a in ways if a not in seen), None)
            if at is None:
                path.pop()
                if chosen:
                    chosen.pop()
                continue
            seen.add(at)
            chosen.append(at)
            if at not in partner:
                for (owner, _), taken in zip(path, chosen, strict=True):
                    partner[taken] = owner
                return True
            path.append((partner[at], iter(fits[partner[at]])))
        return False

    return all(place(start) for start in range(len(mine)))
