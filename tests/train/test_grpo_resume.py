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

import pytest
from places import ROOT

torch = pytest.importorskip("torch")

from grpo_runs import KILLED, RL, run_rl  # noqa: E402

from train.run.checkpoint import CheckpointError  # noqa: E402
from train.run.log import read_metrics  # noqa: E402

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
@pytest.mark.parametrize("kills", [(3,), pytest.param((1, 4), marks=pytest.mark.slow)])
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
