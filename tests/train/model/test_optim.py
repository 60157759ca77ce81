"""AdamW on float32 masters: what decays, what is clipped, and the way down to bfloat16."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.engines.torch import kernels
from train.model.optim import CHUNK, MasterAdamW, copy_down, decay_groups, learning_rate


def test_norms_and_biases_do_not_decay() -> None:
    named = [("w", torch.ones(2, 3)), ("norm", torch.ones(3))]
    optimiser = MasterAdamW(named, weight_decay=0.1)
    for _, tensor in named:
        tensor.requires_grad_(True)
        tensor.grad = torch.zeros_like(tensor)
    optimiser.collect()
    optimiser.step(1.0, 1.0)
    assert torch.allclose(named[0][1], torch.tensor(0.9)) and bool((named[1][1] == 1).all())
    cut = torch.ones(0)  # one that is cut up counts by its whole shape
    cut.ds_shape = (4, 4)
    assert [group["weight_decay"] for group in decay_groups([cut], 0.1)] == [0.1]


def test_clipping_can_be_off() -> None:
    def step(max_norm: float) -> float:
        weight = torch.zeros(4, requires_grad=True)
        optimiser = MasterAdamW([("w", weight)], betas=(0.0, 0.0))
        weight.grad = torch.tensor([3.0, 0.0, 0.0, 4.0])
        optimiser.collect()
        assert optimiser.step(0.0, max_norm) == pytest.approx(5.0)
        return float(optimiser.adam.state[weight]["exp_avg"].norm())

    assert step(0.0) == pytest.approx(5.0) and step(1.0) == pytest.approx(1.0)


def test_a_non_finite_gradient_is_skipped() -> None:
    weight = torch.ones(4, requires_grad=True)
    optimiser = MasterAdamW([("w", weight)])
    weight.grad = torch.tensor([1.0, float("inf"), 0.0, 0.0])
    optimiser.collect()
    assert optimiser.step(0.1, 1.0) == float("inf")
    assert torch.equal(weight.detach(), torch.ones(4))
    weight.sum().backward()  # nothing of it is left for the next batch
    optimiser.collect()
    assert optimiser.step(0.1, 0.0) == 2.0


def test_a_float32_model_is_its_own_master() -> None:
    start = torch.linspace(-1, 1, 9)
    weight, unused = start.clone().requires_grad_(True), torch.ones(2, requires_grad=True)
    plain = start.clone().requires_grad_(True)
    mine = MasterAdamW([("w", weight), ("u", unused)], betas=(0.9, 0.98))
    theirs = torch.optim.AdamW([plain], lr=1e-2, betas=(0.9, 0.98), weight_decay=0.0)
    for i in range(4):
        for part in range(2):  # gradients of micro-batches add up
            factor = torch.sin(torch.arange(9.0) + i + part)
            (weight * factor).sum().backward()
            (plain * factor).sum().backward()
            mine.collect()
        mine.step(1e-2, 0.0)
        theirs.step()
        theirs.zero_grad()
    assert mine.masters[0] is weight and torch.allclose(weight, plain, atol=1e-6)
    assert torch.equal(unused, torch.ones(2)) and "exp_avg.u" in mine.state()


def test_optimiser_state_round_trips_to_the_bit() -> None:
    def fresh() -> tuple[Any, MasterAdamW]:
        weight = torch.linspace(-1, 1, 9).to(torch.bfloat16).requires_grad_(True)
        return weight, MasterAdamW([("w", weight)], betas=(0.9, 0.98))

    def go(weight: Any, optimiser: MasterAdamW, steps: range) -> dict[str, Any]:
        for i in steps:
            weight.grad = torch.sin(torch.arange(9.0) + i).to(torch.bfloat16)
            optimiser.collect()
            optimiser.step(1e-2, 1.0)
        return {name: tensor.clone() for name, tensor in optimiser.state().items()}

    (w1, o1), (w2, o2) = fresh(), fresh()
    go(w1, o1, range(6))
    o2.load(go(*fresh(), range(3)))
    go(w2, o2, range(3, 6))
    assert torch.equal(w1, w2) and torch.equal(o1.masters[0], o2.masters[0])


def test_schedule() -> None:
    assert learning_rate(0, 10, 1.0, 2, "cosine") == 0.5
    assert learning_rate(2, 10, 1.0, 2, "cosine") == 1.0
    assert learning_rate(10, 10, 1.0, 2, "cosine") == pytest.approx(0.0)
    assert learning_rate(7, 10, 1.0, 0, "constant") == 1.0
    assert learning_rate(7, 12, 1.0, 2, "linear") == pytest.approx(0.5)
    assert learning_rate(12, 12, 1.0, 2, "linear") == 0.0


# --- float32 weights copied down to bfloat16 -----------------------------------------------------


def rounded(master: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(master, dtype=torch.bfloat16)
    copy_down(master, out)
    return out


def numbers(count: int, seed: int, size: float = 0.1) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)) * size


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


@pytest.mark.parametrize(("rounding", "moves"), [("nearest", 0.0), ("spread", -3e-5)])
def test_the_first_step_of_a_bfloat16_model_does_something(rounding: str, moves: float) -> None:
    weight = (numbers(50_000, 3) + 0.2).bfloat16().requires_grad_()
    before = weight.detach().float()
    optimiser = MasterAdamW([("w", weight)], rounding=rounding)
    weight.grad = torch.ones_like(weight)
    optimiser.collect()
    optimiser.step(3e-5, 0.0)
    assert abs(float((weight.detach().float() - before).mean()) - moves) < 1e-5
