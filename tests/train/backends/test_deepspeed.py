"""SFT on two processes is the embedded loop: same losses, resumable, an ordinary folder; LoRA."""

from __future__ import annotations

import importlib.util
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from sft_runs import finish, losses, sft, toy_tasks, words

from configs.loader import load
from configs.schema import SftRunConfig
from train.backends.deepspeed import (
    ROWS,
    _model,
    first_host,
    launch,
    picked,
    rendezvous,
    zero_config,
)

TOLERANCE = 2e-5  # relative, of each step's loss, in float32


def needs(package: str, extra: str) -> Any:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (extra `{extra}`)")


def same(one: list[float], two: list[float]) -> bool:
    return len(one) == len(two) and apart(one, two) <= TOLERANCE


def apart(some: list[float], others: list[float]) -> float:
    """The largest relative difference of two runs' losses."""
    return max(abs(a - b) / b for a, b in zip(some, others, strict=True))


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
def test_twenty_offloaded_steps_in_bfloat16(tiny_folder: Path, tmp_path: Path) -> None:
    """ZeRO-3 with every weight gathered and let go, weights and optimiser on the host, bfloat16,
    gradients added up in float32: two sequences a process and step.

    Two programs that round to bfloat16 at different places part, on some processors further than
    on others. They have to stay much closer to each other than bfloat16 is to float32."""
    data, whole, out = toy_tasks(tmp_path / "t.jsonl", 80), tmp_path / "whole", tmp_path / "run"
    exact = tmp_path / "exact"
    steps = ["sft.epochs=1", "sft.batch_size=4", "sft.lr=1e-4"]
    more = ["engine.dtype=bfloat16", *steps]
    nearest = "engine.rounding=nearest"  # as DeepSpeed rounds its weights
    finish(sft(*words(data, tiny_folder, whole, nearest, *more)))
    finish(sft(*words(data, tiny_folder, exact, *steps)))
    args = ["--backend", "deepspeed", *words(data, tiny_folder, out, *more, "cluster.offload=true")]
    finish(sft(*args))
    rounding = apart(losses(whole), losses(exact))
    assert len(losses(out)) == 20
    assert apart(losses(out), losses(whole)) < max(2e-3, rounding / 2)
    assert losses(whole)[-1] < losses(whole)[0] - 0.1  # and they learn


def test_the_gradient_overwrites_the_logits_and_is_right() -> None:
    """Over more positions than are in float32 at a time; a masked position weighs nothing."""
    torch.manual_seed(0)
    count = ROWS + 3
    first = torch.randn(count, 7, requires_grad=True)
    second = first.detach().clone().requires_grad_(True)
    ids, weight = torch.randint(0, 7, (count,)), torch.rand(count)
    weight[5] = 0
    logits = first * 1.0  # not a leaf, as the head's output is none
    found = picked(logits, ids)
    wanted = second.log_softmax(-1).gather(1, ids[:, None])[:, 0]
    assert torch.allclose(found, wanted, atol=1e-6)
    (found * weight).sum().backward()
    (wanted * weight).sum().backward()
    assert first.grad is not None and second.grad is not None
    assert torch.allclose(first.grad, second.grad, atol=1e-6)
    assert torch.equal(logits.detach(), first.grad)  # one tensor of this size


def test_settings_of_zero() -> None:
    """On a CPU the tiny model's largest weight is far below the size up to which ZeRO-3 keeps them
    whole. Gradients are added up in float32."""

    def made(*settings: str) -> dict[str, Any]:
        return zero_config(load(SftRunConfig, None, list(settings)), 2)

    zero, kept = "zero_optimization", "stage3_param_persistence_threshold"
    assert made("engine.dtype=bfloat16")["data_types"] == {"grad_accum_dtype": "fp32"}
    assert made("cluster.device=cpu")[zero][kept] == 0 and kept not in made()[zero]
    assert made("cluster.offload=true")[zero]["offload_param"]["pin_memory"] is True


@needs("peft", "lora")
@needs("deepspeed", "deepspeed")
@pytest.mark.slow
def test_adapters_alone_are_trained_and_merged(tiny_folder: Path, tmp_path: Path) -> None:
    """As in the embedded loop, whose adapters test_validation.py asks for."""
    data, out, two = toy_tasks(tmp_path / "t.jsonl"), tmp_path / "run", tmp_path / "two"
    lora = ["model.lora_rank=4", "sft.lr=1e-2", "sft.epochs=2"]
    finish(sft(*words(data, tiny_folder, out, *lora)))
    finish(sft("--backend", "deepspeed", *words(data, tiny_folder, two, *lora)))
    assert losses(out)[-1] < losses(out)[0]
    assert same(losses(two), losses(out)), (losses(two), losses(out))
    before, after, merged = (
        load_file(str(folder / "model.safetensors"))
        for folder in (tiny_folder, out / "model", two / "model")
    )
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("proj" in name for name in changed)  # not norms, not the embedding
    assert all(torch.allclose(merged[name], after[name], atol=1e-3) for name in changed)


def test_layers_keep_their_inputs_only(tiny_folder: Path) -> None:
    """Asked for is not done: transformers recomputes in training mode alone."""
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


# nodes of a job, and the first of them
LISTS = {
    "n1": "n1",
    "n[03-07,9],login1": "n03",
    "a5,n[1-2]": "a5",
    "r[1-2]n[3,5-6]": "r1n3",
    "gpu-a100-[007-012]": "gpu-a100-007",
}


def test_the_meeting_point_is_read_without_asking_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a container there is no scontrol."""
    monkeypatch.setenv("PATH", "/nonexistent")
    job = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_ID": "17"}
    job["SLURM_JOB_NODELIST"] = "n[03-04]"
    assert rendezvous(job) == (2, 1, "n03", 20119)
    assert rendezvous(job | {"SLURM_RESTART_COUNT": "1"})[3] == 20120
    assert {nodes: first_host(nodes) for nodes in LISTS} == LISTS


RANK = """import os, sys
name = os.environ["RANK"]
open(name, "w").write(" ".join(os.environ[n] for n in ("WORLD_SIZE", "OMP_NUM_THREADS")))
sys.exit(int(name) * int(sys.argv[1]))
"""


def test_ranks_share_the_cores_and_a_failed_one_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_rank.py").write_text(RANK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # pytest keeps its own
    for asked, status, told in (("", 0, "2 3"), ("4", 3, "2 4")):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert launch(["a_rank", str(status)], 2) == status
        assert [(tmp_path / rank).read_text() for rank in "01"] == [told, told]
