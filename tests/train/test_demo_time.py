"""`assay demo --minutes`: sizes that fit into a time, recorded, and the first table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import assay
from configs.schema import DemoConfig
from train.cli.demo import DEFAULT_CONFIG
from train.demo_time import (
    LEAST,
    Speeds,
    expected_line,
    fitted_to,
    measured_speeds,
    stage_seconds,
)
from train.run.settings import load_run

SPEEDS = Speeds(prefill=4000, decode=500, learn=400)


@pytest.fixture(scope="module")
def default() -> DemoConfig:
    return load_run(DemoConfig, DEFAULT_CONFIG, [])


@given(minutes=st.floats(0.5, 300), factor=st.floats(0.2, 5))
def test_sizes_take_the_time_that_was_given(minutes: float, factor: float) -> None:
    config = load_run(DemoConfig, DEFAULT_CONFIG, [])
    speeds = Speeds(SPEEDS.prefill * factor, SPEEDS.decode * factor, SPEEDS.learn * factor)
    fitted = fitted_to(config, speeds, minutes)
    took = sum(stage_seconds(fitted, speeds).values())
    sizes = (fitted.tasks.train_sft, fitted.rl.steps, fitted.eval.tasks)
    least = (LEAST["train_sft"], LEAST["steps"], LEAST["tasks"])
    assert all(size >= low for size, low in zip(sizes, least, strict=True))
    assert fitted.tasks.heldout == fitted.eval.tasks
    if all(size > low for size, low in zip(sizes, least, strict=True)):
        one_step = stage_seconds(config, speeds)["Dr.GRPO"] / config.rl.steps
        assert abs(took - 60 * minutes) <= one_step + 0.1 * 60 * minutes
    again = replace(fitted, tasks=config.tasks, rl=config.rl, eval=config.eval)
    assert again == config  # nothing else has changed


def test_the_line_names_every_stage(default: DemoConfig) -> None:
    line = expected_line(default, SPEEDS)
    assert line.startswith("about ") and "on this machine" in line
    for stage in ("untouched model", "SFT", "Dr.GRPO", "RL model"):
        assert stage in line


def test_minutes_are_recorded_as_sizes_and_kept(
    tiny_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[Speeds] = []

    def measure(*given: Any) -> Speeds:
        measured.append(measured_speeds(*given))
        return measured[-1]

    monkeypatch.setattr("train.demo.measured_speeds", measure)
    monkeypatch.setitem(LEAST, "train_sft", 16)  # a run of 40 and 48 is three times as long
    monkeypatch.setitem(LEAST, "tasks", 24)
    words = [
        *("demo", "--out", str(tmp_path / "run"), f"model.path={tiny_folder}"),
        *("tasks.train_rl=16", "sft.max_length=2000", "rl.max_length=2000"),
        *("rl.prompts_per_step=2", "rl.mini_batch=2", "rl.rollouts_per_prompt=4"),
        *("rl.max_new_tokens=8", "eval.max_new_tokens=8", "eval.bootstrap=200"),
        *("engine.threads=1", "engine.dtype=float32", "rl.audit=warn"),
    ]
    assert assay.main([*words, "--minutes", "0.1"]) == 0  # less than the least
    said = capsys.readouterr().out
    sizes = "tasks.train_sft=16 tasks.heldout=24 rl.steps=2 eval.tasks=24"
    assert f"sizes: {sizes}\n" in said
    (speeds,) = measured  # once, for the sizes and for what is said of them
    config = load_run(DemoConfig, DEFAULT_CONFIG, [*words[3:], *sizes.split()])
    assert expected_line(config, speeds) + "\n" in said
    first, last = said.index("held-out tasks"), said.rindex("held-out tasks")
    assert first < said.index("== SFT") < last
    record = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (record["tasks"]["train_sft"], record["rl"]["steps"]) == (16, 2)
    assert not (tmp_path / "run" / "checkpoints" / "sft").exists()
    results = (tmp_path / "run" / "results.json").read_bytes()
    assert assay.main([*words, "--minutes", "200"]) == 0  # a run that began keeps its sizes
    assert f"sizes: {sizes}\n" in capsys.readouterr().out
    again = json.loads((tmp_path / "run" / "results.json").read_bytes())
    assert again["rows"] == json.loads(results)["rows"]


def test_minutes_and_a_size_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert assay.main(["demo", "--minutes", "5", "rl.steps=3"]) == 2
    assert "rl.steps=3: --minutes decides it" in capsys.readouterr().err
    assert assay.main(["demo", "--minutes", "-1"]) == 2
    assert "--minutes -1: give minutes, more than 0" in capsys.readouterr().err
