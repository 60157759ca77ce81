"""Weights & Biases and TensorBoard get what metrics.jsonl gets, under one set of names."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_run import answers, line, refinement

pytest.importorskip("torch")

from configs.machine import LogConfig
from train.run.log import FOLDER, TABLE, LogError, RunLog, named_values, read_metrics, table_of

WHY = "is not installed; `make test-interop`"


def rollouts() -> list[dict[str, Any]]:
    task = refinement(0)
    return [line(task, j, text) for j, text in enumerate(answers(task))]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: name → (step, value)."""
    pytest.importorskip("tensorboard", reason=f"tensorboard {WHY}")
    from tensorboard.backend.event_processing.event_accumulator import (
        SCALARS,
        EventAccumulator,
    )

    shown: Any = EventAccumulator(str(folder / FOLDER), size_guidance={SCALARS: 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in shown.Scalars(tag)]
        for tag in shown.Tags()["scalars"]
    }


def test_the_names_of_rl_are_plain_and_what_was_not_measured_is_left_out() -> None:
    metrics = {"reward/mean": 1, "kl": None, "signs": {"why": 1.0}, "said": "no number"}
    assert named_values("rl", metrics) == {"reward/mean": 1.0}
    assert named_values("sft", metrics) == {"sft/reward/mean": 1.0}


def test_a_table_has_a_line_a_rollout_with_prompt_answer_and_parts() -> None:
    columns, rows = table_of(7, rollouts())
    assert columns[: len(TABLE)] == list(TABLE) and "reward/rs" in columns
    first = dict(zip(columns, rows[0], strict=True))
    assert len(rows) == 4 and (first["step"], first["task_id"], first["sample"]) == (7, "t/0", 0)
    assert first["outcome"] == 1.0 and first["why"] == "ok" and first["reward/rs"] == 1.0
    assert first["prompt"] == refinement(0).prompt[-1]["content"]
    assert first["answer"] == answers(refinement(0))[0]


@pytest.mark.parametrize("name", ["tensorboard=true", "wandb=offline"])
def test_a_tracker_that_is_not_there_is_said_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in ("wandb", "tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    setting, _, value = name.partition("=")
    asked: dict[str, Any] = {setting: True if value == "true" else value}
    with pytest.raises(LogError, match=rf"log\.{name}: the package {setting} is not installed"):
        RunLog(tmp_path, LogConfig(**asked))


def test_a_resumed_run_has_every_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=f"tensorboard {WHY}")
    log = RunLog(tmp_path, LogConfig(tensorboard=True))
    log.record("sft", 9, {"loss": 1.0})
    for step in (1, 2, 3):
        log.record("rl", step, {"reward/mean": float(step)})
    log.close()
    again = RunLog(tmp_path, LogConfig(tensorboard=True))
    again.resume("rl", 1)
    again.record("rl", 2, {"reward/mean": 20.0})
    again.close()
    assert scalars(tmp_path) == {"sft/loss": [(9, 1.0)], "reward/mean": [(1, 1.0), (2, 20.0)]}
    late = RunLog(tmp_path, LogConfig(tensorboard=True))  # and one that asks for it in the middle
    late.record("rl", 3, {"reward/mean": 30.0})
    late.close()
    assert [step for step, _ in scalars(tmp_path)["reward/mean"]] == [1, 2, 3]
    assert [row["step"] for row in read_metrics(tmp_path)] == [9, 1, 2, 3]


def test_wandb_gets_the_same_names_and_tables_of_rollouts(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason=f"wandb {WHY}")
    log = RunLog(tmp_path, LogConfig(wandb="offline", tables=2, rollouts=False))
    for step in (1, 2, 3):
        log.step("rl", step, 3, {"reward/mean": 0.5}, rollouts())
    log.record("sft", 1, {"loss": 2.5})
    log.close()
    tables = sorted(tmp_path.glob("wandb/offline-run-*/files/media/table/rollouts_*.table.json"))
    found = [json.loads(path.read_text()) for path in tables]
    assert sorted(table["data"][0][0] for table in found) == [2, 3]  # every second, and the last
    assert all(table["columns"][: len(TABLE)] == list(TABLE) for table in found)
    assert {len(table["data"]) for table in found} == {4}
    (stored,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    wanted = (b"reward/mean", b"sft/loss")
    for _ in range(300):  # a process of its own writes the file, and may end after `finish`
        names = stored.read_bytes()
        if all(name in names for name in wanted):
            break
        time.sleep(0.1)
    assert [name for name in wanted if name not in names] == []
    assert not (tmp_path / "rollouts").exists()
