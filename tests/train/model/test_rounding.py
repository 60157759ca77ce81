"""Float32 weights copied down to bfloat16, with a threshold of its own for each place."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engines.torch import kernels
from train.model.optim import CHUNK, MasterAdamW, copy_down


def rounded(master: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(master, dtype=torch.bfloat16)
    copy_down(master, out)
    return out


def numbers(count: int, seed: int, size: float = 0.1) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)) * size


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 0.98), st.sampled_from([-1, 1]), st.integers(0, 100))
def test_a_small_update_moves_the_mean_by_itself(share: float, sign: int, seed: int) -> None:
    """Of weights with the spacing 2^-10, that share goes to the next number; the nearest numbers
    are all the old ones or all the next."""
    start = torch.full((100_000,), 0.125 + 2**-10 * (seed % 50 + 1))
    moved = rounded(start + sign * share * 2**-10).double() - start.double()
    assert set(moved.unique().tolist()) == {0.0, sign * 2**-10}
    assert abs(float(moved.mean()) - sign * share * 2**-10) < 2**-10 * 1e-3


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3 * CHUNK), st.integers(0, 1000), st.sampled_from([1e-30, 0.1, 1e30]))
def test_kernels_and_torch_agree_and_stay_within_a_spacing(
    count: int, seed: int, size: float
) -> None:
    master = numbers(count, seed, size)
    found = rounded(master)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", lambda _: "switched off")
        assert torch.equal(rounded(master), found)
    assert bool(((found.double() - master.double()).abs() <= master.double().abs() * 2**-7).all())
    again = rounded(found.float())
    assert torch.equal(again, found), "what is a bfloat16 number already stays"


def test_zeros_infinities_and_other_formats_are_copied() -> None:
    odd = torch.tensor([0.0, -0.0, float("inf"), float("-inf")])
    assert torch.equal(rounded(odd), odd.bfloat16())
    half = torch.empty(3, dtype=torch.float16)
    copy_down(torch.tensor([0.1, 1.0, -2.0]), half)
    assert torch.equal(half, torch.tensor([0.1, 1.0, -2.0]).half())
    turned = torch.empty(4, 3, dtype=torch.bfloat16).t()
    copy_down(torch.ones(3, 4), turned)
    assert bool((turned == 1).all())


@pytest.mark.parametrize("rounding", ["nearest", "spread"])
def test_the_first_step_of_a_bfloat16_model_does_something(rounding: str) -> None:
    weight = (numbers(50_000, 3) + 0.2).bfloat16().requires_grad_()
    before = weight.detach().clone()
    optimiser = MasterAdamW([("w", weight)], rounding=rounding)
    weight.grad = torch.ones_like(weight)
    optimiser.collect()
    optimiser.step(3e-5, 0.0)
    moved = (weight.detach().float() - before.float()).mean()
    if rounding == "nearest":
        assert abs(float(moved)) < 1e-5
    else:
        assert -3.3e-5 < float(moved) < -2.7e-5
    state = {k: v.clone() for k, v in optimiser.state().items()}
    with torch.no_grad():
        weight.add_(1)
    MasterAdamW([("w", weight)], rounding=rounding).load(state)
    assert float((weight.detach().float() - before.float()).mean()) == float(moved)
