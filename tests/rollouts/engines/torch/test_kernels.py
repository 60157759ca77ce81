"""The compiled kernels compute what torch does, and are left out where they cannot be had."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from compiled_kernels import (  # noqa: F401
    amx,
    here,
    threads,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_agree import agrees
from tiny_model import tiny_config

from rollouts.engines.torch import cpu_decode, kernels, llama, prefill
from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.kernels import Kernels, compiled
from rollouts.engines.torch.llama import Layer, Llama, LlamaShape, from_state, rope_tables
from rollouts.engines.torch.sampling import pick
from rollouts.trajectory import Sampling

NEAR = {torch.float32: 2e-5, torch.bfloat16: 4e-2}
QUICK = [flag.replace("-O3", "-O1") for flag in kernels.BASE]  # a tenth to a third of the time
FORMATS = st.sampled_from([torch.float32, torch.bfloat16])


def some(seed: int, *shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(one: Any, other: Any) -> bool:
    near = NEAR[one.dtype]
    return bool(torch.allclose(one.float(), other.float(), rtol=near, atol=near))


def fed_rows(
    seed: int, shape: LlamaShape, lengths: list[int], rows: list[Any], shared: int, dtype: Any
) -> cpu_decode.Fed:
    """A wave in the middle of its work: its rows are (prompt, columns so far, new tokens)."""
    sizes = (len(lengths), shape.kv_heads, max(lengths), shape.head_dim)
    prompt = [some(seed + i, *sizes, dtype=dtype) for i in range(2)]
    for side in prompt:
        side[:, :, :shared] = side[:1, :, :shared]
    known = prefill.Prompts([prompt[0]], [prompt[1]], torch.tensor(lengths), shared)
    store, order = cpu_decode.Store(known), sorted(rows)
    store.make_room(len(order), max(filled + tokens for _, filled, tokens in order))
    for i, side in enumerate((store.own_k, store.own_v)):
        side[0] = some(seed + 2 + i, *side[0].shape, dtype=dtype)
    places = range(len(order) - 1, -1, -1)
    found = [(p, place, *row) for place, (p, *row) in zip(places, order, strict=True)]
    return cpu_decode.Fed(store, found, [0] * sum(row[3] for row in found))


def one_layer(shape: LlamaShape, normed: bool, dtype: Any) -> Layer:
    none = torch.empty(0)
    norms = [some(7 + i, shape.head_dim, dtype=dtype) if normed else None for i in range(2)]
    return Layer(none, none, none, none, none, none, None, None, *norms)


@pytest.mark.usefixtures("threads")
@settings(max_examples=12, deadline=None)
@given(
    FORMATS,
    st.sampled_from([(4, 2, 32), (9, 3, 64), (4, 1, 96), (2, 2, 128), (2, 1, 256)]),
    st.lists(st.integers(1, 80), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([(), ("-DNO_TILES=1",), ("-DNO_PAIRS=1",)]),
    st.data(),
)
def test_attention(
    dtype: Any,
    heads: tuple[int, int, int],
    lengths: list[int],
    normed: bool,
    defines: tuple[str, ...],
    data: st.DataObject,
) -> None:
    """Against torch's path: results, and what is stored for later tokens. With AMX and
    without, where the processor has it. What prompts share is read of the first one alone."""
    found = here(dtype, defines=defines)
    count, kv_heads, size = heads
    freq = torch.logspace(0, -2, size // 2)
    shape = LlamaShape(1, 64, count, kv_heads, size, 64, 64, True, eps=1e-5, inv_freq=freq)
    layer = one_layer(shape, normed, dtype)
    row = st.tuples(st.integers(0, len(lengths) - 1), st.integers(0, 37), st.integers(1, 16))
    rows = data.draw(st.lists(row, min_size=1, max_size=24), label="prompt, columns, tokens")
    shared = data.draw(st.integers(0, min(lengths) - 1), label="columns all prompts share")
    ours, theirs = (fed_rows(11, shape, lengths, rows, shared, dtype) for _ in range(2))
    width = (count + 2 * kv_heads) * size
    projected = some(5, len(ours.ids), width, dtype=dtype)
    tables = rope_tables(shape, torch.tensor(ours.places()), dtype)
    blocks = [cpu_decode._block(theirs, dtype)]
    wanted = cpu_decode.attend(shape, layer, 0, [theirs], blocks, projected, tables)
    for side in (ours.store.prompts.k, ours.store.prompts.v):
        side[0][1:, :, :shared] = float("nan")
    mixed = projected.new_empty(len(projected), count * size)
    for part in cpu_decode._waves([ours], [torch.tensor(ours.rows)], projected, mixed, *tables):
        cpu_decode._attend_compiled(found, layer, 0, shape.eps, *part)
    assert close(mixed, wanted)
    assert close(ours.store.own_k[0], theirs.store.own_k[0])
    assert close(ours.store.own_v[0], theirs.store.own_v[0])


@pytest.mark.usefixtures("threads")
@settings(max_examples=12, deadline=None)
@given(
    FORMATS,
    st.sampled_from([64, 272, 1024, 4096 + 48]),
    st.sampled_from([(0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, 0, 1.0), (1.0, 4, 1.0), (0.6, 2, 0.8)]),
    st.integers(0, 10_000),
)
def test_the_same_tokens_are_drawn(
    dtype: Any, size: int, law: tuple[float, int, float], seed: int
) -> None:
    found = here(dtype)
    logits = some(seed, 5, size, dtype=dtype) * 4
    if dtype == torch.bfloat16:  # of equal ones torch's top-k takes any
        logits += torch.arange(size) % 2 * 0.001
    at = torch.randint(0, 5, (12,), generator=torch.Generator().manual_seed(seed)).sort().values
    u = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    sampling = Sampling(1, *law)
    ours = pick(logits, sampling, u, at, found)
    theirs = pick(logits, sampling, u, at)
    ids = torch.stack([ours[0], theirs[0]], 1)
    values = logits[at].gather(1, ids)
    same = values[:, 0] == values[:, 1]
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        assert torch.allclose(one[same], other[same], atol=1e-4)
    if not bool(same.all()):  # a number on the border of two tokens: either may round to it
        assert law[0] > 0 and law[1:] == (0, 1.0)
        ids, at, u = ids[~same], at[~same], u[~same]
        sums = (logits[at].double() / law[0]).softmax(-1).cumsum(-1)
        borders = sums.gather(1, torch.stack([ids.amin(1), ids.amax(1) - 1], 1))
        assert bool(((borders - u[:, None]).abs() < 1e-6).all())


def test_logits_that_are_no_numbers_give_no_probability() -> None:
    logits = torch.full((1, 512), float("nan"))
    for law in ((0.0, 0, 1.0), (1.0, 0, 1.0)):
        ids, full, _ = pick(
            logits, Sampling(1, *law), torch.zeros(1).double(), None, here(torch.float32)
        )
        assert 0 <= int(ids[0]) < 512 and bool(full.isnan().all())


# --- where they come from, and whether they are right


def test_this_machine_has_them_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler and AVX-512 decide, unless they are asked for; and what they compute."""
    if not any(map(shutil.which, kernels.COMPILERS)) or os.environ.get("ASSAY_KERNELS"):
        pytest.skip("no C compiler, or switched off")
    for dtype in (torch.float32, torch.bfloat16):
        wide = "avx512f" in kernels.processor().split()
        assert isinstance(compiled(dtype), Kernels if wide else str)
    found = here(torch.float32)
    monkeypatch.setattr(kernels, "processor", lambda: "flags : avx avx2 fma")
    assert str(compiled.__wrapped__(torch.float32)).startswith("no AVX-512")
    monkeypatch.setenv("ASSAY_KERNELS", "on")
    assert isinstance(compiled.__wrapped__(torch.float32), Kernels)
    silu = found.silu_mul
    monkeypatch.setattr(Kernels, "silu_mul", lambda self, both: silu(both) * 1.001)
    assert "differs from torch" in str(compiled.__wrapped__(torch.float32))
    monkeypatch.setenv("CC", "false")
    assert "false failed" in str(compiled.__wrapped__(torch.float32))
    for sizes, head in (((40, 64), 64), ((48, 64), 48), ((48, 64), 512)):  # torch's, then
        assert kernels.kernels_for(torch.zeros(2), sizes, head) is None


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("narrow", [False, True])
def test_every_function_gives_torchs_numbers(
    narrow: bool, dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AMX where the processor has it; without wide instructions."""
    tiles = dtype == torch.bfloat16 and "amx_bf16" in kernels.processor().split()
    found = here(dtype, tiles)
    if narrow:
        monkeypatch.setattr(kernels, "TUNED", ("-march=haswell", "-march=haswell"))
        monkeypatch.setattr(kernels, "BASE", QUICK)
        monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
        found = Kernels(kernels.library(kernels.DEFINES[dtype]))
    assert agrees(found, dtype)


# --- whole layers of decoding by products in tiles -----------------------------------------------


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
    amx()
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
