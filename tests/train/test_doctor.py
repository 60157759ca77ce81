"""`assay doctor`: this machine, and a node out of real files and commands, whole and with one thing
wrong."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from rollouts.sandbox import canaries
from train import doctor
from train.backends.verl import settings

# what is installed on a node, what torch opens there, and its nvcc
HAVE = dict.fromkeys(("torch", "transformers", "safetensors"), "1")
HAVE |= {"ray": "2.60.0", "verl": "0.9.1", "sglang": "0.5.12", "flash-attn": "2.8.3"}
A100 = f"NVIDIA A100-SXM4-80GB\t{81920 << 20}\n"
NODE = {"gpu": f"13.0\n{A100}{A100}", "nvcc": "Cuda compilation tools, release 13.0, V13.0.48"}


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


def test_a_node_that_has_all_is_let_through_and_each_fault_gets_its_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cores and memory are this machine's own, which may be too small for RL."""
    file, have, node = run_file(tmp_path, SFT), dict(HAVE), dict(NODE)
    monkeypatch.setenv("ASSAY_SCRATCH", str(tmp_path))
    for module in (doctor, settings):
        monkeypatch.setattr(
            module, "installed", lambda names: {name: have[name] for name in names if name in have}
        )
    monkeypatch.setattr(
        doctor, "said", lambda words: (node["nvcc" if words[-1] == "--version" else "gpu"], "")
    )

    def asked(*words: str) -> tuple[str, dict[str, str]]:
        status = doctor.main(["--for", str(file), *words])
        out, err = capsys.readouterr()
        said = dict(line.split(": ", 2)[1:] for line in err.splitlines())
        assert status == (2 if said else 0)
        return out, {k: v for k, v in said.items() if k not in ("cores", "memory")}

    have["deepspeed"] = "0.19.8"
    out, said = asked("cluster.gpus_per_node=1")
    assert said == {} and "opens 2 GPU(s): NVIDIA A100-SXM4-80GB 86 GB" in out
    file.write_text(file.read_text().replace(SFT, RL))
    out, said = asked()
    assert said == {} and "CUDA 13.0" in out and "sglang 0.5.12" in out
    assert "sandbox" not in out  # its tasks have no tools

    node |= {"gpu": NODE["gpu"].replace(str(81920 << 20), str(40960 << 20))}
    node["nvcc"] = "Cuda compilation tools, release 12.4, V12.4.1"
    have["verl"] = "0.10.0"
    del have["flash-attn"]
    _, said = asked()
    assert said.keys() == OLD.keys() and all(text in said[topic] for topic, text in OLD.items())

    node |= {"gpu": f"\n{A100}", "nvcc": ""}
    _, said = asked()
    assert "torch for CUDA none opens 1 GPU(s)" in said["gpu"] and "not found" in said["nvcc"]


OLD = {
    "gpu": "the smallest GPU here has 43 GB",
    "nvcc": "release 12.4; torch is for CUDA 13.0",
    "flash-attn": "flash-attn 2 is not installed",
    "package": "install verl==0.9.1",
}


def test_the_embedded_loop_needs_no_gpu_and_tools_need_the_sandbox(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--for", str(run_file(tmp_path, RL, tools=True)), "--backend", "embedded"]
    doctor.main(words)
    said = capsys.readouterr()
    assert "sandbox    level: " in said.out or "sandbox: " in said.err
    assert not any(f"{topic}: " in said.err for topic in ("gpu", "driver", "nvcc"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert doctor.main([*words, "engine.device=cuda"]) == 2
    assert "opens 0 GPU(s)" in capsys.readouterr().err


def test_attack_says_what_held_and_what_did_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = canaries.Outcome("read gold", True, "", "confined")
    through = canaries.Outcome("stat gold", False, "exit 0", "confined")
    monkeypatch.setattr(doctor, "report", list)
    for found, status in (([held, through], 1), ([held], 0)):
        monkeypatch.setattr(canaries, "run_all", lambda level, found=found: found)
        assert doctor.main(["--attack", "--level", "confined"]) == status
        assert ("open: stat gold: exit 0" in capsys.readouterr().out) == bool(status)


def test_a_system_that_is_not_linux_gets_a_report_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a Mac: no affinity of cores, another processor, no C library of GNU."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "libc_ver", lambda *_, **__: ("", ""))
    assert doctor.main([]) == 0
    out, err = capsys.readouterr()
    topics = {line.split()[0] for line in out.splitlines()}
    wanted = "python package cpu memory kernels gpu model sandbox nvcc glibc shm ports scratch"
    assert err == "" and topics == set(wanted.split())
