"""The compiled path of training computes what torch's does: laws, entropies and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from compiled_kernels import amx, here, threads  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import random_model

from rollouts.engines.torch.kernels import Kernels
from rollouts.engines.torch.llama import from_state
from train.model import forward, packing
from train.model.forward import fused_logp
from train.model.loss import linear_logp
from train.model.packing import Segment, pack
from train.model.policy import LlamaPolicy

SIZES = {"vocab_size": 272, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 2}
KINDS = {
    "llama": ("llama", {"tie_word_embeddings": True}),
    "biased": ("llama", {"attention_bias": True, "tie_word_embeddings": False}),
    "normed": ("qwen3", {"tie_word_embeddings": True}),
}


@lru_cache
def made(kind: str) -> tuple[Any, dict[str, Any]]:
    family, changes = KINDS[kind]
    module = random_model(family, **SIZES, head_dim=32, **changes)
    return module.config, module.state_dict()


@pytest.fixture
def memory_holds_nan() -> Iterator[None]:
    """What is allocated and not written is NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def policy_of(kind: str, dtype: Any, found: Kernels | None) -> LlamaPolicy:
    config, state = made(kind)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    policy = LlamaPolicy(from_state(config, copies, dtype), Path())
    policy.kernels = found
    return policy


def results(policy: LlamaPolicy, segments: list[Segment]) -> dict[str, Any]:
    packed = pack(segments)
    logp, entropy = policy.logp(packed, 0.7)
    (logp * torch.cos(3.0 * packed.row + packed.column)).sum().backward()
    found = {name: tensor.grad.float() for name, tensor in policy.named()}
    return found | {"logp": logp.detach(), "entropy": entropy}


def apart(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Distances in parts of the length, or of a thousandth of the longest one.

    Where all keys of a row are equal, the gradients of queries and keys are exactly 0, and how near
    rounding comes to that depends on the processor.
    """
    least = max(float(v.norm()) for v in other.values()) / 1000
    return {
        k: float((v - other[k]).norm()) / max(float(other[k].norm()), least) for k, v in one.items()
    }


IDS = st.lists(st.integers(3, 270), min_size=1, max_size=23)


@st.composite
def groups(draw: st.DrawFn) -> list[Segment]:
    found: list[Segment] = []
    for row in range(0, 3 * draw(st.integers(1, 3)), 3):
        found.append(Segment(draw(IDS), [draw(IDS) for _ in range(3)], [row, row + 1, row + 2]))
    return found


@pytest.mark.usefixtures("threads", "memory_holds_nan")
@pytest.mark.parametrize("kernels", ["plain", "tiles", "torch"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [1e-9, 1e9])  # prompts shared by branches, and rows by themselves
@settings(max_examples=2, deadline=None)
@given(groups())
def test_float32_agrees_with_torch(
    pair: float, kind: str, kernels: str, segments: list[Segment]
) -> None:
    """Computed twice: as usual, and with every sequence given to the kernel for long ones."""
    found = None if kernels == "torch" else here(torch.float32, kernels == "tiles")
    ours, theirs = (policy_of(kind, torch.float32, k) for k in (found, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PAIR", pair)
        wanted = results(theirs, segments)
        short = apart(results(ours, segments), wanted)
        for _, tensor in ours.named():
            tensor.grad = None
        patch.setattr(forward, "LONG", 1)
        long = apart(results(ours, segments), wanted)
    assert max(*short.values(), *long.values()) < 1e-4, (short, long)


@pytest.mark.parametrize("kernels", ["plain", "tiles", "torch"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=2, deadline=None)
@given(groups())
def test_layers_that_are_computed_again_give_the_same_bits(
    kind: str, kernels: str, segments: list[Segment]
) -> None:
    found = None if kernels == "torch" else here(torch.float32, kernels == "tiles")
    once, again = (policy_of(kind, torch.float32, found) for _ in range(2))
    again.checkpoint_layers()
    wanted, second = results(once, segments), results(again, segments)
    assert all(torch.equal(second[name], value) for name, value in wanted.items())


# prompt and completions of each segment, in tokens: single ones, and more than a tile has
SHAPES = [(40, (30, 17)), (1, (1, 2)), (75, (110, 1)), (3, (9, 64, 33)), (130, (5,)), (2, (74, 74))]


@pytest.mark.parametrize("pair", [1e-9, 1e9])
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_as_near_to_float32_as_torch_is(
    kind: str, pair: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles of AMX where the processor has it."""
    generator = torch.Generator().manual_seed(5)
    monkeypatch.setattr(packing, "PAIR", pair)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 270, (n,), generator=generator).tolist()

    segments: list[Segment] = []
    for prompt, lengths in SHAPES:
        rows = [3 * len(segments) + i for i in range(len(lengths))]
        segments.append(Segment(ids(prompt), [ids(n) for n in lengths], rows))
    exact = results(policy_of(kind, torch.float32, None), segments)
    kernels = (here(torch.bfloat16, True), None)
    ours, theirs = (
        apart(results(policy_of(kind, torch.bfloat16, k), segments), exact) for k in kernels
    )
    assert max(ours.values()) < 1.25 * max(theirs.values())
    assert sum(ours.values()) < 1.1 * sum(theirs.values())


@pytest.mark.parametrize("rows", [1, 5, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_log_probabilities_in_pieces(
    rows: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows of logits are held at a time, compiled or not, those of all."""
    monkeypatch.setattr(forward, "LOGIT_ROWS", rows)
    random = torch.Generator().manual_seed(1)
    values = torch.randn(8, 32, generator=random), torch.randn(272, 32, generator=random)
    target = torch.randint(0, 272, (8,), generator=random)

    def whole(hidden: Any, weight: Any) -> Any:
        law = (hidden @ weight.t() / temperature).log_softmax(-1)
        return law.gather(1, target[:, None])[:, 0], -(law.exp() * law).sum(-1).detach()

    kernels, found = here(torch.float32), list[list[Any]]()
    for made in (
        lambda *given: fused_logp(*given, target, temperature, kernels),
        lambda *given: linear_logp(*given, target, temperature, rows),
        whole,
    ):
        hidden, weight = (value.clone().requires_grad_() for value in values)
        logp, entropy = made(hidden, weight)
        assert not entropy.requires_grad
        (logp * torch.arange(8)).sum().backward()
        found.append([logp.detach(), entropy, hidden.grad, weight.grad])
    for one in found[:2]:
        for mine, other in zip(one, found[2], strict=True):
            assert torch.allclose(mine, other, rtol=1e-4, atol=3e-4)


@pytest.mark.usefixtures("memory_holds_nan")
@pytest.mark.parametrize("mask", [[0, 1, 0], [0, 0, 0]])
def test_tokens_that_nobody_learns_leave_gradients_as_torch_has_them(mask: list[int]) -> None:
    """Also where there is nothing to learn: gradients are 0 then, and not what memory held."""
    segments = [Segment([11, 12], [[13, 14, 15]], [0], [mask])]
    kernels = (here(torch.float32), None)
    ours, theirs = (results(policy_of("llama", torch.float32, k), segments) for k in kernels)
    assert all(torch.allclose(v, theirs[k], rtol=1e-4, atol=1e-5) for k, v in ours.items())
