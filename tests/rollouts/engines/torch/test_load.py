"""Folders that cannot be loaded are refused in a sentence; weights files; which device and dtype
the embedded engine takes, and that a run keeps the dtype it began with."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front import command
from places import ROOT

torch = pytest.importorskip("torch")

from tiny_model import small_llama  # noqa: E402

from assay import workers  # noqa: E402
from assay.task import Task, write_jsonl  # noqa: E402
from configs.loader import ConfigError, load  # noqa: E402
from configs.schema import SftRunConfig  # noqa: E402
from rollouts.engines.engine import ModelError  # noqa: E402
from rollouts.engines.torch.engine import load_engine, set_threads  # noqa: E402
from rollouts.engines.torch.load import (  # noqa: E402
    by_instructions,
    choose_device,
    choose_dtype,
    read_weights,
    write_weights,
)
from train.run import run as runs  # noqa: E402
from train.run.run import settled  # noqa: E402

sft_main = command("sft")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "llama9"}, "does not know model_type 'llama9'"),
        ({"model_type": None}, "no model_type"),
        ({"model_type": "foo", "auto_map": {"AutoConfig": "a.B"}}, "its own code"),
        ({"vocab_size": 200}, "embed_tokens.weight has the shape"),
        ({"vocab_size": 200, "mlp_bias": True}, "embed_tokens.weight has the shape"),
        ({"mlp_bias": True}, "has no tensor 'model.layers.0.mlp.down_proj.bias'"),
        ({"intermediate_size": 80}, "_proj.weight has the shape"),
        ({"num_key_value_heads": 3}, ""),
        ({"hidden_size": "wide"}, ""),
        ({"model_type": "t5"}, ""),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    small_llama(259).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ModelError) as found:
        load_engine(tmp_path, [2], 4, "float32")
    assert said in str(found.value) and "\n" not in str(found.value)
    assert str(tmp_path) in str(found.value) or "tensor" in str(found.value)


@pytest.mark.parametrize("keep", [0, 5, 60, -3])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.safetensors"
    write_weights(path, {"a": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        read_weights(path)


FULL = """
import resource, signal, sys, torch
from pathlib import Path
from rollouts.engines.torch.load import write_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write_weights(Path(sys.argv[1]), {"a": torch.ones(100000)})
except OSError as error:
    print(error.errno, error.filename)
"""


def test_a_disk_that_is_full_is_an_error_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == f"{errno.EFBIG} {path}\n", done.stderr


# torch and oneDNN then compute as on a processor without AVX512
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
X86 = platform.machine() in ("x86_64", "AMD64")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    gold = {"input_text": "a b", "status": "KEEP", "text": "a"}
    prompt = [{"role": "user", "content": "drop b: a b"}]
    rows = [Task(f"t{i}", "refinement", "toy", "train", prompt, gold) for i in range(4)]
    write_jsonl(tmp_path / "tasks.jsonl", (task.to_json() for task in rows))
    return tmp_path / "tasks.jsonl"


def avx2(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **AVX2},
        capture_output=True,
        text=True,
        check=True,
    )


def recorded(out: Path) -> str:
    config: Any = json.loads((out / "run.json").read_text())["config"]
    return config["engine"]["dtype"]


@pytest.mark.skipif(not X86, reason="instruction sets are chosen by x86 variables")
def test_auto_is_float32_where_bfloat16_has_no_instructions() -> None:
    code = (
        "from rollouts.engines.torch.load import choose_dtype; print(choose_dtype('auto', 'cpu'))"
    )
    assert avx2("-c", code).stdout == "float32\n"


def test_what_is_asked_for_is_taken_and_a_gpu_computes_in_bfloat16() -> None:
    assert [choose_dtype(d, "cpu") for d in ("bfloat16", "float32")] == ["bfloat16", "float32"]
    assert choose_dtype("auto", "cuda") == "bfloat16"
    assert choose_device("cpu") == "cpu"
    if torch.cuda.is_available():
        assert choose_device("auto") == choose_device("cuda") == "cuda"
    else:
        assert choose_device("auto") == "cpu"
        with pytest.raises(ModelError, match="torch sees no GPU"):
            choose_device("cuda")


def test_instructions_decide() -> None:
    amx = {"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": True}
    emulated = {"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False}
    here, held = {**emulated, "avx512_bf16": True}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    arm = {"architecture": "aarch64"}
    fast = [(amx, True, {}), (here, True, {}), (arm, True, {})]
    # oneDNN says yes of emulation too
    slow = [(emulated, True, {}), (amx, False, {}), (amx, True, held), (arm, None, {})]
    assert [by_instructions(*case) for case in (*fast, *slow)] == [True] * 3 + [False] * 4


@pytest.mark.slow
@pytest.mark.skipif(not X86, reason="instruction sets are chosen by x86 variables")
def test_a_run_keeps_the_dtype_it_began_with(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = [f"data={tasks}", f"model.path={tiny_folder}", f"out={out}", "sft.batch_size=2"]
    words += ["engine.threads=1", "engine.device=cpu"]
    avx2("-m", "assay", "sft", *words)
    assert recorded(out) == "float32"
    assert sft_main(words) == 0  # the processor as it is, whatever it is fast with
    assert recorded(out) == "float32"
    assert sft_main([*words, "engine.dtype=bfloat16"]) == 2
    assert "engine.dtype" in capsys.readouterr().err
    other = tmp_path / "other"
    words[2] = f"out={other}"
    assert sft_main([*words, "engine.dtype=bfloat16"]) == 0
    done = avx2("-m", "assay", "sft", *words)
    assert recorded(other) == "bfloat16"
    assert f"{other} began with engine.dtype=bfloat16 and goes on in it" in done.stderr


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


def test_cores_are_counted_where_the_system_has_no_affinity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = torch.get_num_threads()
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    try:
        assert workers.usable_cores() == set_threads("auto") == (os.cpu_count() or 1)
    finally:
        torch.set_num_threads(threads)
