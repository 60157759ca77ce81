"""The compiled products, and whole layers of decoding by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from compiled_kernels import amx, here, threads  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import tiny_config

from rollouts.engines.torch import llama
from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.kernels import Kernels, compiled
from rollouts.engines.torch.llama import FEW, Llama, Tiles, from_state, rotate
from rollouts.trajectory import Sampling


def some(seed: int, *shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def tiled(weight: Any, bias: Any = None) -> Tiles:
    kernels = here(torch.bfloat16)
    packed = kernels.packed(weight)
    if packed is None:
        pytest.skip("this processor has no AMX")
    return Tiles(kernels, weight, packed, bias)


@pytest.mark.usefixtures("threads")
@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, FEW + 40),
    st.sampled_from([32, 96, 576]),
    st.sampled_from([32, 160, 8192]),
    st.booleans(),
    st.integers(0, 100),
)
def test_a_product_is_that_of_torch(
    rows: int, inner: int, size: int, biased: bool, seed: int
) -> None:
    """Rows that fill tiles and rows that do not; results that fit into the caches or not."""
    weight, x = some(seed, size, inner), some(seed + 1, rows, inner)
    bias = some(seed + 2, size) if biased else None
    wanted = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    found = tiled(weight, bias)(x).float()
    assert torch.allclose(found, wanted, rtol=8e-3, atol=8e-3)
    assert torch.equal(tiled(weight, bias)(x[:1]).float()[0], found[0]) or rows > FEW


def test_weights_of_other_sizes_are_left_to_torch() -> None:
    kernels = here(torch.bfloat16)
    assert kernels.packed(some(0, 48, 64)) is None and kernels.packed(some(0, 64, 48)) is None
    assert kernels.packed_gates(some(0, 48, 64)) is None
    assert here(torch.float32).packed(torch.ones(64, 64)) is None


@pytest.fixture(scope="module")
def model() -> Llama:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(5)
    config = tiny_config(
        256, hidden_size=192, intermediate_size=96, attention_bias=True, max_position_embeddings=256
    )
    made = AutoModelForCausalLM.from_config(config).float()
    for name, weight in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.2)
    return from_state(made.config, made.state_dict(), torch.bfloat16)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("slots", [4, 64])
def test_a_layer_in_two_calls_gives_the_same_bits(
    model: Llama, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several waves, samples of a prompt, and prompts that begin alike."""
    tiled(model.layers[0].qkv)
    if not isinstance(compiled(torch.bfloat16), Kernels):
        pytest.skip("the compiled kernels are switched off")
    prompts = [[*range(20, 32), 7 + i, *range(40, 41 + 3 * i)] for i in range(6)]

    def answers(chained: bool) -> Any:
        made = llama.products

        def products(*parts: Any) -> llama.Products:
            found = made(*parts)
            assert found.chain is not None
            return found if chained else replace(found, chain=None)

        with monkeypatch.context() as patch:
            patch.setattr(llama, "products", products)
            engine = TorchEngine(model, [3], slots=slots)
            return engine.generate_now(prompts, Sampling(9, 0.8), 3, list(range(6)))

    for one, other in zip(answers(True), answers(False), strict=True):
        assert [(x.ids, x.logprobs) for x in one] == [(x.ids, x.logprobs) for x in other]


# --- attention of prompts ------------------------------------------------------------------------


SIZES = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 90)), min_size=1, max_size=4)


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
