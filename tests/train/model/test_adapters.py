"""Adapters of peft, merged: what peft computes, or refused by name."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402
from tiny_model import small_llama, write_tiny_tokenizer  # noqa: E402

from rollouts.engines.engine import ModelError  # noqa: E402
from train.model.folder import ADAPTER, ADAPTER_CONFIG, save_merged, scale_of  # noqa: E402

PEFT = importlib.util.find_spec("peft") is not None
LINEAR = ["q_proj", "v_proj", "down_proj"]
# name: (settings of LoraConfig, whether peft is needed to add it)
KINDS: dict[str, tuple[dict[str, Any], bool]] = {
    "plain": ({}, False),
    "patterns": (
        {
            "rank_pattern": {"q_proj": 8, "layers.1.mlp.down_proj": 2},
            "alpha_pattern": {"v_proj": 64, r"layers\.0\..*down_proj": 5},
        },
        False,
    ),
    "rslora": ({"use_rslora": True, "rank_pattern": {"v_proj": 9}}, False),
    "gaussian": ({"init_lora_weights": "gaussian"}, False),
    "pissa": ({"init_lora_weights": "pissa"}, True),
    "olora": ({"init_lora_weights": "olora"}, True),
    "dora": ({"use_dora": True}, True),
    "bias": ({"bias": "all"}, True),
    "modules": ({"modules_to_save": ["norm"]}, True),
    "embedding": ({"target_modules": [*LINEAR, "embed_tokens"]}, True),
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    vocab = write_tiny_tokenizer(folder)
    small_llama(vocab, tie_word_embeddings=False).save_pretrained(folder)
    return folder


def trained(base: Path, folder: Path, settings: dict[str, Any]) -> Any:
    """An adapter with random values as peft saves it; the law of the model with it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    given = {"r": 4, "lora_alpha": 12, "target_modules": LINEAR} | settings
    module = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(module, LoraConfig(task_type="CAUSAL_LM", **given))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder)
        return model(IDS).logits


IDS = torch.arange(3, 40)[None]


@pytest.mark.skipif(not PEFT, reason="peft is not installed (extra `lora`)")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_sum_is_pefts(
    base: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    settings, needed = KINDS[kind]
    wanted = trained(base, tmp_path / "a", settings)
    (base / "stray.safetensors").write_bytes((tmp_path / "a" / ADAPTER).read_bytes())
    save_merged(tmp_path / "a", base, tmp_path / "merged")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    with torch.no_grad():
        assert torch.allclose(found(IDS).logits, wanted, atol=2e-4)
    monkeypatch.setitem(sys.modules, "peft", None)
    if needed:
        with pytest.raises(ModelError, match="install the extra `lora`"):
            save_merged(tmp_path / "a", base, tmp_path / "again")
    else:
        save_merged(tmp_path / "a", base, tmp_path / "again")
        again = load_file(tmp_path / "again" / "model.safetensors")
        assert all(
            torch.equal(again[k], v)
            for k, v in load_file(tmp_path / "merged" / "model.safetensors").items()
        )


@pytest.mark.skipif(not PEFT, reason="peft is not installed (extra `lora`)")
def test_what_cannot_be_merged_is_refused(base: Path, tmp_path: Path) -> None:
    """On a tied embedding: the output layer would change with it."""
    small_llama(259).save_pretrained(base)
    trained(base, tmp_path / "a", KINDS["embedding"][0])
    with pytest.raises(ModelError, match="tied weights"):
        save_merged(tmp_path / "a", base, tmp_path / "m")


def plain(base: Path, folder: Path, **settings: Any) -> Path:
    """A plain adapter, without peft."""
    folder.mkdir()
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    generator = torch.Generator().manual_seed(3)
    pair = {
        f"{stem}.lora_A.weight": torch.randn(4, 32, generator=generator),
        f"{stem}.lora_B.weight": torch.randn(32, 4, generator=generator),
    }
    save_file(pair, folder / ADAPTER)
    about = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 4, "lora_alpha": 8}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(about | settings))
    return folder


@pytest.mark.skipif(PEFT, reason="peft adds it")
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"use_dora": True}, "use_dora=True"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"a_setting_of_tomorrow": 3}, "a_setting_of_tomorrow"),
    ],
)
def test_without_peft_what_is_more_than_lora_is_named(
    base: Path, tmp_path: Path, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError, match="install the extra `lora`") as error:
        save_merged(plain(base, tmp_path / "a", **settings), base, tmp_path / "m")
    assert named in str(error.value)


def test_what_is_no_lora_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    for i, change in enumerate(({"peft_type": "IA3"}, {"r": 0}, {"lora_alpha": None})):
        with pytest.raises(ModelError, match="wanted a LoRA adapter"):
            save_merged(plain(base, tmp_path / f"a{i}", **change), base, tmp_path / "m")


def test_the_scale_of_each_module() -> None:
    about = {"lora_alpha": 8, "alpha_pattern": {"v_proj": 64, r"layers\.0\..*down_proj": 5}}
    scale = scale_of(about)
    assert scale("model.layers.3.self_attn.q_proj", 4) == 2
    assert scale("model.layers.3.self_attn.v_proj", 4) == 16
    assert scale("model.layers.0.mlp.down_proj", 10) == 0.5
    assert scale("model.layers.10.mlp.down_proj", 4) == 2
    assert scale_of(about | {"use_rslora": True})("x.q_proj", 4) == 4
