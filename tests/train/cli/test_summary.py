"""`--json` of a run: one object on standard output, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.schema import SftRunConfig
from train.cli.options import given, machine_output, parser_of
from train.run.log import RunLog


def test_one_object_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_run_that_fails_prints_no_object(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError), machine_output(True):
        print("begun")
        raise ValueError
    assert capsys.readouterr() == ("", "begun\n")


def test_without_it_nothing_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with machine_output(False) as done:
        print("line")
        done(tmp_path)
    assert capsys.readouterr() == ("line\n", "")


def test_other_backends_refuse_it(capsys: pytest.CaptureFixture[str]) -> None:
    parser = parser_of("sft", "x", SftRunConfig, ("embedded", "deepspeed"))
    with pytest.raises(SystemExit):
        given(parser, ["--json", "--backend", "deepspeed"])
    assert "--json: only with --backend embedded" in capsys.readouterr().err
