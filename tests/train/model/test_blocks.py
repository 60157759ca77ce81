"""Attention of blocks of sequences by AMX, and its gradients, against torch's in float32."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from compiled_kernels import amx, threads  # noqa: E402, F401
from hypothesis import example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from train.model.forward import AttendTiled, Seen  # noqa: E402


def wanted(q: Any, keys: Any, values: Any, mask: Any) -> Any:
    """In float32; a line that sees nothing has no result."""
    rows, length, _ = mask.shape
    groups, lines, size = q.shape
    repeat = lines // length
    line = (mask == 0).repeat_interleave(groups // rows, 0).repeat(1, repeat, 1)
    scores = (q @ keys.transpose(1, 2)) * size**-0.5
    empty = ~line.any(-1, keepdim=True)
    shares = scores.masked_fill(~line & ~empty, float("-inf")).softmax(-1)
    return shares.masked_fill(empty, 0.0) @ values


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, ...]:
    sizes = (st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.integers(1, 75))
    more = (st.integers(1, 110), st.sampled_from([32, 64, 96, 128]), st.integers(0, 1000))
    return tuple(draw(s) for s in (*sizes, *more))


@pytest.mark.usefixtures("threads")
@settings(max_examples=30, deadline=None)
@given(cases(), st.booleans())
@example((2, 2, 4, 74, 1, 128, 0), False)
@example((1, 1, 1, 2, 2, 32, 0), False)
@example((1, 1, 1, 1, 2, 32, 392), True)
def test_results_and_gradients_are_those_of_torch(case: tuple[int, ...], causal: bool) -> None:
    """Any mask, lines that see nothing among them, and any number of lines and keys."""
    rows, kv_heads, repeat, length, reach, size, seed = case
    random = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Any:
        return torch.randn(*shape, generator=random).bfloat16()

    seen = torch.rand(rows, length, reach, generator=random) < 0.6
    if causal:
        seen = torch.ones(length, reach).tril(reach - length).bool().expand(rows, -1, -1)
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    q = some(rows * kv_heads, repeat * length, size)
    keys, values = (some(rows * kv_heads, reach, size) for _ in range(2))
    grad = some(*q.shape)
    exact = [x.float().requires_grad_() for x in (q, keys, values)]
    theirs = wanted(*exact, mask)
    theirs.backward(grad.float())
    given = [x.requires_grad_() for x in (q, keys, values)]
    torch.use_deterministic_algorithms(True)  # what is allocated and not written is NaN
    try:
        ours = AttendTiled.apply(*given, Seen(mask, torch.bfloat16), amx())
        ours.backward(grad)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.allclose(ours.float(), theirs, 3e-2, 3e-2)
    for mine, other in zip(given, exact, strict=True):
        # The gradient of a score is a difference from a mean, which is made from the rounded
        # result. Where one key has nearly all of the share, the difference is mostly that rounding.
        bound = 2e-2 * other.grad.norm() + 2**-8 * grad.float().norm()
        assert (mine.grad.float() - other.grad).norm() < bound
        assert torch.allclose(mine.grad.float(), other.grad, 5e-2, 8e-2)
