"""The loops stop and go on: to the bit, after a kill too; what may not change is refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

torch = pytest.importorskip("torch")

from grpo_runs import KILLED, RL, refinement_tasks, run_rl  # noqa: E402

from configs.schema import GrpoRunConfig, SftConfig  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from train.examples import Example  # noqa: E402
from train.model.policy import load_policy  # noqa: E402
from train.run.checkpoint import CheckpointError, Checkpoints  # noqa: E402
from train.run.log import RunLog, read_metrics  # noqa: E402
from train.run.run import Loop  # noqa: E402
from train.sft import train_sft  # noqa: E402


def test_sft_learns_and_resumes_to_the_same_bits(tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = ChatTokenizer(tiny_folder)
    examples = [
        Example(tokenizer.prompt(t.prompt), tokenizer.answer(t.gold["text"]))
        for t in refinement_tasks(24)
    ]
    config = SftConfig(epochs=4, batch_size=8, lr=3e-3, warmup=2, save_every=2)

    def run(out: Path, stop_after: int | None) -> Any:
        policy = load_policy(tiny_folder, "float32")
        log = RunLog(out)
        if stop_after is not None:
            log.step = stopper(stop_after, log.step)  # type: ignore[method-assign]
        train_sft(
            policy,
            examples,
            config,
            Loop(3, log, Checkpoints(out / "ck", GrpoRunConfig()), 200),
        )
        return policy

    whole = run(tmp_path / "a", None)
    losses = [row["loss"] for row in read_metrics(tmp_path / "a")]
    assert losses[-1] < losses[0] * 0.8
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "b", 5)
    resumed = run(tmp_path / "b", None)
    assert same(whole, resumed)
    assert [r["step"] for r in read_metrics(tmp_path / "b")] == list(range(1, 13))


def stopper(at: int, step: Any) -> Any:
    def stop(stage: str, number: int, *rest: Any) -> None:
        step(stage, number, *rest)
        if number == at:
            raise KeyboardInterrupt

    return stop


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for (_, x), (_, y) in zip(a.named(), b.named(), strict=True))


def test_a_changed_locked_field_is_refused_by_name(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(tiny_folder, tmp_path, replace(RL, steps=3))
    with pytest.raises(CheckpointError, match=r"rl\.lr was 0\.003 and is 0\.001"):
        run_rl(tiny_folder, tmp_path, replace(RL, steps=4, lr=1e-3))


CHILD = """
import sys, torch
torch.set_num_threads(1)
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/tests/support"]
from pathlib import Path
from grpo_runs import KILLED, run_rl
policy = run_rl(Path(sys.argv[2]), Path(sys.argv[3]), KILLED)
policy.save(Path(sys.argv[3]) / "model")
"""


# once this many steps are logged, and a little later: before the first save, and after others
@pytest.mark.parametrize("kills", [(4,), pytest.param((1, 7), marks=pytest.mark.slow)])
def test_kill_9_anywhere_and_rerun_gives_the_same_bits(
    tiny_folder: Path, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    def start(out: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", CHILD, str(ROOT), str(tiny_folder), str(out)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_rl(tiny_folder, whole, KILLED).save(whole / "model")
    pauses = random.Random(11)
    for lines in kills:
        child = start(killed)
        metrics = killed / "metrics.jsonl"
        while child.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                time.sleep(pauses.random() * 0.05)
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        child.wait()
    assert start(killed).wait() == 0
    a, b = (p / "model" / "model.safetensors" for p in (whole, killed))
    assert a.read_bytes() == b.read_bytes()
    steps = [row["step"] for row in read_metrics(killed)]
    assert steps == list(range(1, KILLED.steps + 1))


def test_fewer_steps_than_are_done_are_refused(tiny_folder: Path, tmp_path: Path) -> None:
    run_rl(tiny_folder, tmp_path, replace(RL, steps=3))
    with pytest.raises(CheckpointError, match="at step 3 already and now ends after 2; ask for 3"):
        run_rl(tiny_folder, tmp_path, replace(RL, steps=2))


def test_a_schedule_that_ends_at_the_last_step_keeps_it(tiny_folder: Path, tmp_path: Path) -> None:
    config = replace(RL, steps=3, schedule="cosine")
    run_rl(tiny_folder, tmp_path, config)
    with pytest.raises(CheckpointError, match=r"rl\.steps was 3 and is 6"):
        run_rl(tiny_folder, tmp_path, replace(config, steps=6))
    run_rl(tiny_folder, tmp_path / "constant", replace(RL, steps=3))
    run_rl(tiny_folder, tmp_path / "constant", replace(RL, steps=4))
