"""Adapters in the embedded loops: they alone are trained, a resume ends in the same bits, the
exported folder is an ordinary one."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("peft") is None:
    pytest.skip("peft is not installed (extra `lora`)", allow_module_level=True)

import assay  # noqa: E402
from assay.task import Task, write_jsonl  # noqa: E402


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    rows = []
    for i in range(8):
        gold = {"input_text": f"ax{i}", "status": "KEEP", "text": f"a{i}"}
        prompt = [{"role": "user", "content": f"{i} ax"}]
        rows.append(Task(f"t{i}", "refinement", "toy", "train", prompt, gold).to_json())
    write_jsonl(path, rows)
    return path


def grpo(tasks: Path, model: Path, out: Path, *more: str) -> int:
    return assay.main(
        [
            "grpo",
            f"data={tasks}",
            f"model.path={model}",
            f"out={out}",
            "engine.device=cpu",
            "engine.threads=1",
            "engine.dtype=float32",
            "model.lora_rank=4",
            "rl.prompts_per_step=4",
            "rl.mini_batch=4",
            "rl.rollouts_per_prompt=4",
            "rl.max_new_tokens=64",
            "rl.lr=1e-2",
            "rl.save_every=1",
            *more,
        ]
    )


@pytest.fixture
def warm(tasks: Path, tiny_folder: Path, tmp_path: Path) -> Path:
    """A model that solves some of the tasks, so that groups have an advantage."""
    out = tmp_path / "warm"
    assert (
        assay.main(
            [
                "sft",
                f"data={tasks}",
                f"model.path={tiny_folder}",
                f"out={out}",
                "engine.device=cpu",
                "engine.threads=1",
                "engine.dtype=float32",
                "sft.batch_size=8",
                "sft.epochs=120",
                "sft.lr=3e-3",
                "sft.save_every=1000",
            ]
        )
        == 0
    )
    return out / "model"


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_grpo_trains_adapters_resumes_and_exports_plain_weights(
    tasks: Path, warm: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load, load_file

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert grpo(tasks, warm, whole, "rl.steps=3", "rl.kl_coef=0.01") == 0
    assert grpo(tasks, warm, cut, "rl.steps=1", "rl.kl_coef=0.01") == 0
    assert grpo(tasks, warm, cut, "rl.steps=3", "rl.kl_coef=0.01") == 0  # goes on
    digests = [hashlib.sha256(weights(folder)).hexdigest() for folder in (whole, cut)]
    assert digests[0] == digests[1]
    before, after = load_file(str(warm / "model.safetensors")), load(weights(whole))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("proj" in name for name in changed)
    saved = max((whole / "checkpoints" / "rl").glob("step_*/optimiser.safetensors"))
    kept = {name.split(".", 1)[0] for name in load(saved.read_bytes())}
    assert kept >= {"master", "exp_avg"}
    assert saved.stat().st_size < 0.5 * len(weights(whole))  # adapters only


def test_a_resume_with_another_rank_is_refused(
    tasks: Path, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grpo(tasks, tiny_folder, tmp_path / "r", "rl.steps=1") == 0
    assert grpo(tasks, tiny_folder, tmp_path / "r", "rl.steps=2", "model.lora_rank=8") == 2
    assert "model.lora_rank" in capsys.readouterr().err
