"""SFT on two processes is the embedded loop: same losses, resumable, an ordinary folder; LoRA."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from sft_runs import finish, losses, sft, toy_tasks, words

from train.backends.deepspeed import first_host, rendezvous, threads_of

TOLERANCE = 2e-5  # relative, of each step's loss, in float32


def needs(package: str, extra: str) -> Any:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed (extra `{extra}`)")


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


def apart(some: list[float], others: list[float]) -> float:
    """The largest relative difference of two runs' losses."""
    return max(abs(a - b) / b for a, b in zip(some, others, strict=True))


@needs("deepspeed", "deepspeed")
@pytest.mark.slow
def test_twenty_offloaded_steps_in_bfloat16_killed_and_resumed(
    tiny_folder: Path, tmp_path: Path
) -> None:
    """ZeRO-3 with every weight gathered and let go, weights and optimiser on the host, bfloat16,
    gradients added up in float32: two sequences a process and step. Killed without a warning after
    some steps.

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
    run = sft(*args, start_new_session=True)
    latest = out / "checkpoints" / "sft" / "latest"
    until = time.monotonic() + 1500
    while not latest.is_file() and time.monotonic() < until:
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    assert not (out / "DONE").exists()
    finish(sft(*args))
    rounding = apart(losses(whole), losses(exact))
    assert len(losses(out)) == 20
    print(
        f"offloaded {apart(losses(out), losses(whole)):.2e}, float32 {rounding:.2e} from bfloat16"
    )
    assert apart(losses(out), losses(whole)) < max(2e-3, rounding / 2)
    assert losses(whole)[-1] < losses(whole)[0] - 0.1  # and they learn
    assert (out / "model" / "model.safetensors").is_file()


def test_processes_take_rows_of_one_length_at_a_time() -> None:
    """Under ZeRO-3 all wait for the longest row of each round."""
    from train.backends.deepspeed import share_of
    from train.examples import Example

    lengths = [3, 90, 4, 80, 5, 70, 6, 60]
    batch = [Example([1] * n, [2]) for n in lengths]
    shares = [share_of(batch, rank, 2) for rank in range(2)]
    rounds = [sorted(len(e.prompt) for e in pair) for pair in zip(*shares, strict=True)]
    assert rounds == [[80, 90], [60, 70], [5, 6], [3, 4]]  # longest first: what fits, fits


def test_the_gradient_overwrites_the_logits_and_is_right() -> None:
    """Over more positions than are in float32 at a time; a masked position weighs nothing."""
    from train.backends.deepspeed import ROWS, picked

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
    from configs.loader import load
    from configs.schema import SftRunConfig
    from train.backends.deepspeed import zero_config

    def made(*settings: str) -> dict[str, Any]:
        return zero_config(load(SftRunConfig, None, list(settings)), 2)

    assert made("engine.dtype=bfloat16")["data_types"] == {"grad_accum_dtype": "fp32"}
    zero = "zero_optimization"
    assert made("cluster.device=cpu")[zero]["stage3_param_persistence_threshold"] == 0
    assert "stage3_param_persistence_threshold" not in made()[zero]  # DeepSpeed's own, for speed
    assert made("cluster.offload=true")[zero]["offload_param"]["pin_memory"] is True


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


LISTS = ("n1", "n[1-4]", "n[03-07,9],login1", "a5,n[1-2]", "r[1-2]n[3,5-6]", "gpu-a100-[007-012]")


def test_the_meeting_point_is_read_without_asking_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a container there is no scontrol."""
    monkeypatch.setenv("PATH", "/nonexistent")
    job = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_ID": "17"}
    job["SLURM_JOB_NODELIST"] = "n[03-04]"
    assert rendezvous(job) == (2, 1, "n03", 20119)
    assert rendezvous(job | {"SLURM_RESTART_COUNT": "1"})[3] == 20120
    firsts = ["n1", "n1", "n03", "a5", "r1n3", "gpu-a100-007"]
    assert [first_host(nodes) for nodes in LISTS] == firsts


def test_ranks_share_the_cores_of_the_job() -> None:
    assert threads_of({"SLURM_CPUS_PER_TASK": "64"}, 8) == 8
    assert threads_of({"SLURM_CPUS_PER_TASK": "1"}, 8) == 1
    assert threads_of({}, 1) >= 1


def test_a_rank_is_told_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    import train.backends.deepspeed as module

    seen: list[str] = []

    class Rank(subprocess.Popen[bytes]):
        def __init__(self, words: list[str], env: dict[str, str]) -> None:
            seen.append(env["OMP_NUM_THREADS"])
            super().__init__(["true"], env=env)

    monkeypatch.setattr(module.subprocess, "Popen", Rank)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)  # pytest keeps its own
    for asked in ("", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert module.launch(["x"], 2) == 0
    assert seen == ["3", "3", "4", "4"]
