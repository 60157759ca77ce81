"""One dialect of flags and settings, and `--json` of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from configs.answers import EvaluationConfig, RolloutConfig, ServeConfig
from configs.loader import dotted_docs
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig
from train.cli.answers import eval_parser, settle
from train.cli.training import machine_output
from train.cluster.preflight import asked
from train.run.log import RunLog

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")
Said = pytest.CaptureFixture[str]

WORDS = ["rl.lr=1e-5", "--tasks", "t.jsonl", "rl.steps=3", "--model", "m", "--seed", "4"]
SAME = ["data=t.jsonl", "model.path=m", "seed=4", "rl.lr=1e-5", "rl.steps=3"]
ASK = ["--model", "m", "--tasks", "t.jsonl", "--out", "o"]


def test_flags_and_settings_are_one_also_for_jobs() -> None:
    assert asked("grpo", WORDS).config == asked("grpo", SAME).config


def test_every_setting_says_what_it_means() -> None:
    kinds: list[Any] = [DemoConfig, SftRunConfig, GrpoRunConfig]
    kinds += [EvaluationConfig, RolloutConfig, ServeConfig]
    assert [n for kind in kinds for n, (_, doc) in dotted_docs(kind).items() if not doc] == []


def test_settings_may_follow_what_takes_all_words_and_be_whole_sections() -> None:
    args = eval_parser().parse_intermixed_args([*ASK, "--gather", "a", "b", "sampling.n=2"])
    args.tasks += ["engine.slots=3"]
    config = settle(args, EvaluationConfig, answers=False, temperature=1.0)
    assert (config.sampling.n, config.engine.slots, config.sampling.temperature) == (2, 3, 1.0)
    assert args.tasks == ["t.jsonl"] and [*map(str, args.gather)] == ["a", "b"]


def test_json_of_a_run_is_one_object_on_standard_output(tmp_path: Path, capsys: Said) -> None:
    with machine_output(True) as done:
        RunLog(tmp_path).step("sft", 2, 2, {"loss": 1.0})
        (tmp_path / "model").mkdir()
        done(tmp_path)
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["out"] == str(tmp_path) and found["models"] == {"model": str(tmp_path / "model")}
    assert found["last"]["sft"] == {"stage": "sft", "step": 2, "loss": 1.0}
    assert found["report"] is None and "sft 2/2" in said.err
    with pytest.raises(ValueError), machine_output(True):
        print("begun")  # and a run that fails prints no object
        raise ValueError
    assert capsys.readouterr() == ("", "begun\n")
