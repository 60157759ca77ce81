"""Reading answers as numbers and lists, and pairing list elements; no model text is executed.

`close` and `equal` are Table 3's. `exactly` is what a reward asks beyond them: whole numbers, and
so dates and times written as numbers, are equal only to themselves.
"""

from __future__ import annotations

import bisect
import heapq
import json
import math
import re
import unicodedata
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from assay.syntax import python_literal

TOLERANCE = 1e-6  # relative, for exact numbers (specification notes, sections 4.2 and 13)
_LITERAL_MAX = 4_000_000  # characters; beyond that only JSON is tried


def str_to_float(text: str) -> float:
    """The published number rule: a trailing % divides by 100, else `float()`.

    No thousands separators, currencies or units. Raises ValueError.
    """
    if text.endswith("%"):
        return float(text.strip("%")) / 100
    return float(text)


def number(value: Any) -> float | None:
    """A finite number from an int, a float (not a bool) or text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = str_to_float(value.strip()) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


_WHOLE = re.compile(r"[+-]?\d{1,300}")
# YYYYMMDD, alone or with hours and minutes, or seconds too
_DATE = re.compile(
    r"(?:1[5-9]|20|21)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    r"(?:(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?)?"
)


def whole(value: Any) -> int | None:
    """The whole number that a value or a text is, without rounding; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    found = value if isinstance(value, int) else number(value)
    return int(found) if found is not None and found == int(found) else None


def date_like(value: Any) -> bool:
    """Whether a whole number is written as a date is."""
    found = whole(value)
    return found is not None and _DATE.fullmatch(str(found)) is not None


def text_key(value: Any) -> str:
    """How text is compared: as `str()` shows it under NFC, stripped, in lower case."""
    return unicodedata.normalize("NFC", str(value)).strip().lower()


def close(said: float, want: float) -> bool:
    """Equal within `TOLERANCE`, relative to the target; equality for a target of zero."""
    return said == want if want == 0 else abs(said - want) / abs(want) < TOLERANCE


def relative_score(said: float, want: float) -> float:
    """1 / (1 + |p - t| / |t|); for a target of zero 1 only for 0, else 0."""
    return float(said == 0) if want == 0 else 1 / (1 + abs(said - want) / abs(want))


def as_list(value: Any) -> list[Any] | None:
    """A list from a list, a tuple, or text holding one (JSON, then Python literal).

    Other text and scalars are a list of one, blank text an empty list; None and objects are no
    list (None).
    """
    if isinstance(value, list | tuple):
        return list(cast("Sequence[Any]", value))
    if value is None or isinstance(value, dict):
        return None
    if not isinstance(value, str):
        return [value]
    if not value.strip():
        return []
    found = _parse(value)
    if isinstance(found, set):  # its own order would change from process to process
        return sorted(cast("set[Any]", found), key=repr)
    if isinstance(found, list | tuple):
        return list(cast("Sequence[Any]", found))
    return None if isinstance(found, dict) else [value]  # NaN, None or "x" are words here


_NOTHING = object()


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if len(text) > _LITERAL_MAX:
        return _NOTHING
    try:
        with warnings.catch_warnings():  # of "2nd", which the parser takes for a bad number
            warnings.simplefilter("ignore")
            return python_literal(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _NOTHING


Same = Callable[[Any, Any], bool]


def numbers_close(said: Any, want: Any) -> bool:
    """Whether both are numbers, within `TOLERANCE`."""
    found, wanted = number(said), number(want)
    return found is not None and wanted is not None and close(found, wanted)


def exactly(said: Any, want: Any) -> bool:
    """The same, but whole numbers are equal only to themselves; a fraction may differ from a whole
    number by what rounding does."""
    one, two = whole(said), whole(want)
    if one is not None and two is not None:
        return one == two
    if isinstance(want, int) or date_like(want):
        found = number(said)
        return found is not None and abs(found - want) <= min(1e-9 * abs(want), 0.01)
    return numbers_close(said, want)


def equal(said: Any, want: Any, numbers: Same = numbers_close) -> bool:
    """Elements of an exact list: numbers within 1e-6, text folded, rows element by element."""
    if isinstance(want, list | tuple):
        return rows_alike(said, cast("Sequence[Any]", want), partial(equal, numbers=numbers))
    if isinstance(want, int | float) and not isinstance(want, bool):
        return numbers(said, want)
    if want is None or isinstance(want, dict):
        return bool(said == want)
    return (
        not isinstance(said, list | tuple | dict)
        and said is not None
        and (text_key(said) == text_key(want))
    )


def rows_alike(said: Any, want: Sequence[Any], same: Same) -> bool:
    """Whether `said` is a row as long as `want` whose elements are pairwise `same`."""
    if not isinstance(said, list | tuple) or len(cast("Sequence[Any]", said)) != len(want):
        return False
    pairs = zip(cast("Sequence[Any]", said), want, strict=True)
    return all(same(a, b) for a, b in pairs)


def pairs_found(
    said: Sequence[Any], want: Sequence[Any], same: Same, reach: float, loose_text: bool = False
) -> int:
    """How many targets find a partner: each takes the first free element that is `same`.

    `reach` is the widest relative distance at which `same` may hold for numbers. `loose_text`:
    `same` may hold for texts that differ, so every free element is asked (a judge). Elements are
    looked up by their first scalar, so long exact lists cost n log n.
    """
    shelf = _Shelf(said)
    found = 0
    for target in want:
        leaf = _leaf(target)
        if loose_text and (isinstance(leaf, bool) or not isinstance(leaf, int | float)):
            places: Iterator[int] = shelf.all(4 * len(want) + 50)
        else:
            places = shelf.near(leaf, reach)
        for place in places:
            if same(said[place], target):
                shelf.taken.add(place)
                found += 1
                break
    return found


def _leaf(value: Any) -> Any:
    """The first scalar of nested rows; None for an empty one."""
    while isinstance(value, list | tuple):
        if not value:
            return None
        value = cast("Sequence[Any]", value)[0]
    return value


class _Shelf:
    """Predicted elements by the text and by the number of their first scalar."""

    def __init__(self, said: Sequence[Any]) -> None:
        self.taken: set[int] = set()
        self.size = len(said)
        self._text: dict[str, deque[int]] = {}
        self._number: dict[float, deque[int]] = {}
        for place, element in enumerate(said):
            leaf = _leaf(element)
            self._text.setdefault(text_key(leaf), deque()).append(place)
            value = number(leaf)
            if value is not None:
                self._number.setdefault(value, deque()).append(place)
        self._values = sorted(self._number)

    def all(self, limit: int) -> Iterator[int]:
        """Free places in order, at most `limit` (a judge may cost a request each)."""
        free = (p for p in range(self.size) if p not in self.taken)
        for _, place in zip(range(limit), free, strict=False):
            yield place

    def near(self, leaf: Any, reach: float) -> Iterator[int]:
        """Free places in order whose first scalar may equal `leaf`."""
        if isinstance(leaf, bool) or not isinstance(leaf, int | float):
            return self._free(self._text.get(text_key(leaf)))
        middle = number(leaf)
        if middle is None:
            return iter(())
        spread = abs(middle) * reach * (1 + 1e-9)
        low = bisect.bisect_left(self._values, middle - spread)
        high = bisect.bisect_right(self._values, middle + spread)
        lines = [self._number[v] for v in self._values[low:high]]
        return heapq.merge(*(self._free(line) for line in lines))

    def _free(self, line: deque[int] | None) -> Iterator[int]:
        if line is None:
            return iter(())
        while line and line[0] in self.taken:
            line.popleft()
        return (place for place in line if place not in self.taken)
