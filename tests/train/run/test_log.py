"""The log of a run: fixed columns, nothing twice after a resume, names as the field has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.files import file_hash
from assay.rows import read_rows
from assay.task import Score
from configs.loader import load
from configs.schema import DemoConfig
from train.run.log import LogError, RunLog, live_note, read_metrics, rollout_metrics
from train.run.record import read_run_record, write_run_record


def test_resume_drops_what_came_after_and_a_torn_line(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for step in (1, 2):
        log.record("sft", step, {"loss": step})
    for step in (1, 2, 3, 4):
        log.step("rl", step, 5, {"reward/mean": 0.1 * step}, [{"id": f"t{step}"}])
    with open(tmp_path / "metrics.jsonl", "a") as out:
        out.write('{"stage": "rl", "st')
    assert len(read_metrics(tmp_path)) == 6
    again = RunLog(tmp_path)
    again.resume("rl", 2)
    again.step("rl", 3, 5, {"reward/mean": 0.9}, [{"id": "new"}])
    rows = [(r["stage"], r["step"]) for r in read_metrics(tmp_path)]
    assert rows == [("sft", 1), ("sft", 2), ("rl", 1), ("rl", 2), ("rl", 3)]
    assert read_metrics(tmp_path)[-1]["reward/mean"] == 0.9
    names = sorted(p.name for p in (tmp_path / "rollouts").iterdir())
    assert names == [f"step_{n:06d}.jsonl" for n in (1, 2, 3)]
    assert [row for _, row in read_rows(tmp_path / "rollouts" / names[-1])] == [{"id": "new"}]


def test_resuming_an_earlier_stage_drops_the_later_one(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for stage, step in (("sft", 1), ("sft", 2), ("rl", 1)):
        log.record(stage, step, {})
    log.resume("sft", 1)
    assert [(r["stage"], r["step"]) for r in read_metrics(tmp_path)] == [("sft", 1)]


def test_non_finite_numbers_stay_valid_json(tmp_path: Path) -> None:
    RunLog(tmp_path).record("rl", 1, {"grad_norm": float("nan"), "kl": float("inf")})
    row = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert row == {"stage": "rl", "step": 1, "grad_norm": None, "kl": None}


def test_rollout_metrics_are_the_means_by_hand() -> None:
    good = Score(1.0, 1.0, {"rg": 1.0})
    bad = Score(0.0, 0.2, {"rg": 0.5})
    none = Score(0.0, 0.0, {}, "no_answer")
    lost = Score(None, None, {}, "timeout")
    got = rollout_metrics(
        [[good, bad], [bad, bad], [none, lost]],
        [[10, 20], [30, 40], [50, 900]],  # a failed rollout's length says nothing
        [[False, False], [False, False], [True, True]],
    )
    assert got["reward/mean"] == pytest.approx((1.0 + 0.2 * 3) / 5)
    assert got["outcome/mean"] == pytest.approx(1 / 5)
    assert got["reward/rg/mean"] == pytest.approx((1.0 + 0.5 * 3) / 4)
    assert got["response_length/mean"] == 30 and got["response_length/max"] == 50
    assert got["response_length/clip_ratio"] == pytest.approx(1 / 5)
    assert got["by_group/frac_mixed"] == pytest.approx(1 / 3)
    assert got["by_group/frac_flat"] == pytest.approx(2 / 3)
    assert got["why/no_answer"] == got["why/timeout"] == pytest.approx(1 / 6)


def test_run_record_holds_what_is_needed_to_repeat(tmp_path: Path) -> None:
    data = tmp_path / "tasks.jsonl"
    data.write_text("x\n")
    config = load(DemoConfig, None, ["seed=4"])
    for _ in range(2):
        write_run_record(tmp_path, config, {"tasks": data}, model="somewhere")
    record = read_run_record(tmp_path)
    assert record["seed"] == 4 and record["model"] == "somewhere" and len(record["starts"]) == 2
    assert record["inputs"]["tasks"] == file_hash(data) and len(file_hash(data)) == 64
    assert record["versions"]["python"].startswith("3.") and "torch" in record["versions"]
    assert load(DemoConfig, tmp_path / "config.yaml") == config


@pytest.mark.parametrize("line", ["{half", "[]", '{"stage": "rl"}'])
def test_a_damaged_line_is_said(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{line}\n{{"stage": "rl", "step": 1}}\n')
    with pytest.raises(LogError, match=r"metrics\.jsonl line 1: damaged; remove the line"):
        RunLog(tmp_path).resume("rl", 1)


def test_lost_steps_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"stage": "rl", "step": 1}\n{"stage": "rl", "st')
    RunLog(tmp_path).resume("rl", 3)
    assert "cut off; its last 2 steps are missing" in capsys.readouterr().err


METRICS = {"reward/mean": 0.5, "outcome/mean": 0.25, "loss": 0.1, "reward/said_drop/mean": 0.4}


def test_the_note_says_what_was_measured() -> None:
    assert live_note(METRICS) == "reward 0.50, outcome 0.25, DROP 40%"
    assert live_note({"loss": 1.5, "time/tokens_per_second": 99.6}) == "loss 1.500, tok/s 100"
    assert live_note({}) == ""
