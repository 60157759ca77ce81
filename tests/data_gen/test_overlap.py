"""MinHash: the estimate is as good as 64 draws can be, also when 16 bits of each are kept."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_gen.overlap import (
    PERMUTATIONS,
    Fingerprint,
    copies,
    fingerprint_of,
    overlaps,
    signature,
    values_of,
)


def pair(seed: int, words: int = 300, kept: float = 0.9) -> tuple[str, str, float]:
    """Two texts of which one is the other with another end, and their Jaccard similarity."""
    draw = Random(seed)
    one = [f"w{draw.randrange(50_000)}" for _ in range(words)]
    cut = int(words * kept)
    two = one[:cut] + [f"z{draw.randrange(50_000)}" for _ in range(words - cut)]
    a, b = ({" ".join(t[i : i + 5]) for i in range(words - 4)} for t in (one, two))
    return " ".join(one), " ".join(two), len(a & b) / len(a | b)


def kept(*texts: str) -> np.ndarray:
    return values_of([sign for text in texts if (sign := signature(text)) is not None])


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
    texts = [" ".join(f"w{Random(i).random()}{k}" for k in range(12)) for i in range(3000)]
    signs = kept(*texts)
    order = np.lexsort(signs.T[::-1])
    like = (signs[order][1:] == signs[order][:-1]).mean(axis=1)
    assert like.max() < 0.1


HAN = "".join(chr(0x4E00 + 37 * i) for i in range(120))
KANA = "".join(chr(0x3042 + i) for i in range(70))
THAI = "".join(chr(0x0E01 + i) for i in range(46)) + "".join(chr(0x0E34 + i) for i in range(6))
KHMER = "".join(chr(0x1780 + i) for i in range(50))
MIXED = [*HAN, *KANA, " GPU ", "，", " 12 ", "。", " batch size "]


def drawn(letters: Sequence[str], size: int, seed: int) -> list[str]:
    return Random(seed).choices(letters, k=size)


@pytest.mark.parametrize(
    ("letters", "size", "changed"),
    [
        (HAN, 600, 3),
        (HAN, 2000, 10),
        (HAN, 90, 1),
        (HAN + "，。", 418, 2),
        (HAN + KANA, 60, 1),
        (KANA, 300, 3),
        (THAI, 900, 1),
        (KHMER, 200, 2),
        (MIXED, 300, 3),
    ],
)
def test_a_copy_is_found_where_a_script_has_no_spaces(
    letters: Sequence[str], size: int, changed: int
) -> None:
    for seed in range(5):
        one = drawn(letters, size, seed)
        two = list(one)
        for place in Random(seed).sample(range(size), changed):
            two[place] = "鲸"
        other = drawn(letters, size, seed + 100)
        said = {"a": "".join(one), "b": "".join(two), "c": "".join(other)}
        assert copies(said) == {"a": "a", "b": "a", "c": "c"}
        prints = {name: fingerprint_of(name, "", text, "", []) for name, text in said.items()}
        assert overlaps([prints["b"]], [prints["a"], prints["c"]])["inputs"]["near"] == 1
        assert overlaps([prints["c"]], [prints["a"], prints["b"]])["inputs"]["near"] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: text.upper(),
        lambda text: text.replace("a", "a\u200b"),
        lambda text: text.replace("e", "e\u00ad"),
        lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
    ],
)
def test_forms_of_characters_hide_no_copy(change: Callable[[str], str]) -> None:
    text = " ".join(f"größe w{i} café sea{i * 7}" for i in range(12))
    assert signature(change(text)) == signature(text)


def test_short_texts_say_too_little_in_any_script() -> None:
    assert signature("one two three four five six seven") is None
    assert signature("one two three four five six seven eight") is not None
    assert signature(HAN[:15]) is None and signature(HAN[:16]) is not None
    assert signature("\ud800" * 9 + " x" * 9) is not None  # half a pair raises nothing


def _changed(text: str, words: int, draw: Random) -> str:
    said = text.split()
    for _ in range(words):
        said[draw.randrange(len(said))] = f"new{draw.randrange(9)}"
    return " ".join(said)


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_what_is_alike_is_what_comparing_every_pair_finds(seed: int) -> None:
    draw = Random(seed)
    texts = [" ".join(draw.choices([f"w{i}" for i in range(60)], k=60)) for _ in range(6)]
    made = [_changed(draw.choice(texts), draw.randrange(4), draw) for _ in range(40)]
    made += ["too short"] * 2
    prints = [fingerprint_of(f"t{i}", "", text, text, []) for i, text in enumerate(made)]
    ours, theirs = prints[:20], prints[20:]

    def similarity(one: Fingerprint, other: Fingerprint) -> float:
        if one.input[1] is None or other.input[1] is None:
            return 0.0
        a, b = (np.frombuffer(p.input[1] or b"", "<u2") for p in (one, other))
        bands = (a == b).reshape(-1, PERMUTATIONS // 16).all(axis=1).any()
        return float((a == b).mean()) if bands else 0.0

    best = [max((similarity(one, other), -j) for j, other in enumerate(theirs)) for one in ours]
    near = [[f"t{i}", f"t{20 - j}", round(s, 3)] for i, (s, j) in enumerate(best) if s >= 0.8]
    found = overlaps(ours, theirs)["inputs"]
    assert found["near"] == len(near)
    assert found["examples"] == near[:20]
    groups = copies({p.id: text for p, text in zip(prints, made, strict=True)})
    for one, other in combinations(prints, 2):
        if similarity(one, other) >= 0.8 or one.input[0] == other.input[0]:
            assert groups[one.id] == groups[other.id]
    assert all(min(name, first) == first for name, first in groups.items())
