"""The studies ask for settings that exist, and pair what belongs together; a
sweep runs each setting."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mixed_tasks import answer

from assay.task import write_jsonl
from configs.loader import given_values
from configs.schema import GrpoRunConfig, SftRunConfig, load_run
from data_gen.demo.settings import DemoTaskSettings, OrderSettings
from data_gen.queries.lake_build import options as lake_options
from experiments import (
    demo_search,
    lake_training,
    one_model,
    order,
    study,
    table_training,
    tool_training,
    tracks,
)
from experiments.study import Answer, Table
from experiments.sweep import line, main, table

SFT = [
    *(demo_search.SFT, order.SFT, table_training.SFT, table_training.AGAIN, tool_training.SFT),
    *(lake_training.SFT, one_model.SFT, tracks.SFT),
]
RL = [
    *((*demo_search.RL, *arm.rl) for arm in demo_search.ARMS.values()),
    *((*order.RL, *arm.rl) for arm in order.ARMS.values()),
    *(table_training.RL, (*table_training.RL, *table_training.EVEN), tool_training.RL),
    *(lake_training.RL, one_model.RL, tracks.RL),
]


def test_every_run_of_every_study_has_settings_that_exist() -> None:
    for kind, runs in ((SftRunConfig, SFT), (GrpoRunConfig, RL)):
        for words in runs:
            load_run(kind, None, [study.ROUNDING, *words])
    for arm in demo_search.ARMS.values():
        given_values(DemoTaskSettings, [*arm.tasks, *demo_search.SPLITS])
    for form in order.FORMS.values():
        OrderSettings(**given_values(OrderSettings, [*order.TASKS, form]))
    assert lake_options().parse_args([*lake_training.TASKS, "--out", "x"]).obscured


def test_arms_are_paired_by_item_and_seed(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("RS", "balanced"), [("a", "b")], ["balanced"])
    for seed in (0, 1):
        for arm, right in (("a", (0.0, 0.0, 0.0, 1.0)), ("b", (1.0 - seed, 1.0, 0.0, 1.0))):
            answers = [
                Answer(f"q{n}", f"s{n}", {"RS": value, "balanced": value}, "DROP" if n else "KEEP")
                for n, value in enumerate(right)
            ]
            table.add(arm, seed, answers if arm == "a" else answers[::-1], 90.0)
    table.show()
    shown = capsys.readouterr().out
    assert "| a | 0 | 0.250 [" in shown and "| 0.167 [" in shown and "| 1.5 |" in shown
    assert "| a → b | 0 1 | +0.375 [" in shown and "| +0.417 [" in shown
    assert "| b | all | 0.625 [" in shown


def test_a_sweep_runs_every_setting_and_compares_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replies = {"match": "", "replies": ["<answer>7</answer>"]}
    (tmp_path / "c.jsonl").write_text(json.dumps(replies), "utf-8")
    write_jsonl(
        tmp_path / "t.jsonl", [answer(7).to_json(), replace(answer(8), track="x").to_json()]
    )
    command = ["--out", str(tmp_path / "s"), "--setting", "--seed 1", "--setting", "--seed 2"]
    command += ["--", "--tasks", f"{tmp_path}/t.jsonl", "--model", f"canned:{tmp_path}/c.jsonl"]
    assert main(command) == 0
    data = json.loads((tmp_path / "s" / "sweep.json").read_text("utf-8"))
    first, second = data["settings"]
    assert (first["setting"], first["overall"], first["difference"]) == ("seed 1", 0.5, None)
    assert second["tracks"] == {"lake": 1.0, "x": 0.0}
    assert second["difference"]["difference"] == 0.0
    assert "| seed 2 | 100.00 | 0.00 | 50.00 | +0.000" in capfd.readouterr().out


def test_answers_without_an_outcome_are_in_no_mean() -> None:
    row = {"task_id": "a", "track": "x", "turns": 2, "tokens_in": 30, "tokens_out": 10}
    rows = [{**row, "outcome": 1.0, "seconds": 60.0}, {**row, "outcome": None, "seconds": 0.0}]
    found = line("s", rows, None)
    assert (found["overall"], found["no outcome"], found["tokens of a turn"]) == (1.0, 1, 20.0)
    assert table([line("s", [], None)]).endswith("| s | - | - | 0 | 0.00 | 0 | 0.000 | 0 |\n")
