"""`assay demo --minutes`: sizes that fit into a time, recorded, and the first table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from configs.schema import DemoConfig
from train.cli.demo import DEFAULT_CONFIG
from train.demo_time import (
    LEAST,
    Speeds,
    expected_line,
    fitted_to,
    stage_seconds,
)
from train.run.settings import load_run

SPEEDS = Speeds(prefill=4000, decode=500, learn=400)


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


def test_the_line_names_every_stage() -> None:
    line = expected_line(load_run(DemoConfig, DEFAULT_CONFIG, []), SPEEDS)
    assert line.startswith("about ") and "on this machine" in line
    for stage in ("untouched model", "SFT", "Dr.GRPO", "RL model"):
        assert stage in line
