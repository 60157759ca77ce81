"""Whether two results of queries are equal.

The outcome reads as the test-suite evaluation of Spider does (Zhong, Yu, Klein 2020,
github.com/taoyds/test-suite-sql-eval, `exec_eval.result_eq`): names of columns do not count, nor
does their order (one exchange of columns must fit all rows), duplicates count, and the order of
rows counts where the question asks for one. Two empty results are equal. `bird_equal` is the
reading of BIRD: two sets of rows.

Three things are read more kindly than there. Numbers that are computed are equal within
`TOLERANCE`: whole numbers are equal only if they are equal, and so is a number that stands in the
database. A date at midnight is its date. Texts are compared under Unicode's NFC. `published=True`
turns all off.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

Cell = None | int | float | str | bytes
Row = tuple[Cell, ...]

TOLERANCE = 1e-6  # relative, of computed fractions; as for exact numbers of the other families
_MOST = 0.01  # absolute: a millionth of a large number would be many of its units
_ROUNDING = 1e-12  # relative: what the order of a few hundred additions may change
_LEAST = 1e-9  # absolute, about zero: sums of numbers that cancel
_WHOLE = 2.0**53  # from there on every float is a whole number
_TRIES = 2_000  # exchanges of columns that are tried
_PAIRED = 2_000  # rows up to which every pair of unequal rows may be looked at
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?")

Same = Callable[[Cell, Cell], bool]


@dataclass(frozen=True)
class Stored:
    """The fractions that stand in a database, which are no results of computing; `least`: the
    absolute tolerance about zero among numbers of their size."""

    fractions: frozenset[float] = frozenset()
    least: float = _LEAST


_NOTHING = Stored()


def stored(cells: Iterable[Cell]) -> Stored:
    """Collect what is stored, of all the cells of a database."""
    found = frozenset(c for c in cells if isinstance(c, float) and math.isfinite(c))
    most = max(map(abs, found), default=1.0)
    return Stored(found, min(_LEAST, _ROUNDING * most) if most else _LEAST)


def same_cell(gold: Cell, said: Cell, published: bool = False, known: Stored = _NOTHING) -> bool:
    """Tell whether two cells are equal: NULL equals NULL alone, bytes equal bytes, text equals
    text (never a number), numbers as the head of this file says."""
    if isinstance(gold, int | float) and isinstance(said, int | float):
        return gold == said or (not published and _near(gold, said, known))
    if type(gold) is not type(said):
        return False
    if isinstance(gold, str) and isinstance(said, str) and not published:
        return gold == said or _text(gold) == _text(said)
    return gold == said


def _near(gold: float, said: float, known: Stored) -> bool:
    """Whether two unequal numbers may be one, computed in two ways."""
    if isinstance(gold, int) and isinstance(said, int):
        return False
    try:
        size, apart = max(abs(float(gold)), abs(float(said))), abs(gold - said)
    except OverflowError:  # a whole number beyond every float
        return False
    if not math.isfinite(apart) or (apart >= 1 and size < _WHOLE):
        return False
    rounding = _ROUNDING * size
    if isinstance(gold, int) or isinstance(said, int) or gold in known.fractions:
        return apart <= min(rounding, _MOST)
    return apart <= max(rounding, min(TOLERANCE * size, _MOST), known.least)


def _text(text: str) -> str:
    found = _MIDNIGHT.fullmatch(text)
    return found.group(1) if found else unicodedata.normalize("NFC", text)


def same_row(one: Row, two: Row, same: Same = same_cell) -> bool:
    """Tell whether two rows are as long and equal cell by cell."""
    return len(one) == len(two) and all(map(same, one, two))


def equal(
    gold: Sequence[Row],
    said: Sequence[Row],
    ordered: bool,
    published: bool = False,
    known: Stored = _NOTHING,
) -> bool:
    """Tell whether two results are the same under some exchange of the columns of `said`;
    `ordered`: rows in the same order, else as a multiset. `known`: what stands in the database.
    `published`: as the test-suite evaluation of Spider compares."""
    if not gold and not said:
        return True
    if len(gold) != len(said) or len(gold[0]) != len(said[0]):
        return False
    same = partial(same_cell, published=published, known=known)
    check = partial(_in_order if ordered else _as_multiset, same=same)
    columns = len(gold[0])
    if columns == 1:
        return check(gold, said)
    for exchange in islice(_exchanges(gold, said, same), _TRIES):
        if check(gold, [tuple(row[at] for at in exchange) for row in said]):
            return True
    return False


def bird_equal(gold: Sequence[Row], said: Sequence[Row]) -> bool:
    """Tell whether two results are equal by BIRD's execution accuracy: as sets of rows, columns
    in their order."""
    return set(gold) == set(said)


def _exchanges(gold: Sequence[Row], said: Sequence[Row], same: Same) -> Iterator[tuple[int, ...]]:
    """For every column of gold a column of `said` that holds the same values, each once. Of
    columns that are the same throughout, one order is enough."""
    theirs = list(zip(*said, strict=True))
    fits = [
        [at for at, own in enumerate(theirs) if _same_values(column, own, same)]
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


def _same_values(one: Sequence[Cell], two: Sequence[Cell], same: Same) -> bool:
    return _as_multiset([(v,) for v in one], [(v,) for v in two], same)


def _in_order(gold: Sequence[Row], said: Sequence[Row], same: Same) -> bool:
    return all(same_row(a, b, same) for a, b in zip(gold, said, strict=True))


def _as_multiset(gold: Sequence[Row], said: Sequence[Row], same: Same) -> bool:
    """Rows pair up one to one. What is not exactly equal is paired within the tolerance."""
    left, right = Counter(gold), Counter(said)
    mine, theirs = list((left - right).elements()), list((right - left).elements())
    if len(mine) > _PAIRED:  # so many rows of computed numbers: side by side in their order
        mine, theirs = sorted(mine, key=_sort_key), sorted(theirs, key=_sort_key)
        return _in_order(mine, theirs, same)
    return _all_paired(mine, theirs, same)


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
        else (2, 0.0, _text(cell) if isinstance(cell, str) else repr(cell))
    )


def _all_paired(mine: Sequence[Row], theirs: Sequence[Row], same: Same) -> bool:
    """Whether a matching of equal rows covers all. By augmenting paths: equality within a
    tolerance is not transitive, so the first partner that fits may be another's only one."""
    order = sorted(range(len(theirs)), key=lambda at: _sort_key(theirs[at]))
    fits: list[list[int]] = []
    for row in mine:
        found = [at for at in order if same_row(row, theirs[at], same)]
        if not found:
            return False
        fits.append(found)
    owner: dict[int, int] = {}  # of a row of theirs: the row of mine that has it
    has: dict[int, int] = {}
    for start in range(len(mine)):
        reached: dict[int, int] = {}  # a row of theirs: from which of mine
        queue = [start]
        free: int | None = None
        for row in queue:
            new = [at for at in fits[row] if at not in reached]
            reached |= dict.fromkeys(new, row)
            free = next((at for at in new if at not in owner), None)
            if free is not None:
                break
            queue += [owner[at] for at in new]
        if free is None:
            return False
        while free is not None:  # each gives up what it had for what it reached
            row = reached[free]
            owner[free], has[row], free = row, free, has.get(row)
    return True
