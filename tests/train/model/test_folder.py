"""The folder that a model is saved in: names, number format, files and who may read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402
from tiny_model import write_tiny_tokenizer  # noqa: E402

from train.model.folder import save_folder  # noqa: E402
from train.model.policy import load_policy  # noqa: E402

SMALL: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "eos_token_id": 2,
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "decoder_sparse_step": 1, "head_dim": 16} | EXPERTS,
    "qwen2": {"tie_word_embeddings": False},
    "qwen3": {"tie_word_embeddings": True, "head_dim": 16, "attention_bias": True},
    "gpt_neox": {"tie_word_embeddings": True},
    "phi3": {"pad_token_id": 2},
}


def made(folder: Path, kind: str, dtype: Any = torch.float32, **more: Any) -> Path:
    """A random model of an architecture, as `save_pretrained` writes it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True)
    write_tiny_tokenizer(folder)
    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(kind, **SMALL, **more)
    AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_names_are_those_that_transformers_writes(kind: str, tmp_path: Path) -> None:
    """Experts one by one, and each tied weight once: other readers know no other names."""
    source = made(tmp_path / "m", kind, **KINDS[kind])
    load_policy(source, "float32").save(tmp_path / "saved")
    before, after = (load_file(f / "model.safetensors") for f in (source, tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_what_is_of_the_base_alone_stays_behind(kind: str, tmp_path: Path) -> None:
    source = made(tmp_path / "m", kind, torch.float16, head_dim=8)
    others = (
        "consolidated.00.pth tf_model.h5 flax_model.msgpack model.onnx optimizer.pt README.md"
        " rng_state.pth training_args.bin trainer_state.json SOURCE.json adapter_config.json"
        " adapter_model.safetensors model.gguf model-00001-of-00002.safetensors"
    )
    for name in others.split():
        (source / name).write_text("x")
    (source / "chat_template_kwargs.json").write_text("{}")
    about = json.loads((source / "config.json").read_text())
    about |= {"auto_map": {"AutoConfig": "configuration_x.X"}, "rope_theta": 5e5}
    (source / "config.json").write_text(json.dumps(about))
    work = tmp_path / "saved"
    load_policy(source, "bfloat16").save(work)
    kept = {p.name for p in work.iterdir()}
    assert not kept & set(others.split())
    assert kept >= {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"}
    assert kept >= {"chat_template.jinja", "chat_template_kwargs.json"}
    found = json.loads((work / "config.json").read_text())
    assert found.pop("dtype") == "bfloat16" and about.pop("dtype") == "float16"
    del about["auto_map"]
    assert found == about
    assert {t.dtype for t in load_file(work / "model.safetensors").values()} == {torch.bfloat16}
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    assert {p.stat().st_mode for p in work.iterdir()} == {ordinary.stat().st_mode}


def test_an_older_name_of_the_number_format_is_kept(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    about = {"torch_dtype": "float16", "text_config": {"dtype": "float16"}, "vision_config": {}}
    (tmp_path / "m" / "config.json").write_text(json.dumps(about))
    save_folder(tmp_path / "m", tmp_path / "s", {"a": torch.zeros(3), "b": torch.zeros(2).half()})
    found = json.loads((tmp_path / "s" / "config.json").read_text())
    assert found == {
        "torch_dtype": "float32",
        "text_config": {"dtype": "float32"},
        "vision_config": {},
    }
