"""What sequences share is laid down once, in whichever layout; each token still sees its own text
alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from train.model import packing  # noqa: E402
from train.model.packing import Layout, Packed, Segment, micro_batches, pack  # noqa: E402

FEW = st.lists(st.integers(3, 5), min_size=1, max_size=6)  # few tokens: much is shared


@st.composite
def groups(draw: st.DrawFn) -> list[Segment]:
    """Groups of completions behind prompts that may begin alike; some tokens nobody learns."""
    start = draw(st.just([]) | st.lists(st.integers(3, 250), min_size=20, max_size=24))
    found: list[Segment] = []
    row = 0
    for _ in range(draw(st.integers(1, 4))):
        completions = draw(st.lists(FEW, min_size=1, max_size=4))
        masks = [[draw(st.integers(0, 1)) for _ in c] for c in completions]
        rows = list(range(row, row + len(completions)))
        prompt = start + draw(FEW)
        found.append(Segment(prompt, completions, rows, draw(st.sampled_from([None, masks]))))
        row += len(completions)
    return found


def visible(packed: Packed) -> list[set[int]]:
    """For each flat position, the flat positions that its query attends to."""
    s, p = packed.stems.shape
    found: list[set[int]] = []
    for where in packed.place.tolist():
        if where < s * p:
            stem, query = divmod(where, p)
            keys, mask = packed.stems[stem], packed.stem_mask[stem, query]
        else:
            branch, query = divmod(where - s * p, packed.branches.shape[1])
            stem = packed.stems[packed.stem_of[branch]]
            keys = torch.cat([stem, packed.branches[branch]])
            mask = packed.branch_mask[branch, query]
        found.append(set(keys[mask == 0].tolist()))
    return found


# trees, the default, no trees; and what a GPU gets
@pytest.mark.parametrize(
    "pair,share", [(1e-9, True), (packing.PAIR, True), (1e9, True), (packing.PAIR, False)]
)
@given(segments=groups())
@settings(deadline=None)
def test_each_token_sees_the_text_before_it_and_no_other(
    pair: float, share: bool, segments: list[Segment]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PAIR", pair)
        packed = pack(segments, share=share)
    seen, ids = visible(packed), packed.ids.tolist()
    expected: list[tuple[int, int, int]] = []
    for s in segments:
        for i, (row, completion) in enumerate(zip(s.rows, s.completions, strict=True)):
            path = packed.paths[row]
            assert [ids[at] for at in path] == s.prompt + completion
            for n, at in enumerate(path):
                assert seen[at] == set(path[: n + 1])
                assert int(packed.positions[at]) == n
            learned = [
                j for j, m in enumerate(s.masks[i] if s.masks else [1] * len(completion)) if m
            ]
            first = len(s.prompt)
            expected += [(row, path[first + j - 1], completion[j]) for j in learned]
    source, target = packed.source.tolist(), packed.target.tolist()
    units = packed.expand.tolist()
    rows = packed.row.tolist()
    assert [(r, source[u], target[u]) for r, u in zip(rows, units, strict=True)] == expected
    columns = packed.column.tolist()
    for row in set(rows):
        mine = [c for c, r in zip(columns, rows, strict=True) if r == row]
        assert mine == list(range(len(mine)))


def size_of(part: Sequence[Segment], layout: Layout) -> int:
    """Positions of a micro-batch, counted from what would be computed."""
    if layout == "padded":
        sequences = [s.prompt + c for s in part for c in s.completions]
        return len(sequences) * max(map(len, sequences))
    return len(pack(part, share=layout == "tree").ids)


@given(groups(), st.integers(1, 200), st.sampled_from(["tree", "apart", "padded"]))
def test_micro_batches_keep_the_limit_and_every_rollout(
    segments: list[Segment], limit: int, layout: Layout
) -> None:
    cut = list(micro_batches(segments, limit, layout))

    def rollouts(parts: Sequence[Segment]) -> list[tuple[Any, ...]]:
        return [
            (row, s.prompt, s.completions[i], s.masks[i] if s.masks else None)
            for s in parts
            for i, row in enumerate(s.rows)
        ]

    assert rollouts([s for part in cut for s in part]) == rollouts(segments)
    for part in cut:
        alone = len(part) == 1 and len(part[0].completions) == 1
        assert alone or size_of(part, layout) <= limit
    if all(s.positions(layout) <= limit for s in segments):  # nothing has to be cut
        assert [s for part in cut for s in part] == segments


def test_what_is_shared_is_computed_once() -> None:
    """A system message of 30 tokens, and completions that part after 10."""
    start, begun = list(range(100, 130)), list(range(200, 210))
    said = [[*begun, 5, 6], [*begun, 7], [*begun, 7]]
    segments = [Segment([*start, 3 + i], said, [3 * i + j for j in range(3)]) for i in range(3)]
    assert segments[0].tokens == 31 + 13
    assert len(pack(segments).ids) == 30 + 3 * (1 + 13)
    assert len(pack(segments).row) == 3 * (12 + 11 + 11)
