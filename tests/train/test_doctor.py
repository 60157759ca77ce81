"""`assay doctor`: this machine, and a node out of real files and commands, whole and with one thing
wrong."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nodes import CUDA, command, distribution, gpu_node
from places import ROOT

from train import doctor as doctor_module

SHAPE = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
}
RL = "rl: {steps: 2, max_length: 2048, max_new_tokens: 256}\n"


def run_file(folder: Path, section: str, tools: bool = False) -> Path:
    """The settings of a small run over two GPUs, its model's shape and its tasks."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(SHAPE))
    row = {"id": "a", "tools": ["python"] if tools else []}
    (folder / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    file = folder / "run.yaml"
    file.write_text(
        f"out: {folder}/out\ndata: {folder}/tasks.jsonl\nmodel: {{path: {folder}/model}}\n{section}"
        "cluster: {gpus_per_node: 2, rollout_workers: 1, sandbox_workers: 1}\n"
    )
    return file


def doctor(
    folder: Path, *words: str, bin_: Path | None = None, site: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Without `bin_` there is no GPU, whatever this machine has."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "CUDA_"))}
    environ["PATH"] = f"{bin_ or folder}:/usr/bin:/bin"
    environ["CUDA_VISIBLE_DEVICES"] = "0,1" if bin_ else ""
    environ["PYTHONPATH"] = os.pathsep.join(map(str, filter(None, (site, ROOT))))
    return subprocess.run(
        [sys.executable, "-m", "assay", "doctor", *words],
        cwd=folder,
        env=environ | {"CUDA_HOME": str(folder / "nowhere"), "ASSAY_SCRATCH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def missing(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Topic → sentence, of a report that ended as a report should."""
    assert "Traceback" not in done.stderr, done.stderr
    said = dict(line.split(": ", 2)[1:] for line in done.stderr.splitlines())
    assert done.returncode == (2 if said else 0), done.stderr
    return said


def test_a_node_that_has_all_is_let_through(tmp_path: Path) -> None:
    bin_, site = gpu_node(tmp_path)
    file = run_file(tmp_path, "sft: {batch_size: 2, max_length: 512}\n")
    done = doctor(tmp_path, "--for", str(file), "cluster.gpus_per_node=1", bin_=bin_, site=site)
    assert missing(done) == {}, done.stderr
    assert done.stdout.startswith("for        assay sft --backend deepspeed")
    assert "opens 2 GPU(s): NVIDIA A100-SXM4-80GB 86 GB" in done.stdout
    assert "package    deepspeed 0.19.8" in done.stdout


def test_rl_over_gpus_needs_more(tmp_path: Path) -> None:
    """Cores and memory are this machine's own, which may be too small."""
    bin_, site = gpu_node(tmp_path)
    done = doctor(tmp_path, "--for", str(run_file(tmp_path, RL)), bin_=bin_, site=site)
    assert set(missing(done)) <= {"cores", "memory"}, done.stderr
    assert "CUDA 13.0" in done.stdout and "sglang 0.5.12" in done.stdout
    assert "sandbox" not in done.stdout  # its tasks have no tools


def flash_attn_4(site: Path) -> None:
    shutil.rmtree(site / "flash_attn-2.8.3.dist-info")
    distribution(site, "flash-attn-4", "4.0.0b4")
    (site / "flash_attn" / "cute").mkdir(parents=True)


def old(bin_: Path, site: Path) -> None:
    (site / "torch" / "cuda.py").write_text(CUDA.replace("81920", "40960"))
    command(bin_, "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.1'")
    flash_attn_4(site)
    shutil.rmtree(site / "verl-0.9.1.dist-info")
    distribution(site, "verl", "0.10.0")


def lacking(bin_: Path, site: Path) -> None:
    (site / "torch" / "cuda.py").write_text(CUDA.replace("return 2", "return 1"))
    (bin_ / "nvcc").unlink()
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")


def closed(bin_: Path, site: Path) -> None:
    (site / "torch" / "cuda.py").write_text("def init():\n    raise RuntimeError('802')\n")


OLD = {
    "gpu": "the smallest GPU here has 43 GB",
    "nvcc": "release 12.4; torch is for CUDA 13.0",
    "flash-attn": "flash-attn 2 is not installed",
    "package": "install verl==0.9.1",
}
LACKING = {"gpu": "torch for CUDA none opens 1 GPU(s)", "nvcc": "not found"}
CLOSED = {"gpu": "opens 0 GPU(s): RuntimeError: 802; the run needs 2"}


@pytest.mark.parametrize(
    ("spoil", "wanted"),
    [(old, OLD), (lacking, LACKING), (closed, CLOSED)],
)
def test_each_thing_that_is_wrong_gets_its_sentence(
    tmp_path: Path, spoil: Callable[[Path, Path], None], wanted: dict[str, str]
) -> None:
    bin_, site = gpu_node(tmp_path)
    spoil(bin_, site)
    said = missing(doctor(tmp_path, "--for", str(run_file(tmp_path, RL)), bin_=bin_, site=site))
    assert set(said) - {"cores", "memory"} == set(wanted), said
    assert all(sentence in said[topic] for topic, sentence in wanted.items()), said


def test_the_embedded_loop_needs_no_gpu_and_tools_need_the_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--for", str(run_file(tmp_path, RL, tools=True)), "--backend", "embedded"]
    doctor_module.main(words)
    said = capsys.readouterr()
    assert "sandbox    level: " in said.out or "sandbox: " in said.err
    assert not any(f"{topic}: " in said.err for topic in ("gpu", "driver", "nvcc"))
    (tmp_path / "tasks.jsonl").write_text('{"id": "a"}\n')
    assert "opens 0 GPU(s)" in missing(doctor(tmp_path, *words, "engine.device=cuda"))["gpu"]


def test_attack_says_what_held_and_what_did_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rollouts.sandbox import canaries

    held = canaries.Outcome("read gold", True, "", "confined")
    through = canaries.Outcome("stat gold", False, "exit 0", "confined")
    monkeypatch.setattr(doctor_module, "report", list)
    for found, status in (([held, through], 1), ([held], 0)):
        monkeypatch.setattr(canaries, "run_all", lambda level, found=found: found)
        assert doctor_module.main(["--attack", "--level", "confined"]) == status
        said = capsys.readouterr().out
        assert f"level confined: 1 of {len(found)} stopped" in said
        assert ("open: stat gold: exit 0" in said) == bool(status)


def test_a_system_that_is_not_linux_gets_a_report_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a Mac: no affinity of cores, another processor, no C library of GNU."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "libc_ver", lambda *_, **__: ("", ""))
    assert doctor_module.main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    topics = {line.split()[0] for line in out.splitlines()}
    wanted = "python package cpu memory kernels gpu model sandbox nvcc glibc shm ports scratch"
    assert topics == set(wanted.split())
    said = (sys.executable, "torch 2.", "GB available", "glibc      none", "sandbox    level: ")
    assert all(words in out for words in said)


def test_a_model_that_is_not_here_stops_a_run_without_the_hub() -> None:
    there = doctor_module.model("nobody/has-this", {})
    offline = doctor_module.model("nobody/has-this", {"HF_HUB_OFFLINE": "1"})
    assert there.ok and not offline.ok and "hf download nobody/has-this" in offline.text


def test_a_port_in_use_moves_the_others() -> None:
    first = doctor_module.ports({"SLURM_JOB_ID": "7"})
    base = int(first.text.split()[0])
    with socket.socket() as taken:
        taken.bind(("", base + 3))
        moved = doctor_module.ports({"SLURM_JOB_ID": "7"})
    assert first.ok and moved.ok and int(moved.text.split()[0]) > base + 3


def test_shared_memory_and_disks(tmp_path: Path) -> None:
    assert doctor_module.shared_memory(1e3, tmp_path).ok
    small = doctor_module.shared_memory(1e18, tmp_path)
    assert not small.ok and "--shm-size" in small.text
    assert not doctor_module.shared_memory(1, tmp_path / "none").ok
    assert doctor_module.scratch(tmp_path / "not" / "there").ok
    assert not doctor_module.scratch(tmp_path, need=1e18).ok


def test_the_c_library() -> None:
    assert doctor_module.glibc("2.36").ok and doctor_module.glibc("2.34").ok
    old = doctor_module.glibc("2.31")
    assert not old.ok and "wheels of sglang need 2.34" in old.text
    assert "set cluster.rollout=vllm" in old.text and doctor_module.glibc("2.31", "vllm").ok
    assert not doctor_module.glibc("2.4").ok and not doctor_module.glibc("").ok
