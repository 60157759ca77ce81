"""`python -m experiments.sweep`: one evaluation under several settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.task import Task, write_jsonl
from configs.answers import EvaluationConfig
from experiments.sweep import PRESETS, line, main, table
from train.cli.answers import eval_parser, settle
from train.evaluation.answering import environment_factory
from train.evaluation.benchmarks import budget_of


def tasks(folder: Path) -> Path:
    gold = {"answer_type": "numeric_exact", "answer": 3}
    prompt = [{"role": "user", "content": "Two and one?"}]
    made = [Task(f"t{n}", "answer", f"track{n % 2}", "heldout", prompt, gold) for n in range(4)]
    write_jsonl(folder / "t.jsonl", [task.to_json() for task in made])
    return folder / "t.jsonl"


def test_a_sweep_runs_every_setting_and_compares_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    replies = [{"match": "Two", "replies": ["<answer>3</answer>"]}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, replies)), "utf-8")
    command = ["--out", str(tmp_path / "s"), "--setting", "--seed 1", "--setting", "--seed 2"]
    command += ["--", "--tasks", str(tasks(tmp_path)), "--model", f"canned:{tmp_path}/c.jsonl"]
    assert main(command) == 0
    data = json.loads((tmp_path / "s" / "sweep.json").read_text("utf-8"))
    first, second = data["settings"]
    assert (first["setting"], first["overall"], first["difference"]) == ("seed 1", 1.0, None)
    assert second["tracks"] == {"track0": 1.0, "track1": 1.0}
    assert second["difference"]["difference"] == 0.0
    assert "| seed 2 | 100.00 | 100.00 | 100.00 | +0.000" in capfd.readouterr().out
    assert (tmp_path / "s" / "seed-1" / "results.json").is_file()
    assert main(command) == 0  # again: nothing is asked anew


def test_presets_are_options_of_assay_eval() -> None:
    """DARE-bench's Table 4 varies turns and seconds; a model knows them by the tool alone."""
    seen: list[tuple[int, float]] = []
    for preset, settings in PRESETS.items():
        for setting in settings:
            words = ["--model", "m", "--tasks", "t", "--out", "o", *setting.split()]
            args = eval_parser().parse_args(words)
            settle(args, EvaluationConfig, answers=False, temperature=0.0)
            if preset == "dare-budget":
                told = environment_factory(args).settings
                assert budget_of(args).turns == told.uses
                assert budget_of(args).seconds == told.uses * told.run_s
                seen.append((told.uses, told.run_s))
    assert seen == [(3, 300.0), (5, 200.0), (6, 180.0), (8, 120.0), (10, 100.0), (15, 100.0)]


def test_answers_without_an_outcome_are_in_no_mean() -> None:
    row = {"task_id": "a", "track": "x", "turns": 2, "tokens_in": 30, "tokens_out": 10}
    rows = [{**row, "outcome": 1.0, "seconds": 60.0}, {**row, "outcome": None, "seconds": 0.0}]
    found = line("s", rows, None)
    assert (found["overall"], found["no outcome"], found["tokens of a turn"]) == (1.0, 1, 20.0)
    assert "| s | 100.00 | 100.00 | - | 40 | 2.00 | 20 | 0.500 | 1 |" in table([found])
    assert table([line("s", [], None)]).endswith("| s | - | - | 0 | 0.00 | 0 | 0.000 | 0 |\n")
