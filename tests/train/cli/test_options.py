"""Flags and key=value lead to the same settings, in any order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from configs.loader import dotted_docs
from configs.schema import DemoConfig, GrpoRunConfig, SftRunConfig
from train.cli.options import given, parser_of
from train.cluster.preflight import asked
from train.run.settings import load_run

WORDS = ["rl.lr=1e-5", "--tasks", "t.jsonl", "rl.steps=3", "--model", "m", "--seed", "4"]
SAME = ["data=t.jsonl", "model.path=m", "seed=4", "rl.lr=1e-5", "rl.steps=3"]


def test_both_dialects_are_one() -> None:
    parser = parser_of("grpo", "x", GrpoRunConfig, ("embedded", "verl"))
    words = given(parser, ["--backend", "verl", *WORDS, "--out", "o", "rl.top_k=3"])
    assert words.backend == "verl" and not words.dry_run
    config = load_run(GrpoRunConfig, None, words.settings)
    assert config == load_run(GrpoRunConfig, None, [*SAME, "out=o", "rl.top_k=3"])


def test_a_job_reads_the_same_words() -> None:
    assert asked("grpo", WORDS).config == asked("grpo", SAME).config


def test_demo_has_no_data_flag() -> None:
    parser = parser_of("demo", "x", DemoConfig)
    with pytest.raises(SystemExit):
        given(parser, ["--tasks", "t.jsonl"])
    assert given(parser, ["seed=1", "--out", "o"]).settings == ["seed=1", "out=o"]


@pytest.mark.parametrize("config", [DemoConfig, SftRunConfig, GrpoRunConfig])
def test_every_setting_says_what_it_means(config: type) -> None:
    assert [n for n, (_, doc) in dotted_docs(config).items() if not doc] == []


@pytest.mark.parametrize("command", ["demo", "sft", "grpo"])
def test_help_lists_the_settings_and_imports_no_torch(command: str) -> None:
    code = (
        "import sys\nsys.path.insert(0, sys.argv[1])\nimport assay\n"
        "try:\n    assay.main(sys.argv[2:])\nexcept SystemExit:\n    pass\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(ROOT), command, "--help"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path("/")).stdout
    assert said.rstrip().endswith("False False")
    assert "sft.epochs=3" in said or "rl.rollouts_per_prompt=8" in said
