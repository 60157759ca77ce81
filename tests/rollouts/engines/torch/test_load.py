"""Folders that cannot be loaded are refused in a sentence; weights files; which device and dtype
the embedded engine takes, and that a run keeps the dtype it began with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tiny_model import small_llama  # noqa: E402

from configs.loader import ConfigError, load  # noqa: E402
from configs.schema import SftRunConfig  # noqa: E402
from rollouts.engines.engine import ModelError  # noqa: E402
from rollouts.engines.torch.engine import load_engine  # noqa: E402
from rollouts.engines.torch.load import (  # noqa: E402
    by_instructions,
    choose_device,
    choose_dtype,
    read_weights,
    write_weights,
)
from train.run import run as runs  # noqa: E402
from train.run.run import settled  # noqa: E402

MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "llama9"}, "does not know model_type 'llama9'"),
    ({"model_type": "foo", "auto_map": {"AutoConfig": "a.B"}}, "its own code"),
    ({"vocab_size": 200}, "embed_tokens.weight has the shape"),
    ({"vocab_size": 200, "mlp_bias": True}, "embed_tokens.weight has the shape"),
    ({"mlp_bias": True}, "has no tensor 'model.layers.0.mlp.down_proj.bias'"),
    ({"num_key_value_heads": 3}, ""),
    ({"model_type": "t5"}, ""),
    ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
]


@pytest.mark.parametrize(("changes", "said"), MISFITS)
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    small_llama(259).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ModelError) as found:
        load_engine(tmp_path, [2], 4, "float32")
    assert said in str(found.value)


@pytest.mark.parametrize("keep", [0, 5, 60, -3])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.safetensors"
    write_weights(path, {"a": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        read_weights(path)


def test_what_is_asked_for_is_taken_and_a_gpu_computes_in_bfloat16() -> None:
    assert [choose_dtype(d, "cpu") for d in ("bfloat16", "float32")] == ["bfloat16", "float32"]
    assert choose_dtype("auto", "cuda") == "bfloat16" and choose_device("cpu") == "cpu"
    if torch.cuda.is_available():
        assert choose_device("auto") == "cuda"
    else:
        assert choose_device("auto") == "cpu"
        with pytest.raises(ModelError, match="torch sees no GPU"):
            choose_device("cuda")


def test_instructions_decide() -> None:
    arm, emulated = {"architecture": "aarch64"}, {"architecture": "x86_64"}
    amx, here = ({**emulated, name: True} for name in ("amx_bf16", "avx512_bf16"))
    held = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    fast = [(amx, True, {}), (here, True, {}), (arm, True, {})]
    # oneDNN says yes of emulation too
    slow = [(emulated, True, {}), (amx, False, {}), (amx, True, held), (arm, None, {})]
    slow += [({**here, "cpu_name": "Intel Xeon"}, True, {})]  # a virtual machine hides its AMX
    assert [by_instructions(*case) for case in (*fast, *slow)] == [True] * 3 + [False] * 5


def test_a_machine_that_cannot_compute_in_a_runs_dtype_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"config": {"engine": {"dtype": "bfloat16"}}}
    (tmp_path / "run.json").write_text(json.dumps(record))
    config = load(SftRunConfig, None, [f"out={tmp_path}", "engine.device=cpu", "engine.threads=1"])
    assert settled(config).engine.dtype == "bfloat16"
    monkeypatch.setattr(runs, "computes_bfloat16", lambda: False)  # no such machine is at hand
    with pytest.raises(ConfigError, match="torch cannot compute on this CPU"):
        settled(config)
