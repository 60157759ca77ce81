"""verl's colocated asynchronous trainer on the CPU device: rollouts from older weights are used,
weighted, and said to be old."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="the extra `cluster` is not installed")
pytest.importorskip("torch")

from tiny_model import CHAT_TEMPLATE
from tool_model import tasks, write_model
from verl_run import grpo, logged


@pytest.mark.slow
def test_three_steps_with_rollouts_from_older_weights(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE)
    tasks(4, tmp_path / "train.jsonl")
    more = ("rl.save_every=100", "cluster.val_data=", "cluster.trainer=colocate_async")
    grpo(tmp_path, "rl.steps=3", "rl.lr=1e-2", *more)
    rows = logged(tmp_path)
    assert [row["training/global_step"] for row in rows] == [1, 2, 3]
    stale = [row["training/off_policy/trajectory_staleness_worst/max"] for row in rows]
    assert max(stale) >= 1, stale  # some tokens came from weights before the newest
    weights = [row["rollout_corr/rollout_is_min"] for row in rows]
    assert weights[0] > 0.999 and min(weights) < 0.99  # and each token is weighted for that
    assert all(row["rollout/tool_calls/mean"] >= 0.5 for row in rows)
    assert (tmp_path / "run" / "model" / "config.json").is_file()
