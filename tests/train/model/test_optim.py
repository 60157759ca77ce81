"""AdamW on float32 masters: what decays, and what is clipped."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from train.model.optim import MasterAdamW, decay_groups, learning_rate  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_and_biases_do_not_decay(dtype: torch.dtype) -> None:
    named = [(n, torch.ones(size, dtype=dtype)) for n, size in (("w", (2, 3)), ("norm", (3,)))]
    optimiser = MasterAdamW(named, weight_decay=0.1, rounding="nearest")
    for _, tensor in named:
        tensor.requires_grad_(True)
        tensor.grad = torch.zeros_like(tensor)
    optimiser.collect()
    optimiser.step(1.0, 1.0)
    assert torch.allclose(named[0][1].float(), torch.tensor(0.9), atol=4e-3)
    assert bool((named[1][1] == 1).all())


def test_a_tensor_that_is_cut_up_counts_by_its_whole_shape() -> None:
    cut = torch.ones(0)
    cut.ds_shape = (4, 4)
    (group,) = decay_groups([cut], 0.1)
    assert group["weight_decay"] == 0.1


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

    def go(weight: Any, optimiser: MasterAdamW, steps: range) -> None:
        for i in steps:
            weight.grad = torch.sin(torch.arange(9.0) + i).to(torch.bfloat16)
            optimiser.collect()
            optimiser.step(1e-2, 1.0)

    w1, o1 = fresh()
    go(w1, o1, range(6))
    w2, o2 = fresh()
    go(w2, o2, range(3))
    saved = {k: v.clone() for k, v in o2.state().items()}
    w3, o3 = fresh()
    o3.load(saved)
    go(w3, o3, range(3, 6))
    assert torch.equal(w1, w3) and torch.equal(o1.masters[0], o3.masters[0])


def test_schedule() -> None:
    assert learning_rate(0, 10, 1.0, 2, "cosine") == 0.5
    assert learning_rate(2, 10, 1.0, 2, "cosine") == 1.0
    assert learning_rate(10, 10, 1.0, 2, "cosine") == pytest.approx(0.0)
    assert learning_rate(7, 10, 1.0, 0, "constant") == 1.0
    assert learning_rate(7, 12, 1.0, 2, "linear") == pytest.approx(0.5)
    assert learning_rate(12, 12, 1.0, 2, "linear") == 0.0
