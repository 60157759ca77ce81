"""Models that transformers trains: what they cannot read is said, not an index out of range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rollouts.engines.engine import ModelError  # noqa: E402
from train.model.packing import Segment, pack  # noqa: E402
from train.model.policy import TransformersPolicy  # noqa: E402


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
