"""What a policy cannot read is said, not an index out of range; layers that are computed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from rollouts.engines.engine import ModelError
from train.model.packing import Segment, pack
from train.model.policy import LlamaPolicy, TransformersPolicy, load_policy


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "opt"])
def test_a_sequence_longer_than_learned_positions_is_refused(tmp_path: Path, kind: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    # the token ids that some kinds have by default lie outside so small a vocabulary
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config: Any = AutoConfig.for_model(
        kind, vocab_size=48, max_position_embeddings=32, **sizes, **ids
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    policy = TransformersPolicy(tmp_path, "float32", "cpu")
    policy.logp(pack([Segment([5] * 30, [[7, 8]], [0])]), 1.0)
    long = pack([Segment([5] * 30, [[7, 8, 9]], [0])])
    if kind == "gpt_neox":  # rotary: it can read on
        policy.logp(long, 1.0)
        return
    with pytest.raises(ModelError, match=r"positions for 32 tokens.*has 33"):
        policy.logp(long, 1.0)


# --- layers that are computed a second time ------------------------------------------------------


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
