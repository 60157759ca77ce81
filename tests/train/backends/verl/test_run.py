"""verl's trainer really runs, on a CPU: sandboxed tool calls, validation, resume, export.

About three minutes on two idle cores, nearly all of it starting processes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="the extra `cluster` is not installed")
torch = pytest.importorskip("torch")

from tiny_model import CHAT_TEMPLATE  # noqa: E402
from tool_model import tasks, write_model  # noqa: E402
from verl_run import grpo, logged  # noqa: E402

pytestmark = pytest.mark.slow


def steps_of(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["training/global_step"]) for row in rows]


def spoil(path: Path, name: str) -> None:
    """Give a task a file that is there and cannot be read."""
    (path.parent / "table.csv").mkdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row["files"] = {"table.csv": "table.csv"} if row["id"] == name else {}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(folder: Path, step: int) -> set[str]:
    """Ids of the tasks that verl rolled out in a step."""
    lines = (folder / "run" / "rollouts" / f"{step}.jsonl").read_text().splitlines()
    return {json.loads(json.loads(line)["gts"])["id"] for line in lines}


def ordered(folder: Path) -> list[str]:
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "run" / "verl" / "train.parquet").to_pylist()
    return [row["extra_info"]["task_id"] for row in rows]


def test_grpo_with_tools_validates_resumes_and_exports(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE)
    tasks(4, tmp_path / "train.jsonl")
    spoil(tmp_path / "train.jsonl", "t1")
    tasks(2, tmp_path / "held.jsonl")
    from train.backends.verl.export import main as export

    grpo(tmp_path, "rl.steps=1", "checkpoint.keep=1")
    assert export([str(tmp_path / "run"), "--step", "1", "--out", str(tmp_path / "one")]) == 0
    said = grpo(tmp_path, "rl.steps=2", "checkpoint.keep=1")  # goes on from step 1
    # one of both starts: verl's own list begins anew with each
    assert [p.name for p in (tmp_path / "run").glob("global_step_*")] == ["global_step_2"]
    assert "going on after step 1 of 2" in said
    rows = logged(tmp_path)
    assert steps_of(rows) == [1, 2]
    for row in rows:
        assert row["rollout/tool_calls/mean"] >= 0.5  # most rollouts ran Python in the sandbox
        assert {"outcome/mean", "reward/format/mean", "reward/rg/mean"} <= set(row)
        assert row["training/rollout_probs_diff_max"] < 1e-4  # our sampler is verl's model
        assert 0.0 < row["actor/entropy_nats"] < 8.0  # of a vocabulary of 270
    order = ordered(tmp_path)  # the embedded loop's
    assert order.index("t1") > 1 and [row["rollout/left_out"] for row in rows] == [0.0, 4.0]
    assert "rollout left out: task t1: file table.csv" in said  # and the run went on without it
    assert [asked(tmp_path, step) for step in (1, 2)] == [set(order[:2]), {*order[2:]} - {"t1"}]
    held = [name for name in rows[1] if name.startswith("val-core/refinement/")]
    assert {name.split("/")[2] for name in held} == {"atomic_m", "order_m"}
    texts = [json.loads(x) for x in (tmp_path / "run/rollouts/1.jsonl").read_text().splitlines()]
    assert len(texts) == 8 and sum('"stdout": "42' in row["output"] for row in texts) >= 4
    folder = tmp_path / "run" / "model"
    from rollouts.engines.torch.engine import load_engine
    from rollouts.prompts import ChatTokenizer

    assert (tmp_path / "one" / "config.json").is_file()
    assert export([str(tmp_path / "run"), "--step", "9"]) == 2
    engine = load_engine(folder, ChatTokenizer(folder).stop_ids, 4)  # an ordinary folder
    assert type(engine).__name__ == "TorchEngine"
    assert (tmp_path / "run" / "DONE").exists()


def test_three_steps_with_rollouts_from_older_weights(tmp_path: Path) -> None:
    """The colocated asynchronous trainer: older rollouts are used, weighted, and said to be old."""
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE)
    tasks(4, tmp_path / "train.jsonl")
    more = ("rl.save_every=100", "validation=null", "cluster.trainer=colocate_async")
    grpo(tmp_path, "rl.steps=3", "rl.lr=1e-2", *more)
    rows = logged(tmp_path)
    assert [row["training/global_step"] for row in rows] == [1, 2, 3]
    stale = [row["training/off_policy/trajectory_staleness_worst/max"] for row in rows]
    assert max(stale) >= 1, stale  # some tokens came from weights before the newest
    weights = [row["rollout_corr/rollout_is_min"] for row in rows]
    assert weights[0] > 0.999 and min(weights) < 0.99  # and each token is weighted for that
    called = [row["rollout/tool_calls/mean"] for row in rows]
    assert called[0] >= 0.5 and min(called) > 0  # so large a step may unlearn some calls
    assert (tmp_path / "run" / "model" / "config.json").is_file()
