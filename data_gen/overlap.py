"""What texts are compared by, exactly and nearly (MinHash over shingles), and copies among them.

Inputs and references are compared by canonical hash (letters and digits only, so that cleaning
does not hide a copy) and by an estimate of the Jaccard similarity of their shingles
(`assay.fingerprints`: words, or characters where a script has no spaces); recipes by their
operators in order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from assay.fingerprints import ALONE, WORDS, spread, tokens
from assay.task import Task
from data_gen.demo.passages import canonical_hash
from data_gen.groups import Together

# 16 bands of 4: of pairs at a Jaccard similarity of 0.8 the bands miss one in 4,500, at 0.5 a
# third. The estimate over 64 permutations is off by about 0.05.
PERMUTATIONS, BANDS = 64, 16
SIGNATURE = 2 * PERMUTATIONS  # bytes
NEAR = 0.8
_LEAST_WORDS = 8  # shorter texts are alike by chance
_BLOCK, _PAIRS = 256, 65_536  # signatures and pairs that are compared at a time
Values = Any  # a numpy array of whole numbers


@dataclass(frozen=True)
class Fingerprint:
    """What of a task is compared; signatures are None for texts too short to compare nearly."""

    id: str
    document: str
    input: str
    reference: str
    recipe: str
    template: str
    input_signature: bytes | None
    reference_signature: bytes | None


def _coefficients() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(2606))
    odd = rng.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return odd, rng.integers(0, 1 << 63, PERMUTATIONS, dtype=np.uint64)


_A, _B = _coefficients()


@lru_cache(maxsize=4096)  # many tasks share an input
def signature(text: str) -> bytes | None:
    """MinHash of the text's shingles, as bytes; None for short texts."""
    found, widths = tokens(text)
    if 2 * len(found) - widths.count(ALONE) < 2 * _LEAST_WORDS:
        return None
    said = memoryview(" ".join(found).encode("utf-8", "replace"))
    spaces = np.flatnonzero(np.frombuffer(said, dtype=np.uint8) == ord(" ")).tolist()
    starts = [0, *(place + 1 for place in spaces)]
    ends = [*spaces, len(said)]
    if widths:  # so many tokens from each on, with the spaces between them
        places = (at + width - 1 for at, width in enumerate(widths))
        pairs = (
            (a, ends[last]) for a, last in zip(starts, places, strict=True) if last < len(ends)
        )
    else:
        pairs = zip(starts, ends[WORDS - 1 :], strict=False)
    shingles = {zlib.crc32(said[a:b]) for a, b in pairs}
    # spread first: a product of small numbers keeps their order, and all minima would be of one
    values = spread(np.fromiter(shingles, dtype=np.uint64, count=len(shingles)))
    with np.errstate(over="ignore"):
        mixed = values[:, None] * _A + _B
    # 16 bits of each: spread, for the low bits of two products may agree for ever
    return cast("bytes", spread(mixed.min(axis=0)).astype("<u2").tobytes())


@lru_cache(maxsize=4096)
def _hash(text: str) -> str:
    return canonical_hash(text)


def fingerprint(task: Task) -> Fingerprint:
    gold = task.gold
    reference = str(gold.get("text", gold.get("reference_text", "")))
    steps = cast("list[dict[str, Any]]", gold.get("recipe") or [])
    names = [str(s["operator"]) for s in steps] or list(map(str, gold.get("operators") or []))
    document = str(task.meta.get("document", ""))
    return fingerprint_of(task.id, document, str(gold.get("input_text", "")), reference, names)


def fingerprint_of(
    name: str, document: str, source: str, reference: str, operators: Sequence[str]
) -> Fingerprint:
    return Fingerprint(
        id=name,
        document=document,
        input=_hash(source),
        reference=_hash(reference),
        recipe=" ".join(operators),
        template=" ".join(sorted(operators)),
        input_signature=signature(source),
        reference_signature=signature(reference),
    )


# What a text is compared by: its canonical hash, and its signature.
Print = tuple[str, bytes | None]


def print_of(text: str) -> Print:
    return _hash(text), signature(text)


def copies(texts: Mapping[str, str]) -> dict[str, str]:
    """Each name with the first name (alphabetically) of the texts that are its copies, exactly or
    nearly; through others too, so that copies of copies stay together."""
    return copies_of({name: print_of(text) for name, text in texts.items()})


def copies_of(prints: Mapping[str, Print]) -> dict[str, str]:
    """The same from the texts' prints."""
    groups = Together()
    for one, other in _alike(prints):
        groups.join(one, other)
    return groups.heads(prints)


def _alike(prints: Mapping[str, Print]) -> Iterator[tuple[str, str]]:
    known: dict[str, str] = {}
    names: list[str] = []
    signs: list[bytes] = []
    for name in sorted(prints):
        digest, sign = prints[name]
        if digest in known:
            yield known[digest], name
            continue
        known[digest] = name
        if sign is not None:
            names.append(name)
            signs.append(sign)
    values = values_of(signs)
    for i, j, _ in Signatures(values).like(values):
        if j < i:
            yield names[j], names[i]


class Signatures:
    """Signatures (S, 64) of which those are found that are nearly like others."""

    def __init__(self, values: Values) -> None:
        self._values, self._keys = values, _band_keys(values)
        self._orders = [
            np.argsort(self._keys[:, band], kind="stable").astype(np.uint32)
            for band in range(BANDS)
        ]

    def like(self, asked: Values, most: int = 0) -> Iterator[tuple[int, int, float]]:
        """(place asked, place here, similarity), in order, of the signatures that are nearly alike.
        At most `most` candidates, which share a band with it, are compared with each; 0: all."""
        count = len(self._values)
        for first in range(0, len(asked) if count else 0, _BLOCK):
            block = asked[first : first + _BLOCK]
            keys = _band_keys(block)
            met = [
                meeting(keys[:, band], self._keys[:, band], self._orders[band], most)
                for band in range(BANDS)
            ]
            pairs = np.unique(np.concatenate([i * count + j for i, j in met]))
            for start in range(0, len(pairs), _PAIRS):
                i, j = np.divmod(pairs[start : start + _PAIRS], count)
                same = (block[i] == self._values[j]).mean(axis=1)
                for place in np.flatnonzero(same >= NEAR).tolist():
                    yield first + int(i[place]), int(j[place]), float(same[place])


def values_of(signs: Sequence[bytes]) -> Values:
    """Signatures as an array (S, 64)."""
    return np.frombuffer(b"".join(signs), "<u2").reshape(len(signs), PERMUTATIONS)


def _band_keys(values: Values) -> Values:
    """(S, 16): the four numbers of each band as one."""
    return np.ascontiguousarray(values).view("<u8").reshape(len(values), BANDS)


def meeting(asked: Values, keys: Values, order: Values, most: int = 0) -> tuple[Values, Values]:
    """(place asked, place here) of every pair with the same key in a band; of one that is asked the
    first `most` in the `order` of the keys, 0: all."""
    search: Any = np.searchsorted  # its types are partial with a sorter
    low = search(keys, asked, "left", sorter=order)
    many = search(keys, asked, "right", sorter=order) - low
    if most:
        many = np.minimum(many, most)
    mine: Any = np.repeat(np.arange(len(asked)), many)
    within = np.arange(len(mine)) - np.repeat(np.cumsum(many) - many, many)
    return mine, order[np.repeat(low, many) + within]
