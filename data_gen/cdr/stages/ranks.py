"""Exact percentiles of more numbers than memory holds, and the smallest of many hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from data_gen.cdr.calibrate import between, ranks
from data_gen.cdr.stages.arrays import Array

HELD = 4_000_000  # numbers that are held at once; more are counted in passes
_DIGIT = 16  # bits that one pass decides
_SIGN = np.uint64(1 << 63)


def percentile_of(
    chunks: Callable[[], Iterable[Array]], q: float, held: int = HELD
) -> float | None:
    """`calibrate.percentile` of all numbers in the chunks (no NaN), or None without any.

    `chunks` gives the same arrays each time it is called; when there are more than `held` numbers,
    each pass over them decides 16 bits of the two that the percentile lies between.
    """
    count = sum(len(chunk) for chunk in chunks())
    if count == 0:
        return None
    low, high, weight = ranks(count, q)
    if count <= held:
        values = np.concatenate(list(chunks()))
        values.partition((low, high))
        one, other = float(values[low]), float(values[high])
    else:
        one, other = _selected(chunks, low), _selected(chunks, high)
    return between(one, other, weight) if count > 1 else one


def _selected(chunks: Callable[[], Iterable[Array]], rank: int) -> float:
    """The number at a place of the order, by its bits from the highest down."""
    prefix = 0
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = np.zeros(1 << _DIGIT, np.int64)
        for chunk in chunks():
            keys = _ordered_bits(chunk)
            if shift + _DIGIT < 64:
                keys = keys[keys >> np.uint64(shift + _DIGIT) == np.uint64(prefix)]
            digits = (keys >> np.uint64(shift)) & np.uint64((1 << _DIGIT) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGIT)
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, rank, "right"))
        rank -= int(below[digit - 1]) if digit else 0
        prefix = prefix << _DIGIT | digit
    return _number(prefix)


def _ordered_bits(values: Array) -> Array:
    """Doubles as unsigned integers in the same order."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _number(key: int) -> float:
    bits = key & ~(1 << 63) if key >> 63 else ~key & ((1 << 64) - 1)
    return float(np.array([bits], np.uint64).view(np.float64)[0])


@dataclass(frozen=True)
class Candidates:
    """Documents in the order of a hash, ties in corpus order. `bits` is what a caller keeps."""

    hashes: Array
    numbers: Array
    bits: Array

    def __len__(self) -> int:
        return len(self.numbers)


class Smallest:
    """Keeps the `most` candidates with the smallest hashes of all that are added."""

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, 0
        self._chunks: list[tuple[Array, Array, Array]] = []
        self.count = 0

    def add(self, hashes: Array, numbers: Array, bits: Array) -> None:
        self.count += len(hashes)
        self._chunks.append((hashes, numbers.astype(np.int64), bits.astype(np.uint8)))
        self._waiting += len(hashes)
        if self._waiting > 2 * self._most + 100_000:
            self._shrink()

    def _shrink(self) -> None:
        columns = [np.concatenate(parts) for parts in zip(*self._chunks, strict=True)]
        order = np.argsort(columns[0], kind="stable")[: self._most]
        self._chunks = [cast("Any", tuple(column[order] for column in columns))]
        self._waiting = len(order)

    def done(self) -> Candidates:
        if not self._chunks:
            self._chunks = [(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.uint8))]
        self._shrink()
        return Candidates(*self._chunks[0])


def hashes(salt: str, rests: Iterable[bytes], count: int) -> Array:
    """`stable_id(salt, …)` of each rest (its parts joined by `||`), as unsigned integers."""
    return np.fromiter(_numbers(salt, rests), np.uint64, count)


def _numbers(salt: str, rests: Iterable[bytes]) -> Iterator[int]:
    start = hashlib.sha1(f"{salt}||".encode("utf-8", "surrogatepass"))
    for rest in rests:
        made = start.copy()
        made.update(rest)
        yield int.from_bytes(made.digest()[:8], "big")


def names(salt: str, rests: Iterable[bytes]) -> Iterator[bytes]:
    """`stable_id(salt, …)` of each rest, as its 16 hexadecimal digits."""
    return (f"{number:016x}".encode() for number in _numbers(salt, rests))
