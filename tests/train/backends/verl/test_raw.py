"""`cluster.verl.<path>=value`: names checked against verl, nothing of ours set twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs.loader import ConfigError, dump, load
from configs.schema import GrpoRunConfig
from train.backends.verl.compose import raw_settings, signed
from train.backends.verl.overrides import overrides

ROLLOUT = "actor_rollout_ref.rollout"
KNOWN: dict[str, Any] = {
    "actor_rollout_ref": {
        "nccl_timeout": 600,
        "rollout": {"engine_kwargs": {"sglang": {}}, "name": None, "ratio": 0.5, "eager": True},
        "ref": "${actor_rollout_ref.actor}",
    }
}


def run_of(*settings: str) -> GrpoRunConfig:
    return load(GrpoRunConfig, None, ["model.path=m", *settings])


def raw(*settings: str) -> dict[str, Any]:
    config = run_of(*settings)
    return raw_settings(config.cluster.verl, overrides(config, Path("/files")))


def test_keys_are_handed_on_as_they_stand(tmp_path: Path) -> None:
    words = [
        "cluster.verl.actor_rollout_ref.nccl_timeout=1200",
        f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.mamba={{a: 1}}",
        f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.quantization=fp8",
    ]
    found = raw(*words)
    assert found == {
        "actor_rollout_ref.nccl_timeout": 1200,
        f"{ROLLOUT}.engine_kwargs.sglang.mamba.a": 1,
        f"{ROLLOUT}.engine_kwargs.sglang.quantization": "fp8",
    }
    assert list(signed(found, KNOWN)) == [
        "actor_rollout_ref.nccl_timeout",
        f"+{ROLLOUT}.engine_kwargs.sglang.mamba.a",
        f"+{ROLLOUT}.engine_kwargs.sglang.quantization",
    ]
    dump(run_of(*words), tmp_path / "c.yaml")  # a file says the same
    assert load(GrpoRunConfig, tmp_path / "c.yaml").cluster.verl == run_of(*words).cluster.verl
    assert raw() == {}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("trainer.nnodes=4", "Assay sets trainer.nnodes=1 from its own settings"),
        ("data=null", "Assay sets data.train_files="),
        ("actor_rollout_ref.model.override_config.attn_implementation=eager", "Assay sets"),
    ],
)
def test_what_assay_sets_is_not_set_twice(key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        raw(f"cluster.verl.{key}")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("actor_rollout_ref.nccl_timeot", 1, "verl has no nccl_timeot there; did you mean 'nccl_t"),
        ("actor_rollout_ref.nccl_timeout.x", 1, "verl has no x there"),
    ],
)
def test_what_verl_does_not_have_is_refused(key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        signed({key: value}, KNOWN)
    assert said in str(error.value) and str(error.value).startswith(f"cluster.verl.{key}")


def test_kinds_that_fit_pass() -> None:
    fitting = {f"{ROLLOUT}.ratio": 1, f"{ROLLOUT}.name": "x", "actor_rollout_ref.ref": 3}
    assert signed(fitting, KNOWN) == fitting


def test_verl_itself_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from train.backends.verl.compose import show

    fsdp = "actor_rollout_ref.actor.fsdp_config.fsdp_size"
    words = ["model.path=Qwen/Qwen3-4B", "rl.max_new_tokens=64", f"cluster.verl.{fsdp}=8"]
    more = f"cluster.verl.{ROLLOUT}.engine_kwargs.sglang.quantization=fp8"
    show(load(GrpoRunConfig, None, [*words, more]))
    said = capsys.readouterr().out
    assert f"no estimate knows of them):\n{fsdp}=8" in said
    assert "fsdp_size: 8" in said and "quantization: fp8" in said
    with pytest.raises(ConfigError, match="verl has no fsdp_sise there; did you mean 'fsdp_size"):
        wrong = f"cluster.verl.{fsdp.replace('size', 'sise')}=8"
        show(load(GrpoRunConfig, None, [*words[:2], wrong]))
