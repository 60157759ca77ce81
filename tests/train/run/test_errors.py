"""Too little memory is said in one sentence, on a GPU too."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from assay.console import status_of  # noqa: E402
from configs.machine import EngineConfig, ModelConfig  # noqa: E402
from rollouts.engines.engine import ModelError  # noqa: E402
from train.run.run import load_checked  # noqa: E402


def test_out_of_gpu_memory_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    assert status_of(error, "assay grpo") == 1
    assert capsys.readouterr().err.startswith("assay grpo: out of GPU memory; lower engine.micro")
    assert status_of(RuntimeError("a bug"), "assay grpo") is None


def test_a_model_that_a_gpu_cannot_train_is_refused(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (tiny_folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (size * 10, size * 10))
    with pytest.raises(ModelError, match=r"GPU memory needed.*spread it over GPUs with --backend"):
        load_checked(tiny_folder, EngineConfig(), "cuda", train=True)
    # adapters need a fraction: it goes on to the loading, for which there is no GPU here
    if not torch.cuda.is_available():
        with pytest.raises((RuntimeError, AssertionError)) as error:
            load_checked(tiny_folder, EngineConfig(), "cuda", True, ModelConfig(lora_rank=4))
        assert not isinstance(error.value, ModelError)
