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
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_model import random_model

from rollouts.engines.torch.kernels import Kernels
from rollouts.engines.torch.llama import from_state
from train.model import forward, packing
from train.model.forward import AttendTiled, Seen, fused_logp
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
@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [1e-9, 1e9])  # prompts shared by branches, and rows by themselves
@settings(max_examples=2, deadline=None)
@given(groups())
def test_float32_agrees_with_torch(
    pair: float, kind: str, tiles: bool, segments: list[Segment]
) -> None:
    ours, theirs = (
        policy_of(kind, torch.float32, found) for found in (here(torch.float32, tiles), None)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PAIR", pair)
        far = apart(results(ours, segments), results(theirs, segments))
    assert max(far.values()) < 1e-4, far


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=2, deadline=None)
@given(groups())
def test_layers_that_are_computed_again_give_the_same_bits(
    kind: str, tiles: bool, segments: list[Segment]
) -> None:
    once, again = (policy_of(kind, torch.float32, here(torch.float32, tiles)) for _ in range(2))
    again.checkpoint_layers()
    wanted, found = results(once, segments), results(again, segments)
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [1e-9, 1e9])
@settings(max_examples=2, deadline=None)
@given(groups())
def test_long_sequences_are_attended_to_alike(
    pair: float, kind: str, compiled: bool, segments: list[Segment]
) -> None:
    """By torch's kernel for those, where a sequence of one token counts as long."""
    policy = policy_of(kind, torch.float32, here(torch.float32) if compiled else None)
    plain = policy_of(kind, torch.float32, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PAIR", pair)
        wanted = results(plain, segments)
        patch.setattr(forward, "LONG", 1)
        far = apart(results(policy, segments), wanted)
    assert max(far.values()) < 1e-4, far


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_as_near_to_float32_as_torch_is(kind: str) -> None:
    generator = torch.Generator().manual_seed(5)

    def ids(n: int) -> list[int]:
        return torch.randint(3, 270, (n,), generator=generator).tolist()

    segments = [Segment(ids(40), [ids(30), ids(17)], [2 * i, 2 * i + 1]) for i in range(6)]
    exact = results(policy_of(kind, torch.float32, None), segments)
    ours, theirs = (
        apart(results(policy_of(kind, torch.bfloat16, found), segments), exact)
        for found in (here(torch.bfloat16, True), None)
    )
    assert max(ours.values()) < 1.25 * max(theirs.values())
    assert sum(ours.values()) < 1.1 * sum(theirs.values())


@pytest.mark.parametrize("rows", [1, 5, 8])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_log_probabilities_in_pieces(
    rows: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows of logits are held at a time."""
    monkeypatch.setattr(forward, "LOGIT_ROWS", rows)
    random = torch.Generator().manual_seed(1)
    values = torch.randn(8, 32, generator=random), torch.randn(272, 32, generator=random)
    target = torch.randint(0, 272, (8,), generator=random)
    found: list[list[Any]] = []
    for compiled in (True, False):
        hidden, weight = (value.clone().requires_grad_() for value in values)
        if compiled:
            logp, entropy = fused_logp(hidden, weight, target, temperature, here(torch.float32))
        else:
            logp, entropy = linear_logp(hidden, weight, target, temperature)
        assert not entropy.requires_grad
        (logp * torch.arange(8)).sum().backward()
        found.append([logp.detach(), entropy, hidden.grad, weight.grad])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=3e-4)


@pytest.mark.usefixtures("memory_holds_nan")
@pytest.mark.parametrize("mask", [[0, 1, 0], [0, 0, 0]])
def test_tokens_that_nobody_learns_leave_gradients_as_torch_has_them(mask: list[int]) -> None:
    """Also where there is nothing to learn: gradients are 0 then, and not what memory held."""
    segments = [Segment([11, 12], [[13, 14, 15]], [0], [mask])]
    ours, theirs = (
        results(policy_of("llama", torch.float32, found), segments)
        for found in (here(torch.float32), None)
    )
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], rtol=1e-4, atol=1e-5), name


# --- attention of blocks by AMX ------------------------------------------------------------------


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


@pytest.mark.usefixtures("threads", "memory_holds_nan")
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
    ours = AttendTiled.apply(*given, Seen(mask, torch.bfloat16), amx())
    ours.backward(grad)
    assert torch.allclose(ours.float(), theirs, 3e-2, 3e-2)
    for mine, other in zip(given, exact, strict=True):
        # The gradient of a score is a difference from a mean, which is made from the rounded
        # result. Where one key has nearly all of the share, the difference is mostly that rounding.
        bound = 2e-2 * other.grad.norm() + 2**-8 * grad.float().norm()
        assert (mine.grad.float() - other.grad).norm() < bound
        assert torch.allclose(mine.grad.float(), other.grad, 5e-2, 8e-2)
