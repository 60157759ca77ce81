"""Folders that the evaluator is given: whole models, and adapters with their base model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from tiny_model import small_llama, write_tiny_tokenizer  # noqa: E402

from configs.schema import EngineConfig  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402
from train.evaluation.local import folders_of, load_local, tokenizer_of  # noqa: E402


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    small_llama(write_tiny_tokenizer(folder)).save_pretrained(folder)
    return folder


def adapter_of(base: Path, folder: Path) -> Path:
    """A plain adapter with large values."""
    folder.mkdir()
    stem = "base_model.model.model.layers.0.mlp.down_proj"
    pair = {f"{stem}.lora_A.weight": torch.ones(2, 64), f"{stem}.lora_B.weight": torch.ones(32, 2)}
    save_file(pair, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 2, "lora_alpha": 1}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder


def answers(model: Path, scratch: Path) -> list[int]:
    folders = folders_of(str(model))
    tokenizer = tokenizer_of(folders, "hermes")
    config = EngineConfig(threads=1, device="cpu", dtype="float32")
    engine = load_local(folders, tokenizer, config, 4, scratch)
    assert not list(scratch.glob(".merged-*"))
    return engine.generate_now([[5, 6, 7]], Sampling(12, 0.0), 1, [0])[0][0].ids


def test_an_adapter_changes_answers_and_a_stray_file_of_one_does_not(
    base: Path, tmp_path: Path
) -> None:
    adapter, scratch = adapter_of(base, tmp_path / "a"), tmp_path / "scratch"
    scratch.mkdir()
    plain = answers(base, scratch)
    assert answers(adapter, scratch) != plain
    (base / "adapter_config.json").write_bytes((adapter / "adapter_config.json").read_bytes())
    assert folders_of(str(base)) == [base] and answers(base, scratch) == plain


def test_an_adapters_own_tokenizer_keeps_the_stops_of_the_base(base: Path, tmp_path: Path) -> None:
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    adapter = adapter_of(base, tmp_path / "a")
    assert set(tokenizer_of([adapter, base], "hermes").stop_ids) >= {2, 0}
    write_tiny_tokenizer(adapter)
    file = adapter / "chat_template.jinja"
    file.write_text("Mine. " + file.read_text())
    own = tokenizer_of([adapter, base], "hermes")
    assert set(own.stop_ids) >= {2, 0}
    assert own.raw(own.prompt([{"role": "user", "content": "x"}])).startswith("Mine. ")
