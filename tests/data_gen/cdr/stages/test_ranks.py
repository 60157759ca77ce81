"""Percentiles in passes, and the smallest of many, are those of all numbers at once."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.cdr import MiningConfig
from data_gen.cdr.calibrate import percentile
from data_gen.cdr.mining import mine_counts
from data_gen.cdr.stages.ranks import Smallest, hashes, names, percentile_of
from rewards.cdr.release_files import stable_id

numbers = st.lists(
    st.one_of(
        st.integers(0, 10_000).map(float),
        st.floats(0, 1),
        st.floats(allow_nan=False, allow_infinity=False, width=64).map(lambda x: x + 0.0),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(numbers, st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), st.integers(1, 20))
def test_a_percentile_in_passes_is_exact(values: list[float], q: float, size: int) -> None:
    chunks = [np.array(values[i : i + size]) for i in range(0, len(values), size)]
    want = percentile(values, q)
    assert percentile_of(lambda: iter(chunks), q) == want
    assert percentile_of(lambda: iter(chunks), q, held=1) == want


def test_no_number_has_no_percentile() -> None:
    assert percentile_of(lambda: iter([np.zeros(0)]), 0.5) is None


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 50), max_size=9), max_size=8), st.integers(1, 12))
def test_the_smallest_are_kept_in_order(chunks: list[list[int]], most: int) -> None:
    found, at = Smallest(most), 0
    for chunk in chunks:
        places = np.arange(at, at + len(chunk))
        found.add(np.array(chunk, np.uint64), places, np.zeros(len(chunk)))
        found._shrink() if chunk else None  # as often as with many documents
        at += len(chunk)
    flat = [value for chunk in chunks for value in chunk]
    want = sorted(range(len(flat)), key=lambda place: (flat[place], place))[:most]
    assert found.done().numbers.tolist() == want
    assert found.count == len(flat)


@given(st.text(max_size=6), st.lists(st.text(max_size=6), max_size=5))
def test_hashes_are_stable_ids(salt: str, texts: list[str]) -> None:
    rests = [text.encode("utf-8", "surrogatepass") for text in texts]
    want = [stable_id(salt, text) for text in texts]
    assert [f"{n:016x}" for n in hashes(salt, rests, len(rests)).tolist()] == want
    assert [name.decode() for name in names(salt, rests)] == want


@settings(deadline=None)
@given(
    st.lists(st.sets(st.sampled_from("abcdefg"), min_size=1), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_coverage_is_that_of_all_subsets(sets: list[set[str]], support: int) -> None:
    config = MiningConfig(min_support=support, min_support_ratio=0, min_recipe_support=0)
    signatures = [sorted(one) for one in sets]
    counts: Counter[tuple[str, ...]] = Counter()
    for signature in signatures:
        for size in range(config.min_combo_len, config.max_combo_len + 1):
            counts.update(combinations(signature, size))
    for family in mine_counts("web", Counter(map(tuple, signatures)), config).families:
        assert family.subset_support == counts[family.anchor] >= support
