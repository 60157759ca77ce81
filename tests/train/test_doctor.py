"""`assay doctor`: this machine, and a node out of real files and commands, whole and with one thing
wrong."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from rollouts.sandbox import canaries
from train import doctor as doctor_module

# torch.cuda, as far as the doctor asks it
CUDA = """
from types import SimpleNamespace

def init():
    pass

def device_count():
    return 2

def get_device_properties(i):
    return SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=81920 << 20)
"""
VERL = {
    "ray": "2.60.0",
    "verl": "0.9.1",
    "sglang": "0.5.12",
    "flash-attn": "2.8.3",
    "deepspeed": "0.19.8",
    "nvidia-nccl-cu13": "2.29.3",
}


def command(folder: Path, name: str, text: str) -> None:
    """A shell script that can be found on a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def distribution(site: Path, name: str, version: str) -> Path:
    """What `importlib.metadata` finds of an installed package."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def gpu_node(folder: Path) -> tuple[Path, Path]:
    """(bin, site) of a node with two A100, nvcc, and a torch for CUDA 13.0 that opens both."""
    bin_, site = folder / "bin", folder / "site"
    command(bin_, "nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.48'")
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("from torch import cuda, version\n")
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    (site / "torch" / "cuda.py").write_text(CUDA)
    distribution(site, "torch", "2.13.0+cu130")
    for name, version in VERL.items():
        distribution(site, name, version)
    return bin_, site


SFT = "sft: {batch_size: 2, max_length: 512}\n"
RL = "rl: {steps: 2, max_length: 2048, max_new_tokens: 256}\n"


def run_file(folder: Path, section: str, tools: bool = False) -> Path:
    """The settings of a small run over two GPUs, its model's shape and its tasks."""
    (folder / "model").mkdir()
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    shape |= {"intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 4096}
    (folder / "model" / "config.json").write_text(json.dumps(shape | {"model_type": "qwen3"}))
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


def test_a_node_that_has_all_is_let_through_and_each_fault_gets_its_sentence(
    tmp_path: Path,
) -> None:
    """Cores and memory are this machine's own, which may be too small for RL."""
    bin_, site = gpu_node(tmp_path)
    file = run_file(tmp_path, SFT)

    def asked(*words: str) -> tuple[str, dict[str, str]]:
        done = doctor(tmp_path, "--for", str(file), *words, bin_=bin_, site=site)
        said = missing(done)
        return done.stdout, {k: v for k, v in said.items() if k not in ("cores", "memory")}

    out, said = asked("cluster.gpus_per_node=1")
    assert said == {} and "opens 2 GPU(s): NVIDIA A100-SXM4-80GB 86 GB" in out
    file.write_text(file.read_text().replace(SFT, RL))
    out, said = asked()
    assert said == {} and "CUDA 13.0" in out and "sglang 0.5.12" in out
    assert "sandbox" not in out  # its tasks have no tools

    (site / "torch" / "cuda.py").write_text(CUDA.replace("81920", "40960"))
    command(bin_, "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.1'")
    shutil.rmtree(site / "flash_attn-2.8.3.dist-info")
    distribution(site, "flash-attn-4", "4.0.0b4")  # SGLang's: `import flash_attn` succeeds
    (site / "flash_attn" / "cute").mkdir(parents=True)
    shutil.rmtree(site / "verl-0.9.1.dist-info")
    distribution(site, "verl", "0.10.0")
    _, said = asked()
    assert said.keys() == OLD.keys() and all(text in said[topic] for topic, text in OLD.items())

    (site / "torch" / "cuda.py").write_text(CUDA.replace("return 2", "return 1"))
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    (bin_ / "nvcc").unlink()
    _, said = asked()
    assert "torch for CUDA none opens 1 GPU(s)" in said["gpu"] and "not found" in said["nvcc"]


OLD = {
    "gpu": "the smallest GPU here has 43 GB",
    "nvcc": "release 12.4; torch is for CUDA 13.0",
    "flash-attn": "flash-attn 2 is not installed",
    "package": "install verl==0.9.1",
}


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
    held = canaries.Outcome("read gold", True, "", "confined")
    through = canaries.Outcome("stat gold", False, "exit 0", "confined")
    monkeypatch.setattr(doctor_module, "report", list)
    for found, status in (([held, through], 1), ([held], 0)):
        monkeypatch.setattr(canaries, "run_all", lambda level, found=found: found)
        assert doctor_module.main(["--attack", "--level", "confined"]) == status
        assert ("open: stat gold: exit 0" in capsys.readouterr().out) == bool(status)


def test_a_system_that_is_not_linux_gets_a_report_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a Mac: no affinity of cores, another processor, no C library of GNU."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "libc_ver", lambda *_, **__: ("", ""))
    assert doctor_module.main([]) == 0
    out, err = capsys.readouterr()
    topics = {line.split()[0] for line in out.splitlines()}
    wanted = "python package cpu memory kernels gpu model sandbox nvcc glibc shm ports scratch"
    assert err == "" and topics == set(wanted.split())
