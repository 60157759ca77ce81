"""MinHash: the estimate is as good as 64 draws can be, also when 16 bits of each are kept."""

from __future__ import annotations

import random

import numpy as np

from data_gen.overlap import PERMUTATIONS, signature
from data_gen.prints import _Texts


def pair(seed: int, words: int = 300, kept: float = 0.9) -> tuple[str, str, float]:
    """Two texts of which one is the other with another end, and their Jaccard similarity."""
    draw = random.Random(seed)
    one = [f"w{draw.randrange(50_000)}" for _ in range(words)]
    cut = int(words * kept)
    two = one[:cut] + [f"z{draw.randrange(50_000)}" for _ in range(words - cut)]
    a, b = ({" ".join(t[i : i + 5]) for i in range(words - 4)} for t in (one, two))
    return " ".join(one), " ".join(two), len(a & b) / len(a | b)


def kept(*texts: str) -> np.ndarray:
    found = _Texts()
    for row, text in enumerate(texts):
        found.add(row, row, signature(text))
    return found.packed().signs


def test_the_estimate_is_off_by_what_64_draws_are_off() -> None:
    errors = []
    for seed in range(120):
        one, two, true = pair(seed)
        signs = kept(one, two)
        errors.append(float((signs[0] == signs[1]).mean()) - true)
    assert abs(float(np.mean(errors))) < 0.02
    assert float(np.std(errors)) < 1.3 * (0.8 * 0.2 / PERMUTATIONS) ** 0.5


def test_texts_without_a_shingle_in_common_look_unlike() -> None:
    """Also among very many: 16 bits of 64 numbers agree together never by chance."""
    texts = [" ".join(f"w{random.Random(i).random()}{k}" for k in range(12)) for i in range(3000)]
    signs = kept(*texts)
    order = np.lexsort(signs.T[::-1])
    like = (signs[order][1:] == signs[order][:-1]).mean(axis=1)
    assert like.max() < 0.1
