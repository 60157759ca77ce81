"""The traces of a part from those of its chunks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_gen.cdr.stages.arrays import Array
from data_gen.cdr.stages.traces import Trace
from data_gen.cdr.stages.tracing import by_recipe, joined_traces

RNG = np.random.default_rng(0)


def trace(places: list[int], width: int) -> Trace:
    return Trace(
        np.array(places, np.int32),
        RNG.integers(0, 99, len(places)).astype(np.uint32),
        RNG.random((len(places), width)),
    )


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[list[Trace]], list[int]]:
    """(traces by chunk and recipe, statistics of each recipe)"""
    widths = draw(st.lists(st.integers(0, 3), max_size=4))
    chunks = draw(st.integers(1, 4))
    few = st.lists(st.integers(0, 9), max_size=3)
    return [[trace(draw(few), width) for width in widths] for _ in range(chunks)], widths


@given(parts())
def test_a_part_has_recipe_after_recipe_its_documents(
    part: tuple[list[list[Trace]], list[int]],
) -> None:
    chunks, widths = part
    found = by_recipe([joined_traces(chunk) for chunk in chunks], np.array(widths, np.int64))
    for recipe, width in enumerate(widths):
        own = [chunk[recipe] for chunk in chunks]
        start, stop = found["starts"][recipe : recipe + 2].tolist()
        first = int(found["stats_at"][recipe])
        stats = found["stats"][first : first + (stop - start) * width]

        def whole(arrays: list[Array]) -> list[float]:
            return np.concatenate([array.ravel() for array in arrays]).tolist()

        assert found["places"][start:stop].tolist() == whole([t.places for t in own])
        assert found["bits"][start:stop].tolist() == whole([t.bits for t in own])
        assert stats.tolist() == whole([t.stats for t in own])
    kinds = [found[name].dtype.str for name in ("starts", "stats_at", "places", "bits", "stats")]
    assert kinds == ["<i8", "<i8", "<i4", "<u4", "<f8"]
