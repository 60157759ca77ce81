"""Layers that are computed a second time for their gradients: the same bits, and less is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rollouts.engines.engine import ModelError  # noqa: E402
from train.model.packing import Segment, pack  # noqa: E402
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy  # noqa: E402

GROUP = [
    Segment(list(range(5, 40)), [[7, 8, 9, 10], [7, 8, 11], [12]], [0, 1, 2]),
    Segment(list(range(5, 30)), [[3, 4], [4, 3, 3]], [3, 4], [[0, 1], [1, 1, 0]]),
]


def learned(policy: Any, recompute: bool) -> tuple[list[Any], int]:
    """(log-probabilities and gradients, bytes that the forward pass kept for the backward one)."""
    if recompute:
        policy.checkpoint_layers()
    weights = {t.untyped_storage().data_ptr() for _, t in policy.named()}
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logp, _ = policy.logp(pack(GROUP), 0.8)
    (logp * torch.cos(torch.arange(len(logp)))).sum().backward()
    return [logp.detach(), *(t.grad for _, t in policy.named())], sum(kept.values())


@pytest.mark.parametrize("path", ["plain", "transformers"])
def test_gradients_are_the_same_bits_and_less_is_kept(tiny_folder: Path, path: str) -> None:
    def fresh() -> Any:
        if path == "transformers":
            return TransformersPolicy(tiny_folder, "float32", "cpu")
        policy = load_policy(tiny_folder, "float32")
        assert isinstance(policy, LlamaPolicy)
        policy.kernels = None
        return policy

    (wanted, most), (found, kept) = learned(fresh(), False), learned(fresh(), True)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert kept < most / 2


def test_a_model_without_such_layers_is_refused(tiny_folder: Path) -> None:
    policy = TransformersPolicy(tiny_folder, "float32", "cpu")
    policy.module = torch.nn.Linear(2, 2)
    policy.module.config = type("Config", (), {"model_type": "linear"})
    with pytest.raises(ModelError, match="gradient_checkpointing=false"):
        policy.checkpoint_layers()
