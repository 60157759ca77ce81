"""AdamW on float32 masters: what decays, and what is clipped."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from train.model.optim import MasterAdamW, decay_groups  # noqa: E402


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
