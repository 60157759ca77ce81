"""The vLLM servers of the smoke device, as far as neither verl nor vLLM is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from configs.loader import ConfigError, load
from configs.schema import GrpoRunConfig
from train.backends.verl.overrides import overrides
from train.backends.verl.smoke.servers import HEAD, launch_of, names_of, untied


def run_of(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, None, ["model.path=m", *settings])


def test_a_vllm_server_draws_on_the_smoke_device_alone(tmp_path: Path) -> None:
    vllm = ("cluster.device=cpu", "cluster.rollout=vllm", "cluster.server_python=/no/python")
    made = overrides(run_of(*vllm), tmp_path)
    assert made["actor_rollout_ref.rollout.name"] == "assay_vllm"
    with pytest.raises(ConfigError, match="log-probabilities of temperature 1"):
        overrides(run_of(*vllm, "rl.temperature=0.7"), tmp_path)
    with pytest.raises(ConfigError, match=r"server_python=/no/python: no such program"):
        launch_of(run_of(*vllm), Path("m"))
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch(0o755)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    config = run_of(*vllm[:2], f"cluster.server_python={python}", "rl.max_length=512")
    launch = launch_of(config, tmp_path)
    assert launch.environ["VLLM_SERVER_DEV_MODE"] == "1"
    assert launch.environment()["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")
    assert launch.command(7)[-1] == "512" and "float32" in launch.command(7)
    (tmp_path / "config.json").write_text('{"hidden_size": 32, "num_attention_heads": 4}')
    with pytest.raises(ConfigError, match="heads of width 8; vLLM on a CPU has 32, 64"):
        launch_of(config, tmp_path)


def test_a_server_gets_an_output_layer_of_its_own(tiny_folder: Path, tmp_path: Path) -> None:
    """Else vLLM's CPU build would draw with the old one after an update of the embedding."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    assert HEAD not in names_of(tiny_folder)
    made = untied(tiny_folder, tmp_path / "served")
    assert HEAD in names_of(made)
    assert json.loads((made / "config.json").read_text())["tie_word_embeddings"] is False
    assert untied(made, tmp_path / "again") == made and not (tmp_path / "again").exists()
    ids = torch.tensor([[1, 5, 7, 9]])
    said: list[Any] = []
    for folder in (tiny_folder, made):
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        said.append(model(ids).logits)
    assert torch.equal(*said)
