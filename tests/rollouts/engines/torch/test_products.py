"""The compiled products, and whole layers of decoding by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from compiled_kernels import here, threads  # noqa: E402, F401
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tiny_model import tiny_config  # noqa: E402

from rollouts.engines.torch import llama  # noqa: E402
from rollouts.engines.torch.engine import TorchEngine  # noqa: E402
from rollouts.engines.torch.kernels import Kernels, compiled  # noqa: E402
from rollouts.engines.torch.llama import FEW, Llama, Tiles, from_state  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402


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
