"""SFT on two processes is the embedded loop: same losses, resumable, an ordinary folder; LoRA."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

torch = pytest.importorskip("torch")

from rewards.task import Task, write_jsonl  # noqa: E402

TOLERANCE = 2e-5  # relative, of each step's loss, in float32


def needs(package: str, extra: str) -> Any:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (extra `{extra}`)")


def toy_tasks(path: Path) -> Path:
    tasks = []
    for i in range(24):
        gold = {"input_text": f"ax{i}", "status": "KEEP", "text": f"a{i}" * (1 + i % 4)}
        tasks.append(
            Task(
                f"t{i}",
                "refinement",
                "toy",
                "train",
                [{"role": "user", "content": f"{i} ax"}],
                gold,
            )
        )
    write_jsonl(path, [t.to_json() for t in tasks])
    return path


def words(data: Path, model: Path, out: Path, *more: str) -> list[str]:
    return [
        f"data={data}",
        f"model.path={model}",
        f"out={out}",
        "engine.device=cpu",
        "engine.threads=1",
        "engine.dtype=float32",
        "sft.batch_size=4",
        "sft.lr=1e-3",
        "checkpoint.sft_every=3",
        "cluster.device=cpu",
        "cluster.gpus_per_node=2",
        *more,
    ]


def sft(*args: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "sft", *args],
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(run: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = run.communicate(timeout=900)
    assert run.returncode == code, said
    return said


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def same(one: list[float], two: list[float]) -> bool:
    return len(one) == len(two) and all(
        abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(one, two, strict=True)
    )


def greedy(folder: Path) -> list[int]:
    from transformers import AutoModelForCausalLM

    module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return module.generate(torch.tensor([[1, 70, 71]]), max_new_tokens=8, do_sample=False)[0]


@needs("deepspeed", "deepspeed")
@pytest.mark.slow
@pytest.mark.parametrize("stage", [3, 2])
def test_two_processes_are_the_embedded_loop(tiny_folder: Path, tmp_path: Path, stage: int) -> None:
    data, whole, out = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "whole", tmp_path / "run"
    finish(sft(*words(data, tiny_folder, whole)))
    args = ["--backend", "deepspeed", *words(data, tiny_folder, out), f"cluster.zero_stage={stage}"]
    run = sft(*args)
    until = time.monotonic() + 1500
    while not (out / "checkpoints" / "sft" / "latest").is_file() and time.monotonic() < until:
        assert run.poll() is None or (out / "DONE").exists(), run.communicate()[0]
        time.sleep(0.05)
    run.send_signal(signal.SIGUSR1)  # both ranks save together and end
    said, _ = run.communicate(timeout=600)
    assert run.returncode in (0, 75), said
    finish(sft(*args))
    assert same(losses(out), losses(whole)), (losses(out), losses(whole))
    assert (out / "DONE").exists()
    assert torch.equal(greedy(out / "model"), greedy(whole / "model"))


@needs("deepspeed", "deepspeed")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "tolerance"), [("cluster.offload=true", 2e-5), ("engine.dtype=bfloat16", 5e-2)]
)
def test_offloading_and_bfloat16_are_the_embedded_loop_too(
    tiny_folder: Path, tmp_path: Path, setting: str, tolerance: float
) -> None:
    """Two sequences a process and step, so gradients are added up before they are exchanged."""
    data, whole, out = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "whole", tmp_path / "run"
    finish(sft(*words(data, tiny_folder, whole)))
    finish(sft("--backend", "deepspeed", *words(data, tiny_folder, out, setting)))
    pairs = list(zip(losses(out), losses(whole), strict=True))
    assert len(pairs) >= 6 and all(abs(a - b) <= tolerance * abs(b) for a, b in pairs), pairs
    assert (out / "model" / "model.safetensors").is_file()


def test_on_a_cpu_every_weight_is_gathered_and_let_go() -> None:
    """The tiny model's largest weight is far below the size up to which ZeRO-3 keeps them whole."""
    from configs.loader import load
    from configs.schema import SftRunConfig
    from train.backends.deepspeed import zero_config

    def zero(*settings: str) -> dict[str, Any]:
        return zero_config(load(SftRunConfig, None, list(settings)), 2)["zero_optimization"]

    assert zero("cluster.device=cpu")["stage3_param_persistence_threshold"] == 0
    assert "stage3_param_persistence_threshold" not in zero()  # DeepSpeed's own, for speed
    assert zero("cluster.offload=true")["offload_param"]["pin_memory"] is True


@needs("peft", "lora")
@pytest.mark.slow
def test_adapters_alone_are_trained_and_merged(tiny_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    data, out = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run"
    lora = ["model.lora_rank=4", "sft.lr=1e-2", "sft.epochs=2"]
    finish(sft(*words(data, tiny_folder, out, *lora)))
    found = losses(out)
    assert found[-1] < found[0]
    before = load_file(str(tiny_folder / "model.safetensors"))
    after = load_file(str(out / "model" / "model.safetensors"))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("proj" in name for name in changed)  # not norms, not the embedding
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed: adapters were tried in the embedded loop alone")
    two = tmp_path / "two"
    finish(sft("--backend", "deepspeed", *words(data, tiny_folder, two, *lora)))
    assert same(losses(two), found), (losses(two), found)
    merged = load_file(str(two / "model" / "model.safetensors"))
    for name in changed:
        assert torch.allclose(merged[name], after[name], atol=1e-3)


def test_layers_keep_their_inputs_only(tiny_folder: Path) -> None:
    """Asked for is not done: transformers recomputes in training mode alone."""
    from configs.loader import load
    from configs.schema import SftRunConfig
    from train.backends.deepspeed import _model, picked

    model = _model(load(SftRunConfig, None, ["engine.dtype=float32"]), tiny_folder)
    calls: list[int] = []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    ids = torch.tensor([[1, 70, 71, 72, 73]])
    out = model(input_ids=ids, use_cache=False, logits_to_keep=3)
    chosen = picked(out.logits[0, :-1], ids[0, -2:])
    law = model.eval()(input_ids=ids).logits[0].log_softmax(-1)
    assert torch.allclose(chosen, law[2:4].gather(1, ids[0, 3:, None])[:, 0], atol=1e-5)
    calls.clear()
    chosen.sum().backward()
    assert len(calls) == 1  # once more, in the backward pass
