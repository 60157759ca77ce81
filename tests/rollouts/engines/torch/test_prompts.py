"""The compiled attention of prompts: torch's numbers, and the same bits however prompts are cut."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from compiled_kernels import amx, threads  # noqa: E402, F401
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rollouts.engines.torch.llama import rotate  # noqa: E402

SIZES = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 90)), min_size=1, max_size=4)


def some(seed: int, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def case(seed: int, known: list[int], new: list[int], heads: int, kv: int, size: int) -> Any:
    """Projected tokens, tables, norms, keys and values, of which `known` are there already, and the
    spans. What is not known yet is no number: nothing may depend on it."""
    total, longest = sum(new), max(a + b for a, b in zip(known, new, strict=True)) + 3
    angles = torch.randn(total, size // 2, generator=torch.Generator().manual_seed(seed))
    tables = tuple(torch.cat([t, t], 1).bfloat16() for t in (angles.cos(), angles.sin()))
    norms = (some(seed + 1, size), some(seed + 2, size)) if seed % 2 else (None, None)
    stores = [some(seed + i, len(new), kv, longest, size) for i in (3, 4)]
    for row, count in enumerate(known):
        for store in stores:
            store[row, :, count:] = float("nan")
    spans = torch.tensor([[a, a + b] for a, b in zip(known, new, strict=True)])
    return some(seed + 5, total, (heads + 2 * kv) * size), tables, norms, *stores, spans


@pytest.mark.usefixtures("threads")
@settings(max_examples=20, deadline=None)
@given(SIZES, st.sampled_from([(9, 3), (4, 4), (8, 1)]), st.sampled_from([32, 64, 128, 96]))
def test_attention_of_prompts_is_that_of_torch(
    sizes: list[tuple[int, int]], heads: tuple[int, int], size: int
) -> None:
    many, kv = heads
    known, new = (list(part) for part in zip(*sizes, strict=True))
    parts = case(sum(known), known, new, many, kv, size)
    projected, tables, norms, keys, values, spans = parts
    found = amx().read_prompts(*parts, 1e-5).float()
    lines = projected.float().view(len(projected), -1, size)
    query, key, value = lines.split([many, kv, kv], 1)
    if norms[0] is not None:
        query, key = (
            F.rms_norm(x, (size,), w.float(), 1e-5)
            for x, w in zip((query, key), norms, strict=True)
        )
    cos, sin = (t.float()[:, None] for t in tables)
    query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    at = 0
    for row, (begin, end) in enumerate(spans.tolist()):
        mine = slice(at, at + end - begin)
        at += end - begin
        k, v = keys[row, :, :end].float(), values[row, :, :end].float()
        assert torch.allclose(k[:, begin:], key[mine].transpose(0, 1), 1e-2, 1e-2)
        assert torch.equal(v[:, begin:], value[mine].transpose(0, 1))
        seen = torch.ones(end - begin, end).tril(begin).bool()
        wanted = F.scaled_dot_product_attention(
            query[mine].transpose(0, 1)[None], k[None], v[None], seen, enable_gqa=True
        )[0]
        mixed = found[mine].view(-1, many, size).transpose(0, 1)
        assert torch.allclose(mixed, wanted, 3e-2, 3e-2)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 3))
def test_a_prompt_in_two_parts_and_beside_others_has_the_same_bits(
    first: int, second: int, others: int
) -> None:
    new = [first + second, *(9 * i + 5 for i in range(others))]
    projected, tables, norms, keys, values, spans = case(7, [0] * len(new), new, 6, 2, 64)
    stores = keys.clone(), values.clone()
    whole = amx().read_prompts(projected, tables, norms, keys, values, spans, 1e-5)
    parts: list[Any] = []
    for begin, end in ((0, first), (first, first + second)):
        mine = projected[begin:end], tuple(t[begin:end] for t in tables)
        one = tuple(store[:1] for store in stores)
        span = torch.tensor([[begin, end]])
        parts.append(amx().read_prompts(*mine, norms, *one, span, 1e-5))
    assert torch.equal(torch.cat(parts), whole[: first + second])
    for store, other in zip(stores, (keys, values), strict=True):
        assert torch.equal(store[0, :, : first + second], other[0, :, : first + second])
