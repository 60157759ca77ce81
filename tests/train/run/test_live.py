"""The live line of a loop: lines of steps stay whole, and a log has nothing else."""

from __future__ import annotations

import io
import sys

import pytest

from assay import console
from train.run.log import LiveLine, live_note

METRICS = {"reward/mean": 0.5, "outcome/mean": 0.25, "loss": 0.1, "reward/said_drop/mean": 0.4}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_note_says_what_was_measured() -> None:
    assert live_note(METRICS) == "reward 0.50, outcome 0.25, DROP 40%"
    assert live_note({"loss": 1.5, "time/tokens_per_second": 99.6}) == "loss 1.500, tok/s 100"
    assert live_note({}) == ""


def test_a_log_gets_the_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveLine()
    for step in (1, 2):
        live.step("rl", step, 2, f"step {step}/2", METRICS)
    assert capsys.readouterr() == ("step 1/2\nstep 2/2\n", "")


def test_a_terminal_gets_the_lines_and_one_bar_a_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(console, "FIRST_S", 0.0)
    live = LiveLine()
    live.step("sft", 1, 1, "sft 1/1", {"loss": 2.0})
    for step in (3, 4):  # resumed after step 2
        live.step("rl", step, 4, f"step {step}/4", METRICS)
    live.close()
    assert capsys.readouterr().out.split() == ["sft", "1/1", "step", "3/4", "step", "4/4"]
    drawn = terminal.getvalue()
    assert "SFT: 100%" in drawn and "Dr.GRPO: 100%" in drawn and "4/4" in drawn
    assert "reward 0.50, outcome 0.25, DROP 40%" in drawn
