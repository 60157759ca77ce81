"""What two sets of tasks share: exactly, and nearly (MinHash over shingles).

Inputs and references are compared by canonical hash (letters and digits only, so that cleaning
does not hide a copy) and by an estimate of the Jaccard similarity of their shingles
(`rewards.shingles`: words, or characters where a script has no spaces); recipes by their operators
in order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from data_gen.demo.passages import canonical_hash
from data_gen.together import Together
from rewards.mixing import spread
from rewards.shingles import ALONE, WORDS, tokens
from rewards.task import Task

# 16 bands of 4: of pairs at a Jaccard similarity of 0.8 the bands miss one in 4,500, at 0.5 a
# third. The estimate over 64 permutations is off by about 0.05.
PERMUTATIONS, BANDS = 64, 16
SIGNATURE = 8 * PERMUTATIONS  # bytes
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
    return cast("bytes", mixed.min(axis=0).astype("<u8").tobytes())


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
    for i, j, _ in _like(signs, signs):
        if j < i:
            yield names[j], names[i]


def _like(ours: Sequence[bytes], theirs: Sequence[bytes]) -> Iterator[tuple[int, int, float]]:
    """(place in ours, place in theirs, similarity) of the signatures that are nearly alike."""
    if not ours or not theirs:
        return
    mine, others = _values(ours), _values(theirs)
    keys = _band_keys(others)
    orders = [np.argsort(keys[:, band], kind="stable") for band in range(BANDS)]
    for first in range(0, len(mine), _BLOCK):
        block = mine[first : first + _BLOCK]
        asked = _band_keys(block)
        found: list[Values] = []
        for band in range(BANDS):
            i, j = meeting(asked[:, band], keys[:, band], orders[band])
            found.append(i * len(others) + j)
        pairs = np.unique(np.concatenate(found))
        for start in range(0, len(pairs), _PAIRS):
            i, j = np.divmod(pairs[start : start + _PAIRS], len(others))
            same = (block[i] == others[j]).mean(axis=1)
            for place in np.flatnonzero(same >= NEAR).tolist():
                yield first + int(i[place]), int(j[place]), float(same[place])


def _values(signs: Sequence[bytes]) -> Values:
    return np.frombuffer(b"".join(signs), "<u8").reshape(len(signs), PERMUTATIONS)


def _band_keys(values: Values) -> Values:
    """(S, bands): the numbers of each band as one. Two bands may get the same one by chance; the
    similarity is asked of every pair."""
    width = PERMUTATIONS // BANDS
    with np.errstate(over="ignore"):
        return (values * np.tile(_A[:width], BANDS)).reshape(-1, BANDS, width).sum(axis=2)


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


def shared(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint]) -> set[int]:
    """Indices of ours whose input or reference occurs in theirs, exactly or nearly."""
    found: set[int] = set()
    for part in ("input", "reference"):
        found |= set(_exact([getattr(p, part) for p in ours], [getattr(p, part) for p in theirs]))
        found |= _near(ours, theirs, f"{part}_signature")[0]
    return found


def overlaps(ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint]) -> dict[str, Any]:
    """Counts of our tasks whose input, reference or recipe occurs in the others, exactly and
    nearly (estimated Jaccard of at least 0.8), with up to 20 examples of pairs."""
    found: dict[str, Any] = {}
    for part in ("input", "reference"):
        exact = _exact([getattr(p, part) for p in ours], [getattr(p, part) for p in theirs])
        near, pairs = _near(ours, theirs, f"{part}_signature")
        found[f"{part}s"] = {"exact": len(exact), "near": len(near), "examples": pairs[:20]}
    known = {p.recipe for p in theirs if p.recipe}
    shared = {p.recipe for p in ours} & known
    found["recipes"] = {
        "exact": sum(p.recipe in known for p in ours),
        "distinct_shared": len(shared),
        "distinct": len({p.recipe for p in ours}),
    }
    return found


def _exact(ours: Sequence[str], theirs: Sequence[str]) -> list[int]:
    empty = canonical_hash("")
    known = set(theirs) - {empty}
    return [i for i, value in enumerate(ours) if value in known]


def _near(
    ours: Sequence[Fingerprint], theirs: Sequence[Fingerprint], name: str
) -> tuple[set[int], list[list[Any]]]:
    """Our indices with a near copy, and example pairs [id, id, similarity]."""
    mine = _signs(ours, name)
    others = _signs(theirs, name)
    first = list(others.values())
    best: dict[int, tuple[float, int]] = {}  # the most alike, the earliest of them
    for i, j, like in _like(list(mine), list(others)):
        best[i] = max(best.get(i, (0.0, 0)), (like, -first[j]))
    of = {sign: best[place] for place, sign in enumerate(mine) if place in best}
    hits: set[int] = set()
    pairs: list[list[Any]] = []
    for i, own in enumerate(ours):
        if found := of.get(getattr(own, name) or b""):
            hits.add(i)
            pairs.append([own.id, theirs[-found[1]].id, round(found[0], 3)])
    return hits, pairs


def _signs(prints: Sequence[Fingerprint], name: str) -> dict[bytes, int]:
    """The distinct signatures, each with the place of the first that has it."""
    found: dict[bytes, int] = {}
    for place, one in enumerate(prints):
        sign: bytes | None = getattr(one, name)
        if sign is not None:
            found.setdefault(sign, place)
    return found
