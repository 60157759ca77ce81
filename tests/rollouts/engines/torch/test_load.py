"""Folders that cannot be loaded are refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tiny_model import small_llama  # noqa: E402

from rollouts.engines.engine import ModelError  # noqa: E402
from rollouts.engines.torch.engine import load_engine  # noqa: E402


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "llama9"}, "does not know model_type 'llama9'"),
        ({"model_type": None}, "no model_type"),
        ({"model_type": "foo", "auto_map": {"AutoConfig": "a.B"}}, "its own code"),
        ({"vocab_size": 200}, "embed_tokens.weight has the shape"),
        ({"vocab_size": 200, "mlp_bias": True}, "embed_tokens.weight has the shape"),
        ({"mlp_bias": True}, "has no tensor 'model.layers.0.mlp.down_proj.bias'"),
        ({"intermediate_size": 80}, "_proj.weight has the shape"),
        ({"num_key_value_heads": 3}, ""),
        ({"hidden_size": "wide"}, ""),
        ({"model_type": "t5"}, ""),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    small_llama(259).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ModelError) as found:
        load_engine(tmp_path, [2], 4, "float32")
    assert said in str(found.value) and "\n" not in str(found.value)
    assert str(tmp_path) in str(found.value) or "tensor" in str(found.value)
