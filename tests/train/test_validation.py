"""Evaluation while training: logged, the best model kept, and no bit of training changed."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from faulty import Fault, command

torch = pytest.importorskip("torch")

from safetensors.torch import load, load_file  # noqa: E402

from assay import main  # noqa: E402
from assay.task import Task, write_jsonl  # noqa: E402
from train.run.checkpoint import EXIT_STOPPED, StopFlag  # noqa: E402
from train.run.log import read_metrics  # noqa: E402

OWN = """
from assay.family import Family, Score

def score(task, answer):
    share = sum(c in "abcdefghijklm" for c in answer.text) / max(len(answer.text), 1)
    return Score(share, share)

FAMILY = Family(name="letters", score=score, gold=lambda task: "a" + task.gold["text"])
"""


@pytest.fixture(scope="module")
def words(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("letters")
    (folder / "letters.py").write_text(OWN)
    tasks = [
        Task(f"t{i}", "letters", "x", "train", [{"role": "user", "content": str(i)}], {"text": "b"})
        for i in range(16)
    ]
    write_jsonl(folder / "tasks.jsonl", (t.to_json() for t in tasks))
    held = [replace(t, id=f"v{i}", split="validation") for i, t in enumerate(tasks[:3])]
    write_jsonl(folder / "held.jsonl", (t.to_json() for t in held))
    return [
        *("--family", f"{folder}/letters.py", "--tasks", f"{folder}/tasks.jsonl"),
        *("--model", str(tiny_folder), "engine.dtype=float32", "engine.threads=1"),
        *("--validation", f"{folder}/held.jsonl", "eval.every=2", "--seed", "2"),
    ]


RL = ["rl.prompts_per_step=4", "rl.mini_batch=4", "rl.rollouts_per_prompt=4", "rl.lr=3e-3"]
RL += ["rl.max_new_tokens=6", "rl.max_length=64", "rl.save_every=3", "rl.steps=5"]
RL += ["rl.audit=off"]  # letters pay without any work
SFT = ["sft.batch_size=4", "sft.epochs=2", "sft.lr=1e-2", "sft.warmup=0", "sft.save_every=3"]


def rows(out: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if not k.startswith("time/")} for r in read_metrics(out)]


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


CHOICE = [*RL, "rl.dynamic_sampling=1", "rl.overlong=soft"]
ADAPTERS = [*RL, "model.lora_rank=4", "rl.kl_coef=0.01", "rl.lr=1e-2"]
NO_PEFT = pytest.mark.skipif(not find_spec("peft"), reason="the extra `lora` is not installed")
NAMES = ("whole", "broken", "blind", "killed")
LOOPS = [("grpo", CHOICE), ("sft", SFT), pytest.param("grpo", ADAPTERS, marks=NO_PEFT)]
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
ON_GPU = ["engine.device=cuda", "engine.dtype=bfloat16"]
LOOPS += [
    pytest.param(n, [*more, *ON_GPU], marks=(pytest.mark.gpu, NO_GPU)) for n, more in LOOPS[:2]
]


@pytest.mark.parametrize(("name", "more"), LOOPS)
def test_validation_is_logged_and_the_best_kept_and_a_stop_changes_nothing(
    words: list[str],
    tiny_folder: Path,
    tmp_path: Path,
    name: str,
    more: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, broken, blind, killed = (tmp_path / f"out-{n}" for n in NAMES)
    given = [name, *words, *more]
    done = command([*given, "--out", str(whole)], tmp_path)
    assert done.status == 0, done.said
    evals = [r for r in rows(whole) if r["stage"] == "eval"]
    steps = [r for r in rows(whole) if r["stage"] != "eval"]
    assert name == "grpo" or steps[-1]["loss"] < 0.8 * steps[0]["loss"]
    last = max(r["step"] for r in rows(whole))
    assert [r["step"] for r in evals] == sorted({*range(2, last + 1, 2), last})
    best = json.loads((whole / "best" / "validation.json").read_text())
    top = max(r["outcome/mean"] for r in evals)
    first = next(r for r in evals if r["outcome/mean"] == top)
    assert (best["step"], best["outcome/mean"]) == (first["step"], top)
    assert (weights(whole / "best") == weights(whole / "model")) == (best["step"] == last)

    # without validation, training is the same to the bit
    plain = [w for i, w in enumerate(given) if "--validation" not in (w, given[i - 1])]
    assert main([*plain, "--out", str(blind)]) == 0
    assert weights(blind / "model") == weights(whole / "model")

    # stopped after the third step, or killed at some writing, and gone on: the same files
    steps_left = iter([False, False, True])
    with monkeypatch.context() as patch:
        patch.setattr(StopFlag, "__call__", lambda self: next(steps_left))
        assert main([*given, "--out", str(broken)]) == EXIT_STOPPED
    fault = Fault(signal.SIGKILL, done.changes * 3 // 5)
    assert command([*given, "--out", str(killed)], tmp_path, fault).status == -signal.SIGKILL
    for out in (broken, killed):
        assert not (out / "DONE").exists()
        assert main([*given, "--out", str(out)]) == 0 and (out / "DONE").exists()
        assert rows(out) == rows(whole)
        for part in ("best", "model"):
            assert weights(out / part) == weights(whole / part)
    if "model.lora_rank=4" in more:  # adapters alone are trained and kept; the model is whole
        start, end = load_file(f"{tiny_folder}/model.safetensors"), load(weights(whole / "model"))
        assert start.keys() == end.keys()
        changed = {name for name in start if not torch.equal(start[name], end[name])}
        assert changed and all("proj" in name for name in changed)
        saved = max((whole / "checkpoints" / "rl").glob("step_*/optimiser.safetensors"))
        assert saved.stat().st_size < 0.5 * len(weights(whole / "model"))
        assert main([*given, "--out", str(whole), "model.lora_rank=8", "rl.steps=6"]) == 2
