"""What a policy cannot read is said, not an index out of range; layers that are computed again."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tiny_model import random_model

from rollouts.engines.engine import ModelError
from train.model.packing import Segment, pack
from train.model.policy import TransformersPolicy


@pytest.mark.parametrize("kind", ["gpt2", "opt", "gpt_neox"])
def test_a_sequence_longer_than_learned_positions_is_refused(tmp_path: Path, kind: str) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small = {"vocab_size": 48, "max_position_embeddings": 32, "bos_token_id": 0, "eos_token_id": 1}
    random_model(kind, **sizes, **small, pad_token_id=1).save_pretrained(tmp_path)
    policy = TransformersPolicy(tmp_path, "float32", "cpu")
    policy.logp(pack([Segment([5] * 30, [[7, 8]], [0])]), 1.0)
    said = pytest.raises(ModelError, match=r"positions for 32 tokens.*has 33")
    with nullcontext() if kind == "gpt_neox" else said:  # rotary: it can read on
        policy.logp(pack([Segment([5] * 30, [[7, 8, 9]], [0])]), 1.0)
