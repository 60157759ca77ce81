"""SFT's rows share the computation of what their prompts begin with, and learn the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from train.model.batch import Segment, pack  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.sft import LEAST_SHARED, share_prefix  # noqa: E402

IDS = st.lists(st.integers(3, 250), min_size=1, max_size=6)


@st.composite
def rows(draw: st.DrawFn) -> list[Segment]:
    """Rows whose prompts begin alike; some completions hold tokens that nobody learns."""
    start = draw(st.lists(st.integers(3, 250), min_size=LEAST_SHARED, max_size=LEAST_SHARED + 4))
    found: list[Segment] = []
    for row in range(draw(st.integers(2, 4))):
        answer = draw(IDS)
        mask = draw(st.none() | st.just([1] + [0] * (len(answer) - 1)))
        prompt = start + draw(st.just([]) | IDS)
        found.append(Segment(prompt, [answer], [row], None if mask is None else [mask]))
    return found


def learned(segments: Sequence[Segment]) -> list[tuple[int, list[int], list[int], int]]:
    """(row, what stands before a token that is learned, its place among them, the token)."""
    packed = pack(segments)
    found: list[tuple[int, list[int], list[int], int]] = []
    for n, u in enumerate(packed.expand.tolist()):
        row, at = int(packed.row[n]), int(packed.source[u])
        start, stop, first, _ = packed.spans[row]
        before = packed.ids[start:stop].tolist() + packed.ids[first : at + 1].tolist()
        if start <= at < stop:  # the last token of the prompt
            before = packed.ids[start : at + 1].tolist()
        place = [int(packed.column[n]), int(packed.positions[at])]
        found.append((row, before, place, int(packed.target[u])))
    return sorted(found)


@given(rows())
def test_each_token_is_learned_behind_the_same_text(segments: list[Segment]) -> None:
    shared = share_prefix(segments)
    assert len(shared) == 1
    assert shared[0].tokens < sum(s.tokens for s in segments)
    assert learned(shared) == learned(segments)


def test_log_probabilities_and_gradients_are_the_same(tiny_folder: Path) -> None:
    generator = torch.Generator().manual_seed(5)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 259, (n,), generator=generator).tolist()

    start = ids(LEAST_SHARED)
    segments = [Segment(start + ids(2 * i), [ids(5 - i)], [i]) for i in range(3)]
    segments.append(Segment(start + ids(3), [ids(4)], [3], [[1, 0, 0, 1]]))
    said, slopes = [], []
    for rows in (segments, share_prefix(segments)):
        policy = load_policy(tiny_folder, "float32")
        logp, _ = policy.logp(pack(rows))
        logp.sum().backward()
        said.append(logp.detach())
        slopes.append({name: tensor.grad for name, tensor in policy.named()})
    assert torch.allclose(said[0], said[1], atol=1e-5)
    for name, slope in slopes[0].items():
        assert torch.allclose(slope, slopes[1][name], atol=1e-4), name


def test_rows_stay_apart_where_little_is_shared() -> None:
    few = [Segment([1, 2, i + 3], [[9]], [i]) for i in range(3)]
    assert share_prefix(few) is few
    group = [Segment([1] * 30, [[9], [8]], [0, 1]), Segment([1] * 30, [[7]], [2])]
    assert share_prefix(group) is group
    assert share_prefix(group[1:]) == group[1:]
