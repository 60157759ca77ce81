"""One dialect: flags and key=value, what each means, and `--json` of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from configs.answers import EvaluationConfig, RolloutConfig, ServeConfig
from configs.loader import ConfigError, dotted_docs
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig, load_run
from train.cli.answers import eval_parser, rollout_parser, serve_parser, settle
from train.cli.training import given, machine_output, parser_of
from train.cluster.preflight import asked
from train.run.log import RunLog

WORDS = ["rl.lr=1e-5", "--tasks", "t.jsonl", "rl.steps=3", "--model", "m", "--seed", "4"]
SAME = ["data=t.jsonl", "model.path=m", "seed=4", "rl.lr=1e-5", "rl.steps=3"]
ASK = ["--model", "m", "--tasks", "t.jsonl", "--out", "o"]


def test_flags_and_settings_are_one_also_for_jobs() -> None:
    parser = parser_of("grpo", "x", GrpoRunConfig, ("embedded", "verl"))
    words = given(parser, ["--backend", "verl", *WORDS, "--out", "o", "rl.top_k=3"])
    assert words.backend == "verl" and not words.dry_run
    config = load_run(GrpoRunConfig, None, words.settings)
    assert config == load_run(GrpoRunConfig, None, [*SAME, "out=o", "rl.top_k=3"])
    assert asked("grpo", WORDS).config == asked("grpo", SAME).config
    demo = parser_of("demo", "x", DemoConfig)
    with pytest.raises(SystemExit):
        given(demo, ["--tasks", "t.jsonl"])
    assert given(demo, ["seed=1", "--out", "o"]).settings == ["seed=1", "out=o"]


def test_every_setting_says_what_it_means_and_options_are_few() -> None:
    kinds: list[Any] = [DemoConfig, SftRunConfig, GrpoRunConfig]
    kinds += [EvaluationConfig, RolloutConfig, ServeConfig]
    assert [n for kind in kinds for n, (_, doc) in dotted_docs(kind).items() if not doc] == []
    for name, kind, shown in (
        ("sft", SftRunConfig, "sft.epochs=3"),
        ("grpo", GrpoRunConfig, "rl.rollouts_per_prompt=8"),
    ):
        assert shown in parser_of(name, "x", kind).format_help()
    made = (eval_parser(), rollout_parser(), serve_parser())
    for parser, kind in zip(made, kinds[3:], strict=True):
        text = parser.format_help()
        assert all(f"  {name}=" in text for name in dotted_docs(kind))
        options = [a for a in parser._actions if a.option_strings and "-h" not in a.option_strings]
        assert len(options) <= 16


def test_settings_may_follow_what_takes_all_words_and_be_whole_sections() -> None:
    args = eval_parser().parse_intermixed_args([*ASK, "--gather", "a", "b", "sampling.n=2"])
    args.tasks += ["engine.slots=3"]
    config = settle(args, EvaluationConfig, answers=False, temperature=1.0)
    assert (config.sampling.n, config.engine.slots, config.sampling.temperature) == (2, 3, 1.0)
    assert args.tasks == ["t.jsonl"] and [*map(str, args.gather)] == ["a", "b"]
    args = rollout_parser().parse_intermixed_args([*ASK, 'server.request={"top_k": 1, "a": null}'])
    config = settle(args, RolloutConfig, answers=False, temperature=1.0)
    assert config.server.request == {"top_k": 1, "a": None}
    args = rollout_parser().parse_intermixed_args([*ASK, "sampling.temprature=1"])
    with pytest.raises(ConfigError, match=r"did you mean sampling\.temperature\?"):
        settle(args, RolloutConfig, answers=False, temperature=1.0)


def test_json_of_a_run_is_one_object_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with machine_output(True) as done:
        log = RunLog(tmp_path)
        log.step("sft", 1, 2, {"loss": 2.0})
        log.step("sft", 2, 2, {"loss": 1.0})
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
    with machine_output(False) as done:
        print("line")
        done(tmp_path)
    assert capsys.readouterr() == ("line\n", "begun\n")
    parser = parser_of("sft", "x", SftRunConfig, ("embedded", "deepspeed"))
    with pytest.raises(SystemExit):
        given(parser, ["--json", "--backend", "deepspeed"])
