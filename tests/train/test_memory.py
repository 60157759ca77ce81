"""Will it fit: memory, disk and lengths of every shipped configuration, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from places import ROOT, tables

import assay
from configs.loader import ConfigError, load
from configs.schema import GrpoRunConfig, SftRunConfig
from train.memory import (
    back_bytes,
    embedded,
    grpo_report,
    head_bytes,
    local_report,
    node_bytes,
    norm_bytes,
    rolling_out,
    sft_report,
    updating,
)
from train.model.source import shape_of

CONFIGS = ROOT / "configs"
GRPO = [p for p in sorted(CONFIGS.glob("*qwen3*.yaml")) if "sft" not in p.name]
SFT = sorted(CONFIGS.glob("*sft*qwen3*.yaml"))
DARE, BIG = CONFIGS / "dare_qwen3_4b.yaml", CONFIGS / "sft_qwen3_32b_zero3.yaml"


def dare(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, DARE, list(settings))


def big(*settings: str) -> SftRunConfig:
    return load(SftRunConfig, BIG, list(settings))


@pytest.mark.parametrize("path", GRPO + SFT, ids=lambda p: p.name)
def test_every_shipped_configuration_has_a_dry_run_that_fits(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    words = ["sft", "--backend", "deepspeed"] if path in SFT else ["grpo", "--backend", "verl"]
    status = assay.main([*words, "--config", str(path), "--dry-run"])
    done = capsys.readouterr()
    assert status == 0, done.err
    assert "memory on each GPU" in done.out and "GB a checkpoint" in done.out
    assert "may not fit" not in done.out
    assert ("cache of keys and values" in done.out) == (path in GRPO)


def test_dare_on_one_node_by_hand() -> None:
    """Qwen3-4B, 4.02e9 parameters, eight GPUs of 80 GB, sequences of 32,768 over four of them. Its
    embeddings are tied, so each rank reads all of it in float32. Untied ones are read once; there
    servers' copies and what is offloaded are more."""
    shape, untied = shape_of("Qwen/Qwen3-4B"), shape_of("Qwen/Qwen3-8B")
    parts = updating(dare(), shape) | rolling_out(dare(), shape)
    count = 36 * (2 * 2560 * 4096 + 2 * 2560 * 1024 + 3 * 2560 * 9728 + 2 * 2560) + 151936 * 2560
    by_hand = {
        "weights (float32, cut)": 4 * count / 8,
        "gradients and moments (cut)": 12 * count / 8,
        "server: weights (bf16)": 2 * count,
        "server: cache of keys and values": 0.55 * 80e9 - 2 * count,
        "layers' inputs": 2 * 8192 * 36 * 2560,
    }
    assert {name: parts[name] for name in by_hand} == pytest.approx(by_hand, rel=1e-3)
    # within 3 % of what a step of the real layers took, counted on fake tensors
    took = [head_bytes(shape, 8191), norm_bytes(shape, 8192), back_bytes(shape, 8192)]
    assert took == pytest.approx([4.398e9, 1.258e8, 2.531e9], rel=1e-3)
    later = 16 * untied.parameters + 12 * untied.parameters * dare().cluster.offload
    assert node_bytes(dare(), untied) == pytest.approx(later + 20e9 + 24 * 2e9)


def test_what_cannot_run_is_refused_in_one_sentence() -> None:
    refused = tables("training")
    for settings, said in refused["RL that does not fit"].items():
        with pytest.raises(ConfigError, match=re.escape(said)) as error:
            grpo_report(dare(*settings.split()))
        assert "\n" not in str(error.value)
    for settings, said in refused["SFT that does not fit"].items():
        with pytest.raises(ConfigError, match=re.escape(said)):
            sft_report(big(*settings.split()))


# parameters as their makers count them, in billions
MAKERS = {"Qwen/Qwen3-4B": 4.02, "Qwen/Qwen3-8B": 8.19, "Qwen/Qwen3-32B": 32.76}
MAKERS |= {"HuggingFaceTB/SmolLM2-135M-Instruct": 0.1345}


def test_a_folder_tells_its_own_shape(tiny_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    for name, billions in MAKERS.items():
        assert shape_of(name).parameters / 1e9 == pytest.approx(billions, rel=5e-3), name
    count = sum(t.numel() for t in load_file(str(tiny_folder / "model.safetensors")).values())
    assert shape_of(str(tiny_folder)).parameters == pytest.approx(count, rel=1e-3)
    config = json.loads((tiny_folder / "config.json").read_text())
    stretched = {"original_max_position_embeddings": 1000, "factor": 4.0, "rope_type": "yarn"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": stretched}))
    assert shape_of(str(tmp_path)).positions == max(4000, config["max_position_embeddings"])
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ConfigError, match="not the configuration of a decoder"):
        shape_of(str(tmp_path))


def test_one_device_is_estimated_and_points_to_the_backend() -> None:
    shape = shape_of("HuggingFaceTB/SmolLM2-135M-Instruct")
    small = embedded(load(GrpoRunConfig, None), shape)
    again = embedded(load(GrpoRunConfig, None, ["engine.gradient_checkpointing=true"]), shape)
    activations = "activations of a micro-batch"
    assert again[activations] < small[activations] / 8
    assert small["gradients, masters, moments"] == pytest.approx(18 * 134.5e6, rel=5e-3)
    assert 2e9 < sum(small.values()) < 30e9
    assert "--backend verl" in local_report(dare("engine.slots=512"))
    assert "--backend deepspeed" in local_report(big())
    assert local_report(dare("model.path=not/there")).startswith("memory: not estimated")
